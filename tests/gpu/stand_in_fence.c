/* stand_in_fence.c - see stand_in_fence.h. */
#include "tests/gpu/stand_in_fence.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { RANGES = 4096 };

typedef struct range {
    uintptr_t at;
    size_t bytes;
} range;

static struct {
    pthread_mutex_t lock;
    range range[RANGES];
    int ranges, inside;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool allow(const range *r, int how)
{
    return mprotect((void *)r->at, r->bytes, how) == 0;
}

static void allow_all(int how)
{
    for (int i = 0; i < all.ranges; i++)
        (void)allow(&all.range[i], how);
}

/* What follows a range that is there makes it longer. */
bool sheaf__fence_add(uintptr_t at, size_t bytes)
{
    const range new = { at, bytes };
    (void)madvise((void *)at, bytes, MADV_HUGEPAGE); /* pages are what it costs to let in */
    pthread_mutex_lock(&all.lock);
    int i = 0;
    while (i < all.ranges && all.range[i].at + all.range[i].bytes != at)
        i++;
    const bool granted = i < RANGES && allow(&new, PROT_READ | PROT_WRITE);
    if (granted && i < all.ranges)
        all.range[i].bytes += bytes;
    else if (granted)
        all.range[all.ranges++] = new;
    if (granted && all.inside == 0)
        (void)allow(&new, PROT_NONE);
    pthread_mutex_unlock(&all.lock);
    return granted;
}

/* Its memory is the system's again. */
bool sheaf__fence_remove(uintptr_t at, size_t bytes)
{
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < all.ranges; i++)
        if (all.range[i].at <= at && at - all.range[i].at < all.range[i].bytes) {
            const size_t before = at - all.range[i].at,
                         behind = all.range[i].bytes - before - bytes;
            all.range[i].bytes = before;
            if (behind > 0 && all.ranges < RANGES)
                all.range[all.ranges++] = (range){ at + bytes, behind };
            if (before == 0)
                all.range[i] = all.range[--all.ranges];
            break;
        }
    void *was = mmap((void *)at, bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    pthread_mutex_unlock(&all.lock);
    return was != MAP_FAILED;
}

void sheaf__fence_enter(void)
{
    pthread_mutex_lock(&all.lock);
    if (all.inside++ == 0)
        allow_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&all.lock);
}

void sheaf__fence_leave(void)
{
    pthread_mutex_lock(&all.lock);
    if (--all.inside == 0)
        allow_all(PROT_NONE);
    pthread_mutex_unlock(&all.lock);
}
