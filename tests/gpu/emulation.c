/* emulation.c - see emulation.h. */
#include "tests/gpu/emulation.h"

#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/gpu/emulation_fibres.h"

#define PAGE ((size_t)4096)
#define FENCE ((size_t)128)
#define ROUND_UP(x, by) (((x) + (by)-1) / (by) * (by))
#define SHARED ROUND_UP(SHEAF__EMU_SHARED, PAGE) /* behind it is a page that is not there */
#define STACKS (SHEAF__EMU_FIBRES * SHEAF__EMU_STACK)

typedef sheaf__emu_room room;

_Thread_local sheaf__emu_block sheaf__emu;
_Thread_local char *shared_memory;
_Thread_local sheaf__emu_room *sheaf__emu_self;
#define self sheaf__emu_self

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
    room *r = aligned_alloc(64, ROUND_UP(sizeof *r, 64));
    char *map = mmap(NULL, STACKS + PAGE + SHARED + PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r == NULL || map == MAP_FAILED)
        abort();
    r->stacks = map;
    r->shared = map + STACKS + PAGE;
    r->guarded = 0;
    mprotect(r->shared + SHARED, PAGE, PROT_NONE);
    return r;
}

static void free_room(room *r)
{
    munmap(r->stacks, STACKS + PAGE + SHARED + PAGE);
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

const sheaf__emu_kernel *sheaf__emu_at(int64_t i)
{
    return i < __stop_sheaf_kernels - __start_sheaf_kernels ? __start_sheaf_kernels[i] : NULL;
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

/* Below a block's shared memory and between its end and the page that is not there. */
static bool fences_stand(const room *r, int fill)
{
    const char *end = r->shared + SHARED;
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
    const int fill = r->launch->turned ? 0xfb : 0xff, threads = r->launch->threads;
    char *from = shared_memory - FENCE;
    memset(from, fill, (size_t)(r->shared + SHARED - from));
    memset(r->fibre, 0, (size_t)threads * sizeof *r->fibre);
    for (int w = 0; w < r->warps; w++) {
        const int lanes = threads - w * 32;
        r->warp[w].ready = lanes >= 32 ? ~UINT32_C(0) : (UINT32_C(1) << lanes) - 1;
        r->warp[w].there = 0;
        r->warp[w].at = 0;
    }
    sheaf__emu_begin();
    if (*r->text == '\0' && !fences_stand(r, fill))
        snprintf(r->text, SHEAF__EMU_TEXT,
                 "kernel %s, block %u %u %u: writes beside its shared memory",
                 r->launch->kernel->name, sheaf__emu.at.x, sheaf__emu.at.y, sheaf__emu.at.z);
}

/* What is the same for all blocks of a launch. */
static void prepare_launch(room *r)
{
    const sheaf__emu_launch *l = r->launch;
    r->warps = (l->threads + 31) / 32;
    memset(&r->barrier, 0, sizeof r->barrier);
    for (; r->guarded <= l->threads; r->guarded++)
        mprotect(r->stacks + (size_t)r->guarded * SHEAF__EMU_STACK, PAGE, PROT_NONE);
    shared_memory = r->shared + (SHARED - l->shared) / FENCE * FENCE;
    sheaf__emu = (sheaf__emu_block){ .blocks = { (uint32_t)l->blocks[0], (uint32_t)l->blocks[1],
                                                 (uint32_t)l->blocks[2] },
                                     .threads = { (uint32_t)l->threads, 1, 1 } };
}

static void run_blocks(room *r)
{
    prepare_launch(r);
    const int64_t *n = r->launch->blocks, all = n[0] * n[1] * n[2];
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
