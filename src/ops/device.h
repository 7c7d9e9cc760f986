/* device.h - where ops run and where their memory comes from.
 *
 * Only operations (call.h) and transfers touch a device's memory; to all else an address is a
 * number. `cpu` has the host's memory; `dry` has none: the same allocator hands out addresses in
 * a range that faults when touched, ops and transfers only count. As all run the same
 * allocator over the same requests, the peak that dry reports is the peak of
 * the real run, byte for byte, fragmentation included. Which devices there are: docs/devices.md.
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

#include <pthread.h>

#include "base/base.h"
#include "base/combining.h"
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

/* sheaf__sums_text - an order of sums of 16-bit products by name. float32 has one order only, and
 * so has float16 but for mma8 and mma16. */
static inline const char *sheaf__sums_text(sheaf_sums sums)
{
    static const char *const text[] = {
        "pairs",  /* UNNAMED */
        "pairs",  /* one chain, by pairs, odd element first: what vdpbf16ps computes */
        "tiles",  /* chunks of 32, each two chains of 16: what the tiles of AMX compute */
        "mma8",   /* chains of groups of 8: tensor cores of sm_80 to sm_89 (matmul/mma.h) */
        "mma16",  /* of 16: of sm_90 and later */
        "groups", /* pairs, but codes of 4 bits in groups */
        "tiles in groups"
    };
    return text[sums];
}

/* sheaf__sums_in_groups - the same order, but codes of 4 bits in groups, where it knows them.
 * sheaf__sums_of_values - the same without. */
static inline sheaf_sums sheaf__sums_in_groups(sheaf_sums sums)
{
    return sums == SHEAF_SUMS_TILES   ? SHEAF_SUMS_TILES_GROUPS
           : sums <= SHEAF_SUMS_PAIRS ? SHEAF_SUMS_GROUPS
                                      : sums;
}
static inline sheaf_sums sheaf__sums_of_values(sheaf_sums sums)
{
    return sums == SHEAF_SUMS_TILES_GROUPS ? SHEAF_SUMS_TILES
           : sums == SHEAF_SUMS_GROUPS     ? SHEAF_SUMS_PAIRS
                                           : sums;
}

/* Whether what is computed in `dtype` is summed as tensor cores do it. */
static inline bool sheaf__by_mma(sheaf_sums sums, sheaf_dtype dtype)
{
    return (sums == SHEAF_SUMS_MMA8 || sums == SHEAF_SUMS_MMA16) && dtype != SHEAF_F32;
}

/* The kinds of work that a device's time is measured for. */
typedef enum sheaf__spending {
    SHEAF__SPENT_PRODUCTS,
    SHEAF__SPENT_ATTENTION,
    SHEAF__SPENT_TRANSFERS, /* to and from the host's memory, where that is another */
    SHEAF__SPENDINGS
} sheaf__spending;

/* Nanoseconds since the device began to measure. */
typedef struct sheaf__spent {
    uint64_t of[SHEAF__SPENDINGS];
    uint64_t marks; /* readings of the device's clocks, which take time */
} sheaf__spent;

struct sheaf__device_class;

/* Addresses of no memory: what lies there is moved by sheaf__borrow() and sheaf__return(), and
 * nothing else reads or writes it.
 *   at  bytes from the first one; of a status: not moved */
typedef struct sheaf__elsewhere {
    uintptr_t first;
    size_t bytes;
    sheaf_status *(*move)(void *self, size_t at, void *host, size_t bytes, bool writes);
    void *self;
} sheaf__elsewhere;

