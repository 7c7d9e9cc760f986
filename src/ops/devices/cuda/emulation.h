/* emulation.h - kernels on the processor (kernel.h): each thread of a block is a fibre; they take turns
 * in a ring and change at barriers and at what a warp does together. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ops/math/round.h"

typedef struct emu_dim { int x, y, z; } emu_dim;
typedef struct emu_warp { int arrived; unsigned round; uint32_t slot[2][32]; uint32_t in[2][32][10]; float out[2][32][4]; const void *row[2][32]; } emu_warp;
typedef struct emu_copy { void *to; const void *from; int group; } emu_copy;
typedef struct emu_fibre { void *sp; bool done; int copies, group; emu_copy copy[128]; } emu_fibre; /* copies under way come late */
typedef struct emu_block {
    emu_dim group, groups; int threads, now, order, arrived, ended; unsigned round; int idle;
    emu_fibre *fibre; emu_warp *warp; void *main; const void *args; void (*body)(const void *);
} emu_block;
extern _Thread_local emu_block emu_b;
extern _Thread_local char *shared_memory;
extern int emu_groups; /* products that a tensor core adds at once: 8 or 16 */
void emu_switch(void **from, void *to);
void emu_run(void (*body)(const void *), const void *args, int gx, int gy, int gz, int threads, size_t bytes, int order);
void emu_mma(emu_warp *w, int half);
typedef struct emu_kernel { const char *name; void (*body)(const void *); int threads; struct emu_kernel *next; } emu_kernel;
extern emu_kernel *emu_kernels;

#define KERNEL(name, arguments, most) KERNEL_(name, arguments, most)
#define KERNEL_(name, arguments, most) \
    static void name##_of(const arguments *a); \
    static void name##_run(const void *a) { name##_of(a); } \
    static emu_kernel name##_kernel = { #name, name##_run, most, NULL }; \
    __attribute__((constructor)) static void name##_known(void) { name##_kernel.next = emu_kernels; emu_kernels = &name##_kernel; } \
    static void name##_of(const arguments *a)
#define threadIdx ((emu_dim){ emu_b.now, 0, 0 })
#define blockIdx emu_b.group
#define gridDim emu_b.groups
#define blockDim ((emu_dim){ emu_b.threads, 1, 1 })


