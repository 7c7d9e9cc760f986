/* emulation.h - kernels on the processor: the names of ops/devices/gpu/kernel.h, and how a kernel
 * is run.
 *
 * Each thread of a block is a fibre. A fibre runs until it waits for others, at a barrier or where
 * the lanes of a warp do something together; then the next thread that can run does, of its own
 * warp before another. Blocks run one after the other. What a GPU leaves open is made to show:
 *
 *                        in order                          turned
 *   threads and blocks   ascending                         descending
 *   copies (copy_16)     come when they are waited for     come at once
 *   shared memory first  0xff: NaN                         0xfb: large numbers
 *
 * So a barrier or a wait that is missing gives two results that differ, or one that is wrong.
 * Shared memory ends at a page that is not there. Where no thread can go on, where lanes of a warp
 * part, or where an instruction would fault (a page that is not there, an address that is no
 * multiple), the launch fails with a text that names the kernel, the block, the thread and what it
 * waits for. Stricter than a GPU: at a barrier all threads of a block have to come, also those that
 * could have returned. Kernels of sm_90a alone (ops/devices/gpu/cuda/hopper.h) are not emulated:
 * tests/ptx.sh runs nvcc's code of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ops/math/round.h"

/* ---- how a kernel is run ---- */

typedef struct sheaf__emu_kernel {
    const char *name;
    void (*run)(const void *arguments);
    int threads;  /* of a block, at most */
    size_t bytes; /* of its arguments */
} sheaf__emu_kernel;

typedef struct sheaf__emu_launch {
    const sheaf__emu_kernel *kernel;
    const void *arguments;
    size_t bytes;
    int64_t blocks[3];
    int threads;
    size_t shared; /* bytes of dynamic shared memory */
    int group;     /* products that its tensor cores add at once: 8 or 16 (ops/matmul/mma.h) */
    bool turned;
    bool keeps_denormals; /* as no GPU should: for tests of what notices that */
} sheaf__emu_launch;

#define SHEAF__EMU_SHARED ((size_t)227 << 10) /* the most that any GPU gives a block */
#define SHEAF__EMU_THREADS 1024
#define SHEAF__EMU_ARGUMENTS 4096
#define SHEAF__EMU_TEXT 400

/* sheaf__emu_find - the kernel of a name, of all that are linked; NULL: none. */
const sheaf__emu_kernel *sheaf__emu_find(const char *name);
/* sheaf__emu_at - the kernel number i of them; NULL: there are no more. */
const sheaf__emu_kernel *sheaf__emu_at(int64_t i);
/* sheaf__emulate - runs all blocks on the calling thread; others may do the same meanwhile. false:
 * it failed, and `text` says why; what its blocks had written is left. */
bool sheaf__emulate(const sheaf__emu_launch *launch, char text[SHEAF__EMU_TEXT]);

/* ---- what kernels see of it ---- */

typedef struct sheaf__emu_dim {
    uint32_t x, y, z;
} sheaf__emu_dim;

/* What lanes of a warp do together. */
typedef enum sheaf__emu_act {
    SHEAF__EMU_SYNC,
    SHEAF__EMU_SHUFFLE,
    SHEAF__EMU_MATRICES,
    SHEAF__EMU_MMA_BF16,
    SHEAF__EMU_MMA_F16
} sheaf__emu_act;

/* What they bring to it, and find. Elements of a and b are pairs, the first in the low bits. */
typedef struct sheaf__emu_meeting {
    uint64_t slot[32];
    const char *row[32];
    uint16_t matrix[4][8][8]; /* what lay in the rows when all had come */
    uint32_t a[16][8], b[8][8];
    float c[16][8];
} sheaf__emu_meeting;

typedef struct sheaf__emu_warp {
    uint32_t ready;     /* lanes that can run */
    uint32_t there;     /* lanes that have come to the meeting */
    sheaf__emu_act act; /* of it */
    int at;             /* which of the two: lanes that came last may be at the next
                           one before the others have left */
    sheaf__emu_meeting meeting[2];
} sheaf__emu_warp;

/* The block that the calling thread of the processor runs. */
typedef struct sheaf__emu_block {
    sheaf__emu_dim at, blocks, threads;
    int now; /* the thread that runs */
} sheaf__emu_block;

extern _Thread_local sheaf__emu_block sheaf__emu;
extern _Thread_local char *shared_memory;

#define threadIdx ((sheaf__emu_dim){ (uint32_t)sheaf__emu.now, 0, 0 })
#define blockIdx sheaf__emu.at
#define gridDim sheaf__emu.blocks
#define blockDim sheaf__emu.threads

