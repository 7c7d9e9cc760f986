/* gpu.h - what the files of GPUs share (device.h, launch.h). */
#pragma once

#include "ops/call.h"
#include "ops/device.h"
#include "ops/devices/gpu/cuda/driver.h"
#include "ops/devices/gpu/launch.h"

/* Pinned memory of the host, through which all transfers go: handed out in order, a segment at a
 * time; one is used again when the copies out of it are done. */
enum { SHEAF__GPU_SEGMENTS = 4 };
#define SHEAF__GPU_SEGMENT ((size_t)4 << 20)

/* Of the device's memory, behind SHEAF__GPU_SCRATCH: what an operation stages. */
#define SHEAF__GPU_STAGE ((size_t)8 << 20)

/* At its end short lists stay: a step like the one before stages hardly any again. */
enum { SHEAF__GPU_LIST = 2048, SHEAF__GPU_LISTS = 512 };

/* Staged lists. */
typedef struct sheaf__gpu_lists {
    uint64_t operation;              /* number of the present one */
    size_t used;                     /* bytes at the beginning that are the present operation's */
    const void *work;                /* the device's memory when lists were kept, */
    char *kept;                      /* [LISTS][LIST]: the host's copies of them */
    size_t bytes[SHEAF__GPU_LISTS];  /* 0: none */
    uint64_t user[SHEAF__GPU_LISTS]; /* the last operation that read it */
} sheaf__gpu_lists;

typedef struct sheaf__gpu_ring {
    char *pinned;
    sheaf__gpu_event done[SHEAF__GPU_SEGMENTS];
    bool pending[SHEAF__GPU_SEGMENTS]; /* `done` was recorded */
    int at;                            /* the segment that is filled */
    size_t used;                       /* bytes of it */
} sheaf__gpu_ring;

/* Blocks of the GPU's memory, mapped one behind the other. */
typedef struct sheaf__gpu_mapped {
    sheaf__gpu_block block;
    size_t bytes;
} sheaf__gpu_mapped;

typedef struct sheaf__gpu_kernel {
    char name[64]; /* "": an empty place */
    sheaf__gpu_function function;
    size_t shared; /* bytes of dynamic shared memory that it is allowed */
} sheaf__gpu_kernel;

enum { SHEAF__GPU_KERNELS = 1024, SHEAF__GPU_MODULES = 64 };

enum { SHEAF__GPU_MARKS = 8, SHEAF__GPU_PEERS = 64 };

/* Events on the GPU's own clock before and after its work, in pairs; read once they have passed. */
typedef struct sheaf__gpu_pair {
    sheaf__gpu_event begin, end;
    sheaf__spending on;
} sheaf__gpu_pair;

typedef struct sheaf__gpu_clock {
    bool on, open; /* open: the last pair lacks its end */
    sheaf__gpu_pair *pair;
    int64_t made, used, capacity; /* events are made once; those behind `used` are free */
} sheaf__gpu_clock;

struct sheaf__gpu {
    const sheaf__driver *driver;
    sheaf__device *device; /* its operation runs */
    int number, handle;    /* of the GPU: as named, and the driver's */
    char name[64];
    int major, minor, processors, rdma;
    int mate[SHEAF__GPU_PEERS], mates; /* handles of the visible GPUs, if they reach each other */
    bool reaches;                      /* they do; so does the only one */
    bool hangs; /* its probe does not end: nothing waits for it again, or frees what it has */
    bool retained;
    bool wide_differs; /* wgmma is not used: it adds in another order, its products are
                        * wrong (probe*.c), SHEAF_WGMMA=off, or its kernels were not compiled */
    sheaf__gpu_context context;
    sheaf__gpu_stream stream, exchange; /* operations; and what moves beside them (peers.c) */
    sheaf__gpu_event marked[SHEAF__GPU_MARKS];
    int mark, marks; /* the oldest that is not lent yet, and how many */
    sheaf__gpu_module module[SHEAF__GPU_MODULES]; /* one for each file of kernels */
    int modules;
    pthread_mutex_t lock; /* held while something is queued */
    sheaf__gpu_address base;
    size_t capacity, granularity;
    sheaf__gpu_mapped *block;
    int64_t blocks, block_capacity;
    sheaf__gpu_error refused; /* why memory was not granted last */
    sheaf__gpu_ring ring;
    void *pinned; /* memory of the host, of exchanges between processes */
    size_t pinned_bytes;
    sheaf__gpu_lists lists;
    size_t panels; /* bytes at the end of the scratch for those of quantised weights */
    size_t kept;   /* bytes at its beginning for queries of attention's backward pass */
    sheaf__gpu_kernel kernel[SHEAF__GPU_KERNELS]; /* by a hash of the name */
    const char *last;                             /* kernel that was launched; NULL: none */
    sheaf__gpu_clock clock;
    /* By kernels of its own; and left to the processor, though there is a function for it. */
    _Atomic int64_t ran[SHEAF__OPERATIONS], declined[SHEAF__OPERATIONS];
};