static inline void emu_to(int next)
{
    const int me = emu_b.now;
    emu_b.now = next;
    emu_switch(&emu_b.fibre[me].sp, emu_b.fibre[next].sp);
}
_Noreturn static inline void emu_stuck(const char *what)
{
    fprintf(stderr, "block %d %d, thread %d: %s\n", emu_b.group.x, emu_b.group.y, emu_b.now, what);
    abort();
}
static inline void sync_threads(void)
{
    emu_block *b = &emu_b;
    const unsigned round = b->round;
    if (++b->arrived == b->threads) { b->arrived = 0; b->round++; b->idle = 0; return; }
    if (b->ended > 0) emu_stuck("a barrier that others have left without");
    do {
        if (b->idle++ > 2 * b->threads) emu_stuck("a barrier that some never reach");
        emu_to((b->now + (b->order ? b->threads - 1 : 1)) % b->threads);
    } while (b->round == round);
    b->idle = 0;
}
/* All lanes are here afterwards; true for the last one, which comes back first. */
static inline bool emu_meet(emu_warp *w)
{
    emu_block *b = &emu_b;
    const unsigned round = w->round;
    if (++w->arrived == 32) { w->arrived = 0; return true; }
    const int base = b->now / 32 * 32;
    int tries = 0;
    do {
        if (tries++ > 64) emu_stuck("a warp's lanes do not come together");
        emu_to(base + (b->now - base + (b->order ? 31 : 1)) % 32);
    } while (w->round == round);
    return false;
}
static inline emu_warp *emu_mine(void) { return &emu_b.warp[emu_b.now / 32]; }
static inline float shuffle_xor(float x, int by)
{
    emu_warp *w = emu_mine();
    const int half = w->round & 1, lane = emu_b.now % 32;
    w->slot[half][lane] = sheaf__bits(x);
    if (emu_meet(w)) w->round++;
    return sheaf__float(w->slot[half][lane ^ by]);
}
static inline int32_t shuffle_xor_i(int32_t x, int by)
{
    return (int32_t)sheaf__bits(shuffle_xor(sheaf__float((uint32_t)x), by));
}
static inline double shuffle_xor_d(double x, int by)
{
    uint32_t half[2];
    memcpy(half, &x, 8);
    for (int i = 0; i < 2; i++)
        half[i] = (uint32_t)shuffle_xor_i((int32_t)half[i], by);
    memcpy(&x, half, 8);
    return x;
}
static inline void mma_bf16(float *d, const uint32_t *a, const uint32_t *b)
{
    emu_warp *w = emu_mine();
    const int half = w->round & 1, lane = emu_b.now % 32;
    uint32_t *in = w->in[half][lane];
    memcpy(in, a, 16); memcpy(in + 4, b, 8); memcpy(in + 6, d, 16);
    if (emu_meet(w)) { emu_mma(w, half); w->round++; }
    memcpy(d, w->out[half][lane], 16);
}
static inline void load_matrices(uint32_t *r, const void *row)
{
    emu_warp *w = emu_mine();
    const int half = w->round & 1, lane = emu_b.now % 32;
    w->row[half][lane] = row;
    if (((uintptr_t)row & 15) != 0) emu_stuck("ldmatrix from an odd place");
    if (emu_meet(w)) w->round++;
    for (int i = 0; i < 4; i++) memcpy(&r[i], (const char *)w->row[half][i * 8 + lane / 4] + lane % 4 * 4, 4);
}
static inline void load_transposed(uint32_t *r, const void *row)
{
    emu_warp *w = emu_mine();
    const int half = w->round & 1, lane = emu_b.now % 32;
    w->row[half][lane] = row;
    if (((uintptr_t)row & 15) != 0) emu_stuck("ldmatrix from an odd place");
    if (emu_meet(w)) w->round++;
    for (int i = 0; i < 4; i++) {
        uint16_t e[2];
        for (int h = 0; h < 2; h++) memcpy(&e[h], (const char *)w->row[half][i * 8 + lane % 4 * 2 + h] + lane / 4 * 2, 2);
        r[i] = e[0] | (uint32_t)e[1] << 16;
    }
}
static inline void copy_16(void *to, const void *from, bool there)
{
    if ((((uintptr_t)to | (there ? (uintptr_t)from : 0)) & 15) != 0) emu_stuck("cp.async from or to an odd place");
    emu_fibre *f = &emu_b.fibre[emu_b.now];
    if (f->copies == 128) emu_stuck("more copies under way than are counted here");
    f->copy[f->copies++] = (emu_copy){ to, there ? from : NULL, f->group };
}
static inline void copies_commit(void) { emu_b.fibre[emu_b.now].group++; }
static inline void copies_wait(int n)
{
    emu_fibre *f = &emu_b.fibre[emu_b.now];
    int left = 0;
    for (int i = 0; i < f->copies; i++) {
        const emu_copy *c = &f->copy[i];
        if (c->group >= f->group - n) f->copy[left++] = *c;
        else if (c->from != NULL) memcpy(c->to, c->from, 16);
        else memset(c->to, 0, 16);
    }
    f->copies = left;
}

/* ---- a warpgroup's m64n128k16: done when it is waited for, from what shared_memory memory holds then ---- */
typedef struct emu_wide { int arrived; unsigned round; float *d[128]; uint64_t a, b; } emu_wide;
extern _Thread_local emu_wide emu_w[8];
void emu_wide_mma(emu_wide *w, bool fresh);
static inline uint64_t wide_operand(const void *at, int next_k, int next_row)
{
    const uint64_t from = (uint64_t)((const char *)at - shared_memory);
    if (from % 16 != 0 || next_k % 16 != 0 || next_row % 16 != 0 || from >= 1 << 18) emu_stuck("an operand of wgmma at an odd place");
    return from >> 4 | (uint64_t)(next_k >> 4) << 16 | (uint64_t)(next_row >> 4) << 32;
}
static inline bool emu_meet_wide(emu_wide *w)
{
    emu_block *b = &emu_b;
    const unsigned round = w->round;
    if (++w->arrived == 128) { w->arrived = 0; return true; }
    const int base = b->now / 128 * 128;
    int tries = 0;
    do {
        if (tries++ > 256) emu_stuck("a warpgroup's threads do not come together");
        emu_to(base + (b->now - base + (b->order ? 127 : 1)) % 128);
    } while (w->round == round);
    return false;
}
static inline void wide_begin(void) {}
static inline void wide_commit(void) {}
#define wide_wait(n) ((void)(n))
static inline void copies_seen(void) {}
static inline void wide_bf16(float *d, uint64_t a, uint64_t b, bool fresh)
{
    emu_wide *w = &emu_w[emu_b.now / 128];
    const int at = emu_b.now % 128;
    if (w->arrived > 0 && (w->a != a || w->b != b)) emu_stuck("threads of a warpgroup name different operands");
    w->a = a; w->b = b; w->d[at] = d;
    if (emu_meet_wide(w)) { emu_wide_mma(w, fresh); w->round++; }
}
