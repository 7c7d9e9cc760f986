/* far_mover.h - a mover whose memory has addresses that fault: the processor's, with one bit more.
 * It copies no earlier than it is waited for. */
#pragma once

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/combining.h"
#include "base/thread.h"

typedef struct far_memory {
    int lent, waited, moved, placed, abandoned; /* calls */
    int fails_at;                               /* the n-th place; 0: none */
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copy[64]; /* to be made */
    int copies;
    void *pinned; /* free() it at the end */
    size_t bytes;
} far_memory;

#define FAR ((uintptr_t)1 << 62)

static inline void *far_of(const void *at)
{
    return (void *)((uintptr_t)at | FAR);
}
static inline void *near_of(const void *at)
{
    return (void *)((uintptr_t)at & ~FAR);
}

static inline sheaf_status *far_lend(void *self)
{
    ((far_memory *)self)->lent++;
    return NULL;
}

static inline void far_do(far_memory *f)
{
    for (int i = 0; i < f->copies; i++)
        memcpy(near_of(f->copy[i].to), near_of(f->copy[i].from), f->copy[i].bytes);
    f->copies = 0;
}

static inline sheaf_status *far_wait(void *self)
{
    far_memory *f = self;
    f->waited++;
    far_do(f);
    return NULL;
}

static inline sheaf_status *far_copy(void *self, void *to, const void *from, size_t bytes)
{
    far_memory *f = self;
    if (f->copies == (int)(sizeof f->copy / sizeof *f->copy))
        far_do(f);
    f->copy[f->copies].to = to;
    f->copy[f->copies].from = from;
    f->copy[f->copies++].bytes = bytes;
    f->moved++;
    return NULL;
}

static inline sheaf_status *far_combine(void *self, const sheaf__combining *c)
{
    far_do(self);
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t i = c->begin; i < c->end; i++) {
        float slot[SHEAF__COMBINING_SLOTS + 1], *whole = &slot[SHEAF__COMBINING_SLOTS];
        memset(slot, 0, sizeof slot);
        if (c->operands > 0)
            memcpy(whole, (float *)near_of(c->operand[0]) + i, sizeof *whole);
        for (int s = 0; s < c->steps; s++) {
            const sheaf__combining_step *step = &c->step[s];
            const float *a = step->a < 0 ? &slot[~step->a]
                                         : (float *)near_of(c->operand[step->a]) + i,
                        *b = step->b < 0 ? &slot[~step->b]
                                         : (float *)near_of(c->operand[step->b]) + i;
            slot[~step->to] = *a + *b;
        }
        for (int r = 0; r < c->ranks; r++)
            memcpy((float *)near_of(c->out[r]) + i, whole, sizeof *whole);
    }
    sheaf__compute_mode_leave(mode);
    ((far_memory *)self)->moved++;
    return NULL;
}

static inline void far_release(far_memory *f)
{
    if (f->bytes > 0)
        munmap(f->pinned, f->bytes);
}

static inline sheaf_status *far_pinned(void **out, void *self, size_t bytes)
{
    far_memory *f = self;
    if (bytes > f->bytes) {
        far_release(f);
        f->pinned = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        f->bytes = bytes;
    }
    *out = f->pinned;
    return NULL;
}

static inline sheaf_status *far_place(void *self, void *to, const void *from, size_t bytes)
{
    far_memory *f = self;
    if (++f->placed == f->fails_at)
        return sheaf_fail(SHEAF_E_IO, "place %d", f->placed);
    return far_copy(self, to, from, bytes);
}

static inline void far_abandon(void *self)
{
    ((far_memory *)self)->abandoned++;
}

static const sheaf__mover far_mover = { far_lend, far_wait,  far_copy,   far_combine,
                                        far_copy, far_place, far_pinned, far_abandon };
