/* denied_memory.h - lets the n-th allocation of the process fail, whoever asks.
 *
 * Replaces malloc, calloc, realloc and the aligned ones of this program (glibc supports that), so
 * that libraries are denied too. Sanitizers bring their own; under them only what goes through the
 * hook of faults.h can be denied. Include in one file of a test. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DENIED_MEMORY_WORKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DENIED_MEMORY_WORKS 0
#endif
#endif
#ifndef DENIED_MEMORY_WORKS
#define DENIED_MEMORY_WORKS 1
#endif

static atomic_bool deny_counting;
static atomic_long deny_at;   /* the n-th fails; 0: none */
static atomic_bool deny_rest; /* and every later one; to be set after deny_begin() */
static atomic_long deny_seen; /* allocations since deny_begin() */
static atomic_long deny_live; /* blocks that were allocated and not freed since then */

static inline void deny_begin(long at)
{
    atomic_store(&deny_at, at);
    atomic_store(&deny_rest, false);
    atomic_store(&deny_seen, 0);
    atomic_store(&deny_live, 0);
    atomic_store(&deny_counting, true);
}

static inline void deny_end(void)
{
    atomic_store(&deny_counting, false);
}

#if DENIED_MEMORY_WORKS
#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static bool denied(void)
{
    if (!atomic_load(&deny_counting))
        return false;
    const long seen = atomic_fetch_add(&deny_seen, 1) + 1, at = atomic_load(&deny_at);
    const bool yes = seen == at || (at > 0 && seen > at && atomic_load(&deny_rest));
    if (yes)
        errno = ENOMEM;
    return yes;
}

static void *counted(void *block)
{
    if (block != NULL && atomic_load(&deny_counting))
        atomic_fetch_add(&deny_live, 1);
    return block;
}

SEEN_BY_LIBRARIES void *malloc(size_t size)
{
    return denied() ? NULL : counted(__libc_malloc(size));
}
SEEN_BY_LIBRARIES void *calloc(size_t count, size_t size)
{
    return denied() ? NULL : counted(__libc_calloc(count, size));
}

SEEN_BY_LIBRARIES void *aligned_alloc(size_t alignment, size_t size)
{
    return denied() ? NULL : counted(__libc_memalign(alignment, size));
}

SEEN_BY_LIBRARIES int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *block = denied() ? NULL : counted(__libc_memalign(alignment, size));
    if (block != NULL)
        *out = block;
    return block == NULL ? ENOMEM : 0;
}

SEEN_BY_LIBRARIES void *realloc(void *block, size_t size)
{
    if (denied())
        return NULL;
    void *moved = __libc_realloc(block, size);
    return block == NULL ? counted(moved) : moved;
}

SEEN_BY_LIBRARIES void free(void *block)
{
    if (block != NULL && atomic_load(&deny_counting))
        atomic_fetch_sub(&deny_live, 1);
    __libc_free(block);
}
#endif