typedef struct sheaf__device {
    const struct sheaf__device_class *class;
    const struct sheaf__device_class
        *planned; /* on dry the class that it plans for; else `class` */
    /* The processor beside it, which does what the device has no kernel for. */
    const sheaf__kernels *kernels; /* never NULL, also on dry */
    sheaf__units units;            /* none on dry */
    sheaf__pool *pool;             /* NULL on dry */
    int threads;                   /* workers of the pool; what dry pretends to have */
    sheaf_sums sums;               /* of all products in 16 bits; set before the first one */
    void *work;                    /* the class's own bytes of the device's memory */
    void **scratch; /* [threads] blocks of SHEAF__THREAD_SCRATCH bytes of the host's memory */
    _Atomic(sheaf_status *) failed; /* the first operation that could not be done; else NULL */
    /* Counted on all devices. */
    size_t in_use[SHEAF_MEM_KINDS], peak_of[SHEAF_MEM_KINDS];
    size_t peak;                     /* high-water mark of the address range, rounded up to 2 MiB */
    size_t at_peak[SHEAF_MEM_KINDS]; /* in_use at the moment the mark last rose */
    double flops;                    /* multiply and add counted apart, products only */
    _Atomic uint64_t uploaded, downloaded; /* bytes of transfers, also where they cost nothing */
    _Atomic bool measures;                 /* by the host's clock, where the class has none */
    _Atomic uint64_t spent[SHEAF__SPENDINGS];
    const sheaf__elsewhere *elsewhere; /* NULL: there is nothing */
    pthread_mutex_t copying;           /* held while an operation runs on copies */
    struct sheaf__reserved *reserved;  /* the addresses, */
    struct sheaf__range *range;        /* and their allocator, private to device.c */
} sheaf__device;

/* An address range that a device reserves, and what of it can be used so far. */
typedef struct sheaf__reserved {
    char *base;
    size_t capacity, usable;
    void *own; /* the class's */
    int unit;  /* its number among the devices of the class */
    /* For reserve(): those that ranks of this process have; none: all that are there. */
    const int *mate;
    int mates;
} sheaf__reserved;

struct sheaf__call;

/* Access of devices to each other's memory. All of a process reach each other's, or none does. */
typedef struct sheaf__peers {
    bool (*reach)(const sheaf__reserved *range);
    /* mark - the next exchange that is not marked yet lends what operations up to here make; those
     * behind may run beside it. */
    sheaf_status *(*mark)(sheaf__reserved *range);
    /* Of a range. lend - until what the oldest mark names is done, or, without one, all operations;
     * operations do not wait for its copies and sums. */
    sheaf__mover mover;
} sheaf__peers;

/* A class of devices. Functions may be called by several threads of one device. */
typedef struct sheaf__device_class {
    const char *name;
    bool counts;    /* operations and transfers only count; but reserve nothing is called */
    bool shared;    /* its memory is the host's, which may use its addresses */
    bool row_major; /* weights lie there row by row (matmul/matmul.h), not in panels */
    size_t work;    /* bytes of its memory that its operations work in: SHEAF_MEM_SCRATCH */
    /* reserve - addresses for `limit` bytes; 0: as many as can be had. grow - makes those up to
     * `to` usable, at least; false: the system does not grant them. release: NULL: none is needed.
     * hold - makes what lies between resident; NULL: it is. */
    sheaf_status *(*reserve)(sheaf__reserved *range, size_t limit);
    bool (*grow)(sheaf__reserved *range, size_t to);
    void (*release)(sheaf__reserved *range);
    void (*hold)(sheaf__device *device, sheaf__reserved *range, size_t from, size_t to);
    /* Why grow() did not, as the end of a sentence (", and the system to grant it"); NULL: that. */
    void (*refused)(const sheaf__reserved *range, char *text, size_t bytes);
    /* Both done on return, and after all operations before them; not used where it is shared. */
    sheaf_status *(*upload)(sheaf__reserved *range, void *to, const void *from, size_t bytes);
    sheaf_status *(*download)(sheaf__reserved *range, void *to, const void *from, size_t bytes);
    /* By a kernel of its own; false: it has none of that number. NULL: it has none at all. */
    bool (*run)(sheaf__device *device, sheaf__reserved *range, const struct sheaf__call *call);
    /* count - how many there are; native - the order of sums that the tensor cores of one compute.
     * NULL: there is one, without any. */
    sheaf_status *(*count)(int *units);
    sheaf_status *(*native)(sheaf_sums *out, int unit);
    /* left - free memory of one device, in bytes; takes - about what its driver uses of it. NULL:
     * its memory is the host's. */
    sheaf_status *(*left)(size_t *bytes, int unit);
    size_t takes;
    const sheaf__peers *peers; /* NULL: exchanges go through the host */
    /* measure - by clocks of its own, as what it is told is done later; NULL: it is done at once.
     * spent - adds work that has ended since the last call; waits for nothing. */
    void (*measure)(sheaf__reserved *range, bool on);
    void (*spent)(sheaf__reserved *range, sheaf__spent *sum);
    /* name_unit - in words, with its memory: "GPU 0 (NVIDIA H100, 79.6 GiB)". NULL: it has none. */
    void (*name_unit)(const sheaf__reserved *range, char *text, size_t bytes);
} sheaf__device_class;

