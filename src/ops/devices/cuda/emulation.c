/* emulation.c - see emulation.h. */
#include "ops/devices/cuda/emulation.h"

#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ops/devices/cuda/emulation_mma.h"

#define PAGE ((size_t)4096)
#define STACK                                                                                      \
    (17 * PAGE) /* a page that is not there, and what it guards; no power of two, which            \
                   would share few sets of the caches */
#define FENCE ((size_t)128)
#define WARPS (SHEAF__EMU_THREADS / 32)
#define COPIES 128 /* under way in a thread */
#define ROUND_UP(x, by) (((x) + (by)-1) / (by) * (by))

typedef enum wait_of { NOTHING, BARRIER, MEETING } wait_of; /* NOTHING is 0 */

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    int group;
} copy;

typedef struct fibre {
    void *sp; /* NULL: has not begun */
    wait_of wait;
    bool ended;
    int16_t copies; /* under way */
    int group;      /* that the next ones belong to */
} fibre;

/* What one thread of the processor needs to run blocks; kept, as fresh pages cost more than most
 * kernels. */
typedef struct room {
    char *stacks, *shared;
    char fault_stack[32 << 10]; /* a fibre's may have no room */
    fibre fibre[SHEAF__EMU_THREADS];
    copy copy[SHEAF__EMU_THREADS][COPIES];
    sheaf__emu_warp warp[WARPS];
    uint32_t waiting[WARPS]; /* at the barrier */
    int arrived;             /* at it */
    void *outside;
    const sheaf__emu_launch *launch;
    _Alignas(64) char arguments[SHEAF__EMU_ARGUMENTS];
    char *text;
} room;

_Thread_local sheaf__emu_block sheaf__emu;
_Thread_local char *shared_memory;
static _Thread_local room *self;

/* ---- fibres ---- */

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

/* No thread can go on. */
_Noreturn static void fail_stuck(void)
{
    char what[200];
    int stuck = 0;
    while (self->fibre[stuck].wait == NOTHING)
        stuck++;
    sheaf__emu.now = stuck;
    const sheaf__emu_warp *w = &self->warp[stuck / 32];
    if (self->fibre[stuck].wait == BARRIER)
        snprintf(what, sizeof what, "waits at a barrier to which %d of %d threads come",
                 self->arrived, self->launch->threads);
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
    const int warps = (self->launch->threads + 31) / 32;
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
    if (ready == 0)
        return next_warp(now / 32);
    return now / 32 * 32 + first_of(behind != 0 ? behind : ready, turned);
}

static void run_threads(void);

/* A stack on which run_threads() begins with the thread `now`. */
static void *fresh_stack(int thread)
{
    char *end = self->stacks + (size_t)(thread + 1) * STACK - (size_t)(thread % 8) * 512;
    void **top = (void **)(void *)end;
    *--top = NULL; /* what run_threads() would return to */
    *--top = (void *)run_threads;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    return top;
}

/* Another thread runs until this one can. */
static void leave(wait_of wait)
{
    fibre *me = &self->fibre[sheaf__emu.now];
    me->wait = wait;
    const int next = next_ready(sheaf__emu.now);
    if (next < 0)
        fail_stuck();
    fibre *f = &self->fibre[next];
    sheaf__emu.now = next;
    f->wait = NOTHING;
    sheaf__emu_switch(&me->sp, f->sp != NULL ? f->sp : fresh_stack(next));
}

/* Threads one after the other, as long as those that come next have not begun: most kernels wait
 * for nobody. */
static void run_threads(void)
{
    void *unused;
    for (;;) {
        const int now = sheaf__emu.now;
        self->launch->kernel->run(self->arguments);
        self->fibre[now].ended = true;
        self->warp[now / 32].ready &= ~(UINT32_C(1) << now % 32);
        const int next = next_ready(now);
        if (next < 0)
            break;
        sheaf__emu.now = next;
        self->fibre[next].wait = NOTHING;
        if (self->fibre[next].sp != NULL)
            sheaf__emu_switch(&unused, self->fibre[next].sp);
    }
    for (int i = 0; i < self->launch->threads; i++)
        if (!self->fibre[i].ended)
            fail_stuck();
    sheaf__emu_switch(&unused, self->outside);
    abort();
}

/* ---- what threads do together ---- */

void sync_threads(void)
{
    const int warps = (self->launch->threads + 31) / 32, now = sheaf__emu.now;
    if (++self->arrived == self->launch->threads) {
        self->arrived = 0;
        for (int w = 0; w < warps; w++) {
            self->warp[w].ready |= self->waiting[w];
            self->waiting[w] = 0;
        }
        return;
    }
    self->waiting[now / 32] |= UINT32_C(1) << now % 32;
    self->warp[now / 32].ready &= ~(UINT32_C(1) << now % 32);
    leave(BARRIER);
}

