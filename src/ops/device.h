/* device.h - where ops run and where their memory comes from.
 *
 * `cpu` has memory; `dry` has none: the same allocator hands out addresses in
 * a range that faults when touched, ops only count. As both run the same
 * allocator over the same requests, the peak that dry reports is the peak of
 * the real run, byte for byte, fragmentation included.
 *
 * One device belongs to one rank, and one thread at a time allocates from it. Memory
 * is one address range per device, handed out lowest address first in multiples of
 * 64 bytes (4096 for blocks of 16 KiB and more); the high-water mark of that range
 * is the footprint.
 *
 * What becomes resident: pages appear when first touched and stay, to be used again
 * by later blocks. The range starts on a huge page (2 MiB) and asks for huge pages,
 * so the first byte touched in 2 MiB makes all of it resident. `peak` is therefore
 * the mark rounded up to 2 MiB, on every machine and on dry: resident memory never
 * exceeds it, and stays below it only by blocks that are never touched (the unused
 * part of thread scratch, the end of weights that are compressed) and by less than
 * 2 MiB at the end. Which part of a block is touched the device cannot know;
 * allocate what you fill. Memory of the process that is not the device's (code,
 * malloc, thread stacks) comes on top. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "sheaf/options.h"
#include "sheaf/status.h"
#include "ops/kernels.h"
#include "ops/pool.h"
#include "ops/units.h"

typedef enum sheaf_memory {
    SHEAF_MEM_WEIGHTS,     /* base weights, packed; norms; tables */
    SHEAF_MEM_TRAINED,     /* float32 masters and their compute copies */
    SHEAF_MEM_GRADIENTS,   /* of trained tensors, lane sums included */
    SHEAF_MEM_OPTIMIZER,   /* first and second moments */
    SHEAF_MEM_ACTIVATIONS, /* values and their gradients */
    SHEAF_MEM_CACHE,       /* keys and values of earlier tokens */
    SHEAF_MEM_SCRATCH,     /* per thread buffers, partial sums */
    SHEAF_MEM_EXCHANGE,    /* subtree roots and what ranks send */
    SHEAF_MEM_INPUTS,      /* tokens, labels, masks, staging for files */
    SHEAF_MEM_KINDS
} sheaf_memory;

typedef enum sheaf_device_kind { SHEAF_CPU, SHEAF_DRY } sheaf_device_kind;

/* The order of bfloat16 sums over one block of 256 (docs/contract.md, section 1.1). float32 has
 * one order only. */
typedef enum sheaf__sums {
    SHEAF__PAIRS, /* one chain, by pairs, odd element first: what vdpbf16ps computes */
    SHEAF__TILES, /* chunks of 32, each two chains of 16: what the tiles of AMX compute */
} sheaf__sums;

static inline sheaf__sums sheaf__sums_order(sheaf_bf16_sums sums)
{
    return sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS;
}

typedef struct sheaf__device {
    sheaf_device_kind kind;
    const sheaf__kernels *kernels; /* never NULL, also on dry */
    sheaf__units units;            /* none on dry */
    sheaf__pool *pool;             /* NULL on dry */
    int threads;                   /* workers of the pool; what dry pretends to have */
    sheaf__sums sums;              /* of all products of bfloat16; set before the first one */
    void **scratch;                /* [threads] blocks of SHEAF__THREAD_SCRATCH bytes */
    /* Counted on both kinds. */
    size_t in_use[SHEAF_MEM_KINDS], peak_of[SHEAF_MEM_KINDS];
    size_t peak;                     /* high-water mark of the address range, rounded up to 2 MiB */
    size_t at_peak[SHEAF_MEM_KINDS]; /* in_use at the moment the mark last rose */
    double flops;                    /* multiply and add counted apart, products only */
    struct sheaf__range *range;      /* the address range and its allocator, private to device.c */
} sheaf__device;

/* Bytes of scratch every compute thread owns (allocated from the device when
 * it is made, SHEAF_MEM_SCRATCH). Kernels may use it freely inside one task. */
#define SHEAF__THREAD_SCRATCH ((size_t)6 << 20)

/* sheaf__device_open - isa: NULL for the best this CPU has, else "ref", "avx2",
 * "avx512". limit: bytes the range may grow to, 0 = no limit of our own. */
sheaf_status *sheaf__device_open(sheaf__device **out, sheaf_device_kind kind, int threads,
                                 const char *isa, size_t limit);
void sheaf__device_close(sheaf__device *device);

/* sheaf__memory_name - "weights", "trained weights", ... for messages and tables. */
const char *sheaf__memory_name(sheaf_memory kind);

/* sheaf__device_alloc - uninitialised memory. bytes 0 gives a valid pointer. Failure
 * (limit, system) is a status that says how much was requested and in use. */
sheaf_status *sheaf__device_alloc(void **out, sheaf__device *device, size_t bytes,
                                  sheaf_memory kind);
/* sheaf__device_hold - makes what lies between the mark and `bytes` resident, by all threads at
 * once, so that no step waits for fresh pages: those of a host that has to find them take
 * milliseconds each. What the system refuses is left to the blocks that will need it. */
void sheaf__device_hold(sheaf__device *device, size_t bytes);
/* sheaf__device_needs - bytes that a block of so many occupies. */
size_t sheaf__device_needs(size_t bytes);
/* sheaf__device_free - accepts NULL; the kind is remembered by the allocator. */
void sheaf__device_free(sheaf__device *device, void *block);
/* sheaf__device_size - bytes that a block occupies, and of which kind; 0 of NULL. */
size_t sheaf__device_size(const sheaf__device *device, const void *block, sheaf_memory *kind);