extern const sheaf__device_class sheaf__cpu, sheaf__dry, sheaf__cuda_class;
/* Those of a test, up to NULL; without a test there is no such table. */
extern const sheaf__device_class *const sheaf__more_devices[] __attribute__((weak));

/* Bytes of scratch every compute thread owns (taken when the device is made; SHEAF_MEM_SCRATCH of
 * it where its memory is the host's). Kernels may use it freely inside one task. */
#define SHEAF__THREAD_SCRATCH ((size_t)6 << 20)

/* The devices that a run names: a class, and numbers of its devices. */
enum { SHEAF__UNITS = 64 };
typedef struct sheaf__device_choice {
    const sheaf__device_class *class;
    int units; /* 0: all that are there */
    int unit[SHEAF__UNITS];
} sheaf__device_choice;

/* sheaf__device_choose - of a name: NULL or "cpu", "cuda", "cuda:0,2". Asks no device. */
sheaf_status *sheaf__device_choose(sheaf__device_choice *out, const char *name);
/* sheaf__device_find - its class alone. */
sheaf_status *sheaf__device_find(const sheaf__device_class **out, const char *name);
/* sheaf__device_present - are those of the name here? */
sheaf_status *sheaf__device_present(const char *name);
/* sheaf__device_native - the order in which the tensor cores of such devices sum 16-bit numbers
 * (of those that are not here: that of the latest); false: they have none. */
bool sheaf__device_native(sheaf_sums *out, const char *name);
/* sheaf__device_for - opens one of those of the name for rank `rank` of a machine: rank r has
 * number r modulo how many there are. `ranks`: of this process, from 0 on; 1: this one alone. All
 * of its scratch is resident. Else as sheaf__device_open(). */
sheaf_status *sheaf__device_for(sheaf__device **out, const char *name, int rank, int ranks,
                                int threads, const char *isa);
/* sheaf__device_left - number and free memory of the device that this rank would get. SIZE_MAX: its
 * memory is the host's. */
sheaf_status *sheaf__device_left(size_t *bytes, int *unit, const char *name, int rank);
/* sheaf__device_order - the order of its sums of 16-bit numbers, of type `dtype` (SHEAF_F32: the
 * order does not matter). Errors: SHEAF_E_UNSUPPORTED: it is another one's tensor cores'. */
sheaf_status *sheaf__device_order(sheaf__device *device, sheaf_sums sums, sheaf_dtype dtype);

/* sheaf__device_open - isa: NULL for the best this CPU has, else "ref", "avx2",
 * "avx512". limit: bytes the range may grow to, 0 = no limit of our own. */
sheaf_status *sheaf__device_open(sheaf__device **out, const sheaf__device_class *class, int threads,
                                 const char *isa, size_t limit);
/* sheaf__device_open_of - one of several that the class has: that of `of`, which may name mates. */
sheaf_status *sheaf__device_open_of(sheaf__device **out, const sheaf__device_class *class,
                                    const sheaf__reserved *of, int threads, const char *isa,
                                    size_t limit);
/* sheaf__device_plan - dry, in place of a device of `planned`: with its scratch and its layout of
 * weights. sheaf__device_open() of sheaf__dry plans for the processor. */
sheaf_status *sheaf__device_plan(sheaf__device **out, const sheaf__device_class *planned,
                                 int threads, const char *isa);
void sheaf__device_close(sheaf__device *device);

/* sheaf__memory_name - "weights", "trained weights", ... for messages and tables. */
const char *sheaf__memory_name(sheaf_memory kind);
/* sheaf__memory_key - "weights", "trained", ...: stable JSON keys; static. */
const char *sheaf__memory_key(sheaf_memory kind);

/* sheaf__device_alloc - uninitialised memory. bytes 0 gives a valid pointer. Failure
 * (limit, system) is a status that says how much was requested and in use. */
