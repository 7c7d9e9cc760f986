/* thread.h - what compute threads and waiting ranks need from the processor and
 * the kernel: the floating-point mode of the numeric contract, sleeping
 * until a word changes, and a stack that is large enough. Linux; without x86 there is no mode to
 * set, and nothing there computes by the contract (sheaf__device_open() refuses). */
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef SHEAF_NO_X86
#include <immintrin.h>
#endif

#include "base/base.h"

/* Nearest even, all exceptions masked, denormal inputs (DAZ) and results (FTZ)
 * count as zero. Not "current mode plus two bits": what the caller's program
 * did to its rounding mode must not reach a result. */
#define SHEAF__COMPUTE_MODE 0x9fc0u
/* The same, but denormals are kept: as PyTorch merges, and bitsandbytes quantises. */
#define SHEAF__MERGE_MODE 0x1f80u

static inline unsigned sheaf__mode_set(unsigned mode)
{
#ifdef SHEAF_NO_X86
    return mode;
#else
    const unsigned before = _mm_getcsr();
    _mm_setcsr(mode);
    return before;
#endif
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
#ifndef SHEAF_NO_X86
    _mm_pause();
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