sheaf__emu_meeting *sheaf__emu_come(sheaf__emu_act act)
{
    sheaf__emu_warp *w = &self->warp[sheaf__emu.now / 32];
    if (w->there != 0 && w->act != act) {
        char what[100];
        snprintf(what, sizeof what, "is at %s, other lanes of its warp at %s", act_text(act),
                 act_text(w->act));
        sheaf__emu_fail(what);
    }
    w->act = act;
    w->there |= UINT32_C(1) << sheaf__emu.now % 32;
    return &w->meeting[w->at];
}

static void read_matrices(sheaf__emu_meeting *m)
{
    for (int row = 0; row < 32; row++)
        memcpy(m->matrix[row / 8][row % 8], m->row[row], 16);
}

void sheaf__emu_meet(void)
{
    sheaf__emu_warp *w = &self->warp[sheaf__emu.now / 32];
    sheaf__emu_meeting *m = &w->meeting[w->at];
    if (w->there != ~UINT32_C(0)) {
        w->ready &= ~(UINT32_C(1) << sheaf__emu.now % 32);
        leave(MEETING);
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

static void land(const copy *c)
{
    if (c->from != NULL)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}

void copy_16(void *to, const void *from, bool there)
{
    fibre *f = &self->fibre[sheaf__emu.now];
    const copy c = { to, there ? from : NULL, f->group };
    sheaf__emu_check(to, 16, 16, "cp.async");
    if (((uintptr_t)c.from & 15) != 0)
        sheaf__emu_fail("cp.async: from no multiple of 16");
    if (self->launch->turned) {
        land(&c);
        return;
    }
    if (f->copies == COPIES)
        sheaf__emu_fail("cp.async: more copies under way than the emulation keeps");
    self->copy[sheaf__emu.now][f->copies++] = c;
}

void copies_commit(void)
{
    self->fibre[sheaf__emu.now].group++;
}

void copies_wait(int n)
{
    fibre *f = &self->fibre[sheaf__emu.now];
    copy *copies = self->copy[sheaf__emu.now];
    int16_t left = 0;
    for (int i = 0; i < f->copies; i++)
        if (copies[i].group >= f->group - n)
            copies[left++] = copies[i];
        else
            land(&copies[i]);
    f->copies = left;
}

/* ---- pages that are not there ---- */

static struct sigaction before[2];

/* Of a kernel: its launch fails. Else the fault is as if this were not here. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct sigaction *old = &before[number == SIGBUS];
    char what[100];
    if (self != NULL) {
        if (info->si_code == SI_KERNEL) /* a general protection fault has no address */
            snprintf(what, sizeof what, "an access at no multiple of its size, or at no address");
        else
            snprintf(what, sizeof what, "touches %p, where it has no memory", info->si_addr);
        sheaf__emu_fail(what);
    }
    if ((old->sa_flags & SA_SIGINFO) != 0)
        old->sa_sigaction(number, info, context);
    else if (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN)
        sigaction(number, old, NULL); /* comes again */
    else
        old->sa_handler(number);
}

/* While some launch runs: what the program does with faults otherwise is its own business. */
static void catch_faults(bool on)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int launches;
    struct sigaction how = { .sa_sigaction = on_fault,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
    sigemptyset(&how.sa_mask);
    pthread_mutex_lock(&mutex);
    if (on && launches++ == 0) {
        sigaction(SIGSEGV, &how, &before[0]);
        sigaction(SIGBUS, &how, &before[1]);
    } else if (!on && --launches == 0) {
        sigaction(SIGSEGV, &before[0], NULL);
        sigaction(SIGBUS, &before[1], NULL);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- launches ---- */

/* Rooms that nobody uses. */
static room *_Atomic rooms[16];

static room *new_room(void)
{
    const size_t stacks = SHEAF__EMU_THREADS * STACK, shared = ROUND_UP(SHEAF__EMU_SHARED, PAGE);
    room *r = aligned_alloc(64, ROUND_UP(sizeof *r, 64));
    char *map = mmap(NULL, stacks + PAGE + shared + PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r == NULL || map == MAP_FAILED)
        abort();
    r->stacks = map;
    r->shared = map + stacks + PAGE;
    for (int i = 0; i <= SHEAF__EMU_THREADS; i++)
        mprotect(map + (size_t)i * STACK, PAGE, PROT_NONE);
    mprotect(r->shared + shared, PAGE, PROT_NONE);
    return r;
}

static void free_room(room *r)
{
    munmap(r->stacks, SHEAF__EMU_THREADS * STACK + 2 * PAGE + ROUND_UP(SHEAF__EMU_SHARED, PAGE));
    free(r);
}

static room *take_room(void)
{
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        room *r = atomic_exchange(&rooms[i], NULL);
        if (r != NULL)
            return r;
    }
    return new_room();
}

static void give_room(room *r)
{
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        room *none = NULL;
        if (atomic_compare_exchange_strong(&rooms[i], &none, r))
            return;
    }
    free_room(r);
}

__attribute__((destructor)) static void free_rooms(void)
{
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        room *r = atomic_exchange(&rooms[i], NULL);
        if (r != NULL)
            free_room(r);
    }
}