#define KERNEL(name, arguments, most)                                                              \
    static void name##_of(const arguments *a);                                                     \
    static void name##_run(const void *a)                                                          \
    {                                                                                              \
        name##_of((const arguments *)a);                                                           \
    }                                                                                              \
    static const sheaf__emu_kernel name##_kernel = { #name, name##_run, most, sizeof(arguments) }; \
    __attribute__((section("sheaf_kernels"),                                                       \
                   used)) static const sheaf__emu_kernel *const name##_listed = &name##_kernel;    \
    static void name##_of(const arguments *a)

/* The calling lane's part in the next thing its warp does together. */
sheaf__emu_meeting *sheaf__emu_come(sheaf__emu_act act);
/* Returns when all lanes have come. */
void sheaf__emu_meet(void);
/* Ends the launch. */
_Noreturn void sheaf__emu_fail(const char *what);
/* Bytes of shared memory at a multiple of `aligned`, or the launch fails: `what` says where. */
void sheaf__emu_check(const void *at, size_t bytes, size_t aligned, const char *what);

void sync_threads(void);
void copy_16(void *to, const void *from, bool there);
void copies_commit(void);
void copies_wait(int n);

static inline void sync_warp(void)
{
    sheaf__emu_come(SHEAF__EMU_SYNC);
    sheaf__emu_meet();
}

/* What lane (own ^ by) gave. */
static inline uint64_t sheaf__emu_shuffle(uint64_t bits, int by)
{
    sheaf__emu_meeting *m = sheaf__emu_come(SHEAF__EMU_SHUFFLE);
    m->slot[sheaf__emu.now % 32] = bits;
    sheaf__emu_meet();
    return m->slot[(sheaf__emu.now ^ by) % 32];
}
static inline float shuffle_xor(float x, int by)
{
    return sheaf__float((uint32_t)sheaf__emu_shuffle(sheaf__bits(x), by));
}
static inline int32_t shuffle_xor_i(int32_t x, int by)
{
    return (int32_t)(uint32_t)sheaf__emu_shuffle((uint32_t)x, by);
}
static inline double shuffle_xor_d(double x, int by)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = sheaf__emu_shuffle(bits, by);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The fragments of m16n8k16 as PTX has them: lane 4 g + t. */
static inline void sheaf__emu_mma(float *d, const uint32_t *a, const uint32_t *b,
                                  sheaf__emu_act act)
{
    sheaf__emu_meeting *m = sheaf__emu_come(act);
    const int g = sheaf__emu.now % 32 / 4, t = sheaf__emu.now % 4;
    m->a[g][t] = a[0];
    m->a[g + 8][t] = a[1];
    m->a[g][t + 4] = a[2];
    m->a[g + 8][t + 4] = a[3];
    m->b[t][g] = b[0];
    m->b[t + 4][g] = b[1];
    memcpy(&m->c[g][2 * t], d, 8);
    memcpy(&m->c[g + 8][2 * t], d + 2, 8);
    sheaf__emu_meet();
    memcpy(d, &m->c[g][2 * t], 8);
    memcpy(d + 2, &m->c[g + 8][2 * t], 8);
}
static inline void mma_bf16(float *d, const uint32_t *a, const uint32_t *b)
{
    sheaf__emu_mma(d, a, b, SHEAF__EMU_MMA_BF16);
}
static inline void mma_f16(float *d, const uint32_t *a, const uint32_t *b)
{
    sheaf__emu_mma(d, a, b, SHEAF__EMU_MMA_F16);
}

static inline const sheaf__emu_meeting *sheaf__emu_matrices(const void *row)
{
    sheaf__emu_check(row, 16, 16, "ldmatrix");
    sheaf__emu_meeting *m = sheaf__emu_come(SHEAF__EMU_MATRICES);
    m->row[sheaf__emu.now % 32] = (const char *)row;
    sheaf__emu_meet();
    return m;
}
static inline void load_matrices(uint32_t *r, const void *row)
{
    const sheaf__emu_meeting *m = sheaf__emu_matrices(row);
    const int g = sheaf__emu.now % 32 / 4, t = sheaf__emu.now % 4;
    for (int i = 0; i < 4; i++)
        r[i] = m->matrix[i][g][2 * t] | (uint32_t)m->matrix[i][g][2 * t + 1] << 16;
}
static inline void load_transposed(uint32_t *r, const void *row)
{
    const sheaf__emu_meeting *m = sheaf__emu_matrices(row);
    const int g = sheaf__emu.now % 32 / 4, t = sheaf__emu.now % 4;
    for (int i = 0; i < 4; i++)
        r[i] = m->matrix[i][2 * t][g] | (uint32_t)m->matrix[i][2 * t + 1][g] << 16;
}