sheaf_status *sheaf__device_alloc(void **out, sheaf__device *device, size_t bytes,
                                  sheaf_memory kind);
/* sheaf__host_alloc - the same for what only the host reads and writes: of the device's memory
 * where that is the host's, so that plans have it, else of the system's. On dry not to be touched.
 */
sheaf_status *sheaf__host_alloc(void **out, sheaf__device *device, size_t bytes, sheaf_memory kind);
void sheaf__host_free(sheaf__device *device, void *block);
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
/* sheaf__host_size - the same of a block of sheaf__host_alloc(): bytes of the device's memory. */
size_t sheaf__host_size(const sheaf__device *device, const void *block, sheaf_memory *kind);

/* sheaf__device_measure - begins or ends to measure; at first none does. */
void sheaf__device_measure(sheaf__device *device, bool on);
/* sheaf__device_spent - adds to `sum` what was measured and has ended since the last call. */
void sheaf__device_spent(sheaf__device *device, sheaf__spent *sum);
/* sheaf__spending_of - of an operation's number (operations.h); SHEAF__SPENDINGS: none of them. */
sheaf__spending sheaf__spending_of(int operation);
/* Around what is done at once: the time now, to be given back; 0: nothing is measured. */
double sheaf__spend_begin(const sheaf__device *device, sheaf__spending on);
void sheaf__spend_end(sheaf__device *device, sheaf__spending on, double began);

/* ---- transfers ----
 *
 * All are after the operations before them and done on return. On a device of shared memory an
 * upload or download of a place to itself costs nothing; each counts its bytes everywhere. */

sheaf_status *sheaf__upload(sheaf__device *device, void *to, const void *from, size_t bytes);
sheaf_status *sheaf__download(sheaf__device *device, void *to, const void *from, size_t bytes);

/* sheaf__upload_rounded - n elements of the host's, of type `from`, as such of type `to`. */
sheaf_status *sheaf__upload_rounded(sheaf__device *device, void *dst, sheaf_dtype to,
                                    const void *src, sheaf_dtype from, int64_t n);

/* sheaf__borrow - device memory as the host's: where it is not, a copy, with what lies there if
 * `reads`. NULL on dry, and after a failure. sheaf__return - gives it back, and, if `writes`, what
 * the host made of it; accepts NULL. */
sheaf_status *sheaf__borrow(void *host, sheaf__device *device, const void *at, size_t bytes,
                            bool reads);
sheaf_status *sheaf__return(void *host, sheaf__device *device, void *at, size_t bytes, bool writes);

/* sheaf__host_list - the host's memory for a list that it makes and lends, to free(); NULL on dry,
 * where there may be any number: the list is not made, and sheaf__lend() counts it. */
sheaf_status *sheaf__host_list(void *out, const sheaf__device *device, size_t bytes);
/* sheaf__lend - the host's memory as the device's, for operations that read it (lists of rows):
 * where it is not, a copy. sheaf__reclaim - after those operations; accepts NULL. */
sheaf_status *sheaf__lend(void *at, sheaf__device *device, const void *host, size_t bytes);
void sheaf__reclaim(const void *at, sheaf__device *device);

/* Memory with two sides: the host fills or reads its own, operations the device's. They are one
 * where memory is shared. On dry the host's side is memory too, as what the host computes does not
 * depend on the device. */
typedef struct sheaf__mirror {
    void *host, *device;
    size_t bytes;
} sheaf__mirror;

sheaf_status *sheaf__mirror_alloc(sheaf__mirror *out, sheaf__device *device, size_t bytes,
                                  sheaf_memory kind);
/* Its first bytes. */
sheaf_status *sheaf__mirror_upload(const sheaf__mirror *mirror, sheaf__device *device,
                                   size_t bytes);
void sheaf__mirror_free(sheaf__mirror *mirror, sheaf__device *device);

/* Operations return no status: the device remembers what it could not do, and does no more of them.
 *   sheaf__device_fail - remembers `st`, if it is the first; consumes it; may be NULL.
 *   sheaf__device_check - that failure, which it forgets; NULL: all was done. Called at the end of
 *   each run of a tape and by each download, so that no result is read or written after one. */
void sheaf__device_fail(sheaf__device *device, sheaf_status *st);
sheaf_status *sheaf__device_check(sheaf__device *device);
