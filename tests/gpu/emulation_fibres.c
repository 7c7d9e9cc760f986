/* emulation_fibres.c - threads of a block that take turns, and what they do together. */
#include "tests/gpu/emulation_fibres.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/emulation_mma.h"

#define self sheaf__emu_self

/* Keeps what a function has to keep for its caller. */
void sheaf__emu_switch(void **from, void *to);
__asm__(".text\n"
        ".globl sheaf__emu_switch\n"
        ".hidden sheaf__emu_switch\n"
        ".type sheaf__emu_switch, @function\n"
        "sheaf__emu_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    pop %rcx\n"
        "    jmp *%rcx\n"
        ".size sheaf__emu_switch, .-sheaf__emu_switch\n");

static const char *act_text(sheaf__emu_act act)
{
    static const char *const text[] = { [SHEAF__EMU_SYNC] = "sync_warp",
                                        [SHEAF__EMU_SHUFFLE] = "a shuffle",
                                        [SHEAF__EMU_MATRICES] = "ldmatrix",
                                        [SHEAF__EMU_MMA_BF16] = "mma_bf16",
                                        [SHEAF__EMU_MMA_F16] = "mma_f16" };
    return text[act];
}

_Noreturn void sheaf__emu_fail(const char *what)
{
    void *unused;
    snprintf(self->text, SHEAF__EMU_TEXT, "kernel %s, block %u %u %u, thread %d: %s",
             self->launch->kernel->name, sheaf__emu.at.x, sheaf__emu.at.y, sheaf__emu.at.z,
             sheaf__emu.now, what);
    sheaf__emu_switch(&unused, self->outside);
    abort(); /* nobody comes back */
}

/* ---- whose turn it is ---- */

static inline void become(int fibre)
{
    self->own = fibre;
    sheaf__emu.now = fibre;
}

/* No thread can go on. */
_Noreturn static void fail_stuck(void)
{
    char what[200];
    int stuck = 0;
    while (self->fibre[stuck].wait == SHEAF__EMU_NOT)
        stuck++;
    become(stuck);
    const sheaf__emu_warp *w = &self->warp[stuck / 32];
    if (self->fibre[stuck].wait == SHEAF__EMU_AT_BARRIER)
        snprintf(what, sizeof what, "waits at a barrier to which %d of %d threads come",
                 self->barrier.arrived, self->launch->threads);
    else
        snprintf(what, sizeof what, "waits at %s to which %d of 32 lanes come", act_text(w->act),
                 __builtin_popcount(w->there));
    sheaf__emu_fail(what);
}

static inline int first_of(uint32_t lanes, bool turned)
{
    return turned ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes);
}

/* A thread of another warp. */
static int next_warp(int own)
{
    const int warps = self->warps;
    const bool turned = self->launch->turned;
    for (int i = 1, w = own; i < warps; i++) {
        w = turned ? (w == 0 ? warps : w) - 1 : w + 1 == warps ? 0 : w + 1;
        if (self->warp[w].ready != 0)
            return w * 32 + first_of(self->warp[w].ready, turned);
    }
    return -1;
}

/* The thread that runs after `now`: of its warp, the next one that can or else the first; else of
 * another; -1: none can. */
static inline int next_ready(int now)
{
    const uint32_t ready = self->warp[now / 32].ready, lane = UINT32_C(1) << now % 32;
    const bool turned = self->launch->turned;
    const uint32_t behind = ready & (turned ? lane - 1 : ~(lane | (lane - 1)));
    return ready == 0 ? next_warp(now / 32)
                      : now / 32 * 32 + first_of(behind != 0 ? behind : ready, turned);
}

static void run_threads(void);

/* A stack on which run_threads() begins. Stacks would share sets of the caches but for where they
 * begin. */
static void *fresh_stack(int fibre)
{
    char *end = self->stacks + (size_t)(fibre + 1) * SHEAF__EMU_STACK - (size_t)(fibre % 8) * 512;
    void **top = (void **)(void *)end;
    *--top = NULL; /* what run_threads() would return to */
    *--top = (void *)run_threads;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    return top;
}

void sheaf__emu_leave(sheaf__emu_wait wait)
{
    const int own = self->own;
    sheaf__emu_fibre *me = &self->fibre[own];
    self->warp[own / 32].ready &= ~(UINT32_C(1) << own % 32);
    me->wait = (uint8_t)wait;
    const int next = next_ready(own);
    if (next < 0)
        fail_stuck();
    sheaf__emu_fibre *f = &self->fibre[next];
    f->wait = SHEAF__EMU_NOT;
    become(next);
    sheaf__emu_switch(&me->sp, f->sp != NULL ? f->sp : fresh_stack(next));
}

/* Threads one after the other, as long as those that come next have not begun: most kernels wait
 * for nobody. */
