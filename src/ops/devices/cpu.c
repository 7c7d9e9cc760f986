/* cpu.c - the processor: its memory is the host's, and operations run as they are written. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/round_up.h"
#include "ops/device.h"
#include "ops/pool.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)
#define GROW_STEP ((size_t)32 << 20)
#define RESERVE_USUAL ((size_t)64 << 30)
#define RESERVE_LEAST ((size_t)1 << 30)

/* A mapping of mmap. */
typedef struct mapping {
    void *at;
    size_t bytes;
} mapping;

static sheaf_status *refused(size_t bytes)
{
    sheaf_status *st = sheaf__no_memory("reserving addresses for a device");
    sheaf_found(st, "%.0f MiB of addresses refused by the system", (double)bytes / (1 << 20));
    return sheaf_try_this(st, "lift the limit on address space (ulimit -v unlimited)");
}

/* Only addresses are reserved here, twice as many as the machine has memory (qemu-user keeps a
 * record of each page) and at least 64 GiB, or what a limit on them leaves. Pages become writable
 * as the mark rises (grow), so that a system that counts writable memory in advance counts only
 * used memory. */
static sheaf_status *reserve(sheaf__reserved *range, size_t limit)
{
    const long pages = sysconf(_SC_PHYS_PAGES); /* -1: not known */
    const size_t twice = pages > 0 ? 2 * (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
    size_t want = sheaf__round_up(limit != 0              ? limit
                                  : twice > RESERVE_USUAL ? twice
                                                          : RESERVE_USUAL,
                                  HUGE_PAGE);
    mapping *map = malloc(sizeof *map);
    if (map == NULL)
        return sheaf__no_memory("out of memory");
    for (;;) {
        map->bytes = want + HUGE_PAGE;
        map->at =
            mmap(NULL, map->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map->at != MAP_FAILED || limit != 0 || want <= RESERVE_LEAST)
            break;
        want /= 2;
    }
    if (map->at == MAP_FAILED) {
        free(map);
        return refused(want);
    }
    /* Aligned, so that offsets and not the luck of mmap decide which huge pages fill. */
    *range =
        (sheaf__reserved){ (char *)sheaf__round_up((uintptr_t)map->at, HUGE_PAGE), want, 0, map };
    (void)madvise(range->base, want, MADV_HUGEPAGE); /* a kernel without huge pages refuses: fine */
    return NULL;
}

static bool grow(sheaf__reserved *range, size_t mark)
{
    size_t to = sheaf__round_up(mark, GROW_STEP);
    if (to > range->capacity)
        to = range->capacity;
    char *from = range->base + range->usable;
    if (mprotect(from, to - range->usable, PROT_READ | PROT_WRITE) != 0) {
        to = sheaf__round_up(mark, HUGE_PAGE);
        if (mprotect(from, to - range->usable, PROT_READ | PROT_WRITE) != 0)
            return false;
    }
    range->usable = to;
    return true;
}

static void release(sheaf__reserved *range)
{
    mapping *map = range->own;
    munmap(map->at, map->bytes);
    free(map);
}

/* A huge page: where there are none, its small ones. */
static void touch(void *from, int64_t index, int worker)
{
    volatile char *page = (char *)from + (size_t)index * HUGE_PAGE;
    for (size_t at = 0; at < HUGE_PAGE; at += SMALL_PAGE)
        page[at] = 0;
}

static void hold(sheaf__device *device, sheaf__reserved *range, size_t from, size_t to)
{
    sheaf__pool_run(device->pool, (int64_t)((to - from) / HUGE_PAGE), touch, range->base + from);
}

const sheaf__device_class sheaf__cpu = { .name = "cpu",
                                         .shared = true,
                                         .reserve = reserve,
                                         .grow = grow,
                                         .release = release,
                                         .hold = hold };