extern const sheaf__emu_kernel *const __start_sheaf_kernels[] __attribute__((weak));
extern const sheaf__emu_kernel *const __stop_sheaf_kernels[] __attribute__((weak));

const sheaf__emu_kernel *sheaf__emu_find(const char *name)
{
    for (const sheaf__emu_kernel *const *k = __start_sheaf_kernels; k != __stop_sheaf_kernels; k++)
        if (strcmp((*k)->name, name) == 0)
            return *k;
    return NULL;
}

/* What is wrong with a launch itself; NULL: nothing. */
static const char *wrong(const sheaf__emu_launch *l)
{
    for (int i = 0; i < 3; i++)
        if (l->blocks[i] < 1 || l->blocks[i] > (i == 0 ? INT32_MAX : 65535))
            return "no such number of blocks";
    return l->threads < 1 || l->threads > l->kernel->threads || l->threads > SHEAF__EMU_THREADS
               ? "more threads than its block may have, or none"
           : l->bytes != l->kernel->bytes    ? "its arguments have another size"
           : l->bytes > SHEAF__EMU_ARGUMENTS ? "its arguments are too large"
           : l->shared > SHEAF__EMU_SHARED   ? "more shared memory than there is"
                                             : NULL;
}

/* Below shared memory and between its end and the page that is not there. */
static bool fences_stand(const room *r, int fill)
{
    const char *end = r->shared + ROUND_UP(SHEAF__EMU_SHARED, PAGE);
    for (const char *p = shared_memory - FENCE; p < shared_memory; p++)
        if (*p != (char)fill)
            return false;
    for (const char *p = shared_memory + r->launch->shared; p < end; p++)
        if (*p != (char)fill)
            return false;
    return true;
}

static void run_block(room *r)
{
    const sheaf__emu_launch *l = r->launch;
    const int fill = l->turned ? 0xfb : 0xff;
    char *from = shared_memory - FENCE;
    memset(from, fill, (size_t)(r->shared + ROUND_UP(SHEAF__EMU_SHARED, PAGE) - from));
    r->arrived = 0;
    memset(r->fibre, 0, (size_t)l->threads * sizeof *r->fibre);
    for (int w = 0; w * 32 < l->threads; w++) {
        const int lanes = l->threads - w * 32;
        r->warp[w].ready = lanes >= 32 ? ~UINT32_C(0) : (UINT32_C(1) << lanes) - 1;
        r->warp[w].there = 0;
        r->warp[w].at = 0;
        r->waiting[w] = 0;
    }
    sheaf__emu.now = l->turned ? l->threads - 1 : 0;
    sheaf__emu_switch(&r->outside, fresh_stack(sheaf__emu.now));
    if (*r->text == '\0' && !fences_stand(r, fill))
        snprintf(r->text, SHEAF__EMU_TEXT,
                 "kernel %s, block %u %u %u: writes beside its shared memory", l->kernel->name,
                 sheaf__emu.at.x, sheaf__emu.at.y, sheaf__emu.at.z);
}

static void run_blocks(room *r)
{
    const int64_t *n = r->launch->blocks, all = n[0] * n[1] * n[2];
    const size_t end = ROUND_UP(SHEAF__EMU_SHARED, PAGE);
    shared_memory = r->shared + (end - r->launch->shared) / FENCE * FENCE;
    sheaf__emu = (sheaf__emu_block){ .blocks = { (uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2] },
                                     .threads = { (uint32_t)r->launch->threads, 1, 1 },
                                     .warp = r->warp };
    for (int64_t i = 0; i < all && *r->text == '\0'; i++) {
        const int64_t b = r->launch->turned ? all - 1 - i : i;
        sheaf__emu.at = (sheaf__emu_dim){ (uint32_t)(b % n[0]), (uint32_t)(b / n[0] % n[1]),
                                          (uint32_t)(b / n[0] / n[1]) };
        run_block(r);
    }
}

/* Runs them with what the processor then has: denormals that are zero, as kernels are compiled, and
 * a stack for faults. */
static void run_in_mode(room *r)
{
    const stack_t stack = { .ss_sp = r->fault_stack, .ss_size = sizeof r->fault_stack };
    stack_t old;
    const unsigned mode = _mm_getcsr();
    catch_faults(true);
    sigaltstack(&stack, &old);
    _mm_setcsr(r->launch->keeps_denormals ? 0x1f80 : 0x9fc0);
    self = r;
    run_blocks(r);
    self = NULL;
    _mm_setcsr(mode);
    sigaltstack(&old, NULL);
    catch_faults(false);
}

bool sheaf__emulate(const sheaf__emu_launch *launch, char text[SHEAF__EMU_TEXT])
{
    const char *why = wrong(launch);
    *text = '\0';
    if (why != NULL) {
        snprintf(text, SHEAF__EMU_TEXT, "kernel %s: %s", launch->kernel->name, why);
        return false;
    }
    room *r = take_room();
    r->launch = launch;
    r->text = text;
    memcpy(r->arguments, launch->arguments, launch->bytes);
    run_in_mode(r);
    give_room(r);
    return *text == '\0';
}