static void run_threads(void)
{
    void *unused;
    for (;;) {
        const int own = self->own;
        self->launch->kernel->run(self->arguments);
        self->fibre[own].ended = true;
        self->warp[own / 32].ready &= ~(UINT32_C(1) << own % 32);
        const int next = next_ready(own);
        if (next < 0)
            break;
        become(next);
        self->fibre[next].wait = SHEAF__EMU_NOT;
        if (self->fibre[next].sp != NULL)
            sheaf__emu_switch(&unused, self->fibre[next].sp);
    }
    for (int i = 0; i < self->warps * 32; i++)
        if (self->fibre[i].wait != SHEAF__EMU_NOT)
            fail_stuck();
    sheaf__emu_switch(&unused, self->outside);
    abort();
}

void sheaf__emu_begin(void)
{
    become(self->launch->turned ? self->launch->threads - 1 : 0);
    sheaf__emu_switch(&self->outside, fresh_stack(self->own));
}

/* ---- what threads do together ---- */

void sync_threads(void)
{
    sheaf__emu_barrier *b = &self->barrier;
    if (++b->arrived == self->launch->threads) {
        b->arrived = 0;
        for (int w = 0; w < self->warps; w++) {
            self->warp[w].ready |= b->waiting[w];
            b->waiting[w] = 0;
        }
        return;
    }
    b->waiting[self->own / 32] |= UINT32_C(1) << self->own % 32;
    sheaf__emu_leave(SHEAF__EMU_AT_BARRIER);
}

sheaf__emu_meeting *sheaf__emu_come(sheaf__emu_act act)
{
    sheaf__emu_warp *w = &self->warp[self->own / 32];
    if (w->there != 0 && w->act != act) {
        char what[100];
        snprintf(what, sizeof what, "is at %s, other lanes of its warp at %s", act_text(act),
                 act_text(w->act));
        sheaf__emu_fail(what);
    }
    w->act = act;
    w->there |= UINT32_C(1) << self->own % 32;
    return &w->meeting[w->at];
}

static void read_matrices(sheaf__emu_meeting *m)
{
    for (int row = 0; row < 32; row++)
        memcpy(m->matrix[row / 8][row % 8], m->row[row], 16);
}

void sheaf__emu_meet(void)
{
    sheaf__emu_warp *w = &self->warp[self->own / 32];
    sheaf__emu_meeting *m = &w->meeting[w->at];
    if (w->there != ~UINT32_C(0)) {
        sheaf__emu_leave(SHEAF__EMU_AT_MEETING);
        return;
    }
    if (w->act == SHEAF__EMU_MATRICES)
        read_matrices(m);
    else if (w->act >= SHEAF__EMU_MMA_BF16)
        sheaf__emu_mma_tile(m->c, (const uint32_t(*)[8])m->a, (const uint32_t(*)[8])m->b,
                            self->launch->group, w->act == SHEAF__EMU_MMA_F16);
    w->there = 0;
    w->at ^= 1;
    w->ready = ~UINT32_C(0);
}

/* ---- copies ---- */

void sheaf__emu_check(const void *at, size_t bytes, size_t aligned, const char *what)
{
    char text[100];
    const uintptr_t p = (uintptr_t)at, first = (uintptr_t)shared_memory;
    if (p % aligned != 0)
        snprintf(text, sizeof text, "%s: not at a multiple of %zu", what, aligned);
    else if (p < first || p + bytes > first + self->launch->shared)
        snprintf(text, sizeof text, "%s: not in shared memory", what);
    else
        return;
    sheaf__emu_fail(text);
}

static void land(const sheaf__emu_copy *c)
{
    if (c->from != NULL)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}

void copy_16(void *to, const void *from, bool there)
{
    sheaf__emu_fibre *f = &self->fibre[self->own];
    const sheaf__emu_copy c = { to, there ? from : NULL, f->group };
    sheaf__emu_check(to, 16, 16, "cp.async");
    if (((uintptr_t)c.from & 15) != 0)
        sheaf__emu_fail("cp.async: from no multiple of 16");
    if (self->launch->turned) {
        land(&c);
        return;
    }
    if (f->copies == SHEAF__EMU_COPIES)
        sheaf__emu_fail("cp.async: more copies under way than the emulation keeps");
    self->copy[self->own][f->copies++] = c;
}

void copies_commit(void)
{
    self->fibre[self->own].group++;
}

void copies_wait(int n)
{
    sheaf__emu_fibre *f = &self->fibre[self->own];
    sheaf__emu_copy *copies = self->copy[self->own];
    int16_t left = 0;
    for (int i = 0; i < f->copies; i++)
        if (copies[i].group >= f->group - n)
            copies[left++] = copies[i];
        else
            land(&copies[i]);
    f->copies = left;
}
