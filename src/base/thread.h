/* thread.h - what compute threads and waiting ranks need from the processor and
 * the kernel: the floating-point mode of the numeric contract, sleeping
 * until a word changes, and a stack that is large enough. Linux, on x86-64 and AArch64; other
 * processors have no mode in which denormals are zero, and sheaf__device_open() refuses them. */
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/base.h"

/* Nearest even, all exceptions masked, denormal inputs (DAZ) and results (FTZ)
 * count as zero. Not "current mode plus two bits": what the caller's program
 * did to its rounding mode must not reach a result. FPCR.FZ of AArch64 differs from DAZ and FTZ
 * where a result just below 2^-126 rounds up to it: a zero here, 2^-126 there (docs/contract.md).
 */
#ifdef __aarch64__
#define SHEAF__COMPUTE_MODE (1u << 24)
#define SHEAF__MERGE_MODE 0u
#define SHEAF__TOWARD_ZERO (3u << 22)
#else
#define SHEAF__COMPUTE_MODE 0x9fc0u
/* The same, but denormals are kept: as PyTorch merges, and bitsandbytes quantises. */
#define SHEAF__MERGE_MODE 0x1f80u
#define SHEAF__TOWARD_ZERO 0x6000u
#endif
#if defined __x86_64__ || defined __aarch64__
#define SHEAF__HAS_MODES true
#else
#define SHEAF__HAS_MODES false
#endif

static inline unsigned sheaf__mode(void)
{
#ifdef __x86_64__
    return __builtin_ia32_stmxcsr();
#elif defined __aarch64__
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return (unsigned)mode;
#else
    return 0;
#endif
}

static inline unsigned sheaf__mode_set(unsigned mode)
{
    const unsigned before = sheaf__mode();
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(mode);
#elif defined __aarch64__
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
#endif
    return before;
}

/* sheaf__compute_mode_enter - returns the mode to give back to _leave. */
static inline unsigned sheaf__compute_mode_enter(void)
{
    return sheaf__mode_set(SHEAF__COMPUTE_MODE);
}

static inline void sheaf__compute_mode_leave(unsigned before)
{
    sheaf__mode_set(before);
}

/* sheaf__pause - a hint to the processor that this thread spins. */
static inline void sheaf__pause(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* sheaf__sleep_while - sleeps while *word is `value`; may wake for no reason. */
static inline void sheaf__sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

/* sheaf__wake - wakes at most `count` sleepers on `word`. */
static inline void sheaf__wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* The stack that our functions may count on. */
#define SHEAF__STACK_BYTES ((size_t)1 << 20)

/* sheaf__thread_start - pthread_create() with a stack of at least SHEAF__STACK_BYTES: without it a
 * thread gets what `ulimit -s` says, be it 16 KB. It begins as numeric_env.h says. 0, or the
 * error's number. */
int sheaf__thread_start(pthread_t *out, void *(*run)(void *), void *context);
/* sheaf__cores - `requested` if it is above 0; else the processors that the scheduler lets the
 * process have, 1 where it does not say. */
int sheaf__cores(int requested);
