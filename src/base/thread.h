/* thread.h - what compute threads and waiting ranks need from the processor and
 * the kernel: the floating-point mode of the numeric contract, and sleeping
 * until a word changes. x86-64 Linux. */
#ifndef SHEAF_BASE_THREAD_H
#define SHEAF_BASE_THREAD_H

#include <immintrin.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Nearest even, all exceptions masked, denormal inputs (DAZ) and results (FTZ)
 * count as zero. Not "current mode plus two bits": what the caller's program
 * did to its rounding mode must not reach a result. */
#define SHEAF__COMPUTE_MODE 0x9fc0u

/* sheaf__compute_mode_enter - returns the mode to give back to _leave. */
static inline unsigned sheaf__compute_mode_enter(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(SHEAF__COMPUTE_MODE);
    return before;
}

static inline void sheaf__compute_mode_leave(unsigned before) { _mm_setcsr(before); }

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

#endif