/* sheaf__gpu_failed - a status for what the driver answered on this GPU, NULL for 0: where, the
 * driver's text, the kernel that was launched last, and what to try. */
sheaf_status *sheaf__gpu_failed(const sheaf__gpu *gpu, sheaf__gpu_error e, const char *what);

/* ---- stream.c: under the lock, with the context current ---- */

sheaf_status *sheaf__gpu_ring_open(sheaf__gpu *gpu);
void sheaf__gpu_ring_close(sheaf__gpu *gpu);
/* sheaf__gpu_send - queues it; `from` may change on return. */
sheaf_status *sheaf__gpu_send(sheaf__gpu *gpu, sheaf__gpu_address to, const void *from,
                              size_t bytes);
/* sheaf__gpu_fetch - done on return, after all that was queued. */
sheaf_status *sheaf__gpu_fetch(sheaf__gpu *gpu, void *to, sheaf__gpu_address from, size_t bytes);
/* sheaf__gpu_await - until `stream` has done all it was told, ten seconds at most: what a probe
 * asks takes milliseconds. Then it fails, with `remedy`, and the GPU hangs. */
sheaf_status *sheaf__gpu_await(sheaf__gpu *gpu, sheaf__gpu_stream stream, const char *remedy);

/* ---- peers.c ---- */

sheaf_status *sheaf__gpu_peers_open(sheaf__gpu *gpu);
void sheaf__gpu_peers_close(sheaf__gpu *gpu);

extern const sheaf__peers sheaf__gpu_peers;
/* sheaf__gpu_mates - fills `mate`: those that `range` names, or all GPUs that the process sees;
 * where two of them do not reach each other's memory, or SHEAF_PEERS=off, this one alone. */
sheaf_status *sheaf__gpu_mates(sheaf__gpu *gpu, const sheaf__reserved *range);

/* sheaf__gpu_queue - a launch (launch.h), whose failure is returned. */
sheaf_status *sheaf__gpu_queue(sheaf__gpu *gpu, const sheaf__launch *launch);

/* ---- clock.c: under the lock, with the context current ---- */

/* sheaf__gpu_clock_begin, _end - around what is queued. In a pair that is open no other begins:
 * false, and there is nothing to end. What the driver refuses ends all measuring. */
bool sheaf__gpu_clock_begin(sheaf__gpu *gpu, sheaf__spending on);
void sheaf__gpu_clock_end(sheaf__gpu *gpu, bool began);
void sheaf__gpu_clock_close(sheaf__gpu *gpu);
/* Of the class; they take the lock. */
void sheaf__gpu_measure(sheaf__reserved *range, bool on);
void sheaf__gpu_spent(sheaf__reserved *range, sheaf__spent *sum);

/* ---- probe.c, probe_products.c, probe_peers.c ---- */

/* sheaf__gpu_probe - does it compute as a processor does? In its first granule of memory. */
sheaf_status *sheaf__gpu_probe(sheaf__gpu *gpu);
/* sheaf__gpu_probe_products - are those by wgmma right? Else it has none. */
sheaf_status *sheaf__gpu_probe_products(sheaf__gpu *gpu);
/* sheaf__gpu_probe_peers - is its mates' memory right? In its first granule of memory. */
sheaf_status *sheaf__gpu_probe_peers(sheaf__gpu *gpu);

/* ---- image.c ---- */

/* sheaf__gpu_load - the kernels for a GPU, out of sheaf-cuda.so (cubins.h). */
sheaf_status *sheaf__gpu_load(sheaf__gpu *gpu);
/* That of a stand-in driver. */
const void *sheaf__stand_in_image(int major, int minor) __attribute__((weak));

/* ---- for tests ---- */

/* How often a device of `cuda` ran an operation by kernels of its own; and how often it left one to
 * the processor. */
int64_t sheaf__gpu_ran(const sheaf__device *device, sheaf__operation operation);
int64_t sheaf__gpu_declined(const sheaf__device *device, sheaf__operation operation);
