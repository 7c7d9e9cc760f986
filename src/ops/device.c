/* device.c - see device.h. */
#include "ops/device.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/base.h"
#include "ops/space.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)
#define GROW_STEP ((size_t)32 << 20)
#define RESERVE_MOST ((size_t)1 << 40)
#define RESERVE_LEAST ((size_t)1 << 30)

/* No processor maps these addresses (bits 57 to 63 are neither all 0 nor all 1): what
 * `dry` hands out faults when touched, and 64 dry ranks need not share the 128 TiB
 * that a process can reserve. */
#define DRY_BASE ((uintptr_t)1 << 60)
#define DRY_CAPACITY ((size_t)1 << 56)

struct sheaf__range {
    sheaf__space space; /* which offsets are in use */
    char *base;
    void *map; /* NULL on dry */
    size_t map_bytes;
    size_t capacity; /* reserved bytes from base */
    size_t writable; /* of these, what can be touched */
};

static size_t round_up(size_t x, size_t unit)
{
    return (x + unit - 1) / unit * unit;
}
static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static const char *const kind_names[SHEAF_MEM_KINDS] = {
    "weights",         "trained weights", "gradients",
    "optimizer state", "activations",     "key and value cache",
    "scratch",         "exchange",        "inputs",
};

const char *sheaf__memory_name(sheaf_memory kind)
{
    return kind_names[kind];
}

/* Only addresses are reserved here. Pages become writable as the mark rises (grow), so
 * that a system that counts writable memory in advance is asked for what is used. */
static sheaf_status *reserve(struct sheaf__range *range, size_t limit)
{
    size_t want = limit != 0 ? round_up(limit, HUGE_PAGE) : RESERVE_MOST;
    void *map;
    for (;;) {
        range->map_bytes = want + HUGE_PAGE;
        map = mmap(NULL, range->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
        if (map != MAP_FAILED || limit != 0 || want <= RESERVE_LEAST)
            break;
        want /= 2;
    }
    if (map == MAP_FAILED) {
        sheaf_status *st = sheaf__no_memory("reserving addresses for a device");
        sheaf_found(st, "%.0f MiB of addresses refused by the system", mib(want));
        return sheaf_try_this(st, "lift the limit on address space (ulimit -v)");
    }
    range->map = map;
    /* Aligned, so that offsets and not the luck of mmap decide which huge pages fill. */
    range->base = (char *)round_up((uintptr_t)map, HUGE_PAGE);
    range->capacity = want;
    (void)madvise(range->base, want, MADV_HUGEPAGE); /* a kernel without huge pages refuses: fine */
    return NULL;
}

/* Up to `mark` and somewhat more. */
static bool grow(struct sheaf__range *range, size_t mark)
{
    if (range->map == NULL || mark <= range->writable)
        return true;
    size_t to = round_up(mark, GROW_STEP);
    if (to > range->capacity)
        to = range->capacity;
    char *from = range->base + range->writable;
    if (mprotect(from, to - range->writable, PROT_READ | PROT_WRITE) != 0) {
        to = round_up(mark, HUGE_PAGE);
        if (mprotect(from, to - range->writable, PROT_READ | PROT_WRITE) != 0)
            return false;
    }
    range->writable = to;
    return true;
}

static sheaf_status *range_open(struct sheaf__range **out, sheaf_device_kind kind, size_t limit)
{
    struct sheaf__range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return sheaf__no_memory("out of memory");
    if (kind == SHEAF_DRY) {
        range->base = (char *)DRY_BASE;
        range->capacity = DRY_CAPACITY;
    } else {
        sheaf_status *st = reserve(range, limit);
        if (st != NULL) {
            free(range);
            return st;
        }
    }
    sheaf__space_init(&range->space, limit != 0 ? limit : range->capacity);
    *out = range;
    return NULL;
}

static void range_close(struct sheaf__range *range)
{
    if (range == NULL)
        return;
    if (range->map != NULL)
        munmap(range->map, range->map_bytes);
    sheaf__space_release(&range->space);
    free(range);
}

static sheaf_status *open_scratch(sheaf__device *device)
{
    device->scratch = calloc((size_t)device->threads, sizeof *device->scratch);
    if (device->scratch == NULL)
        return sheaf__no_memory("out of memory");
    for (int i = 0; i < device->threads; i++) {
        sheaf_status *st = sheaf__device_alloc(&device->scratch[i], device, SHEAF__THREAD_SCRATCH,
                                               SHEAF_MEM_SCRATCH);
        if (st != NULL)
            return sheaf_in(st, "scratch of thread %d", i);
        if (device->kind ==
            SHEAF_CPU) /* resident from the start: what is planned is what is used */
            memset(device->scratch[i], 0, SHEAF__THREAD_SCRATCH);
    }
    return NULL;
}

static sheaf_status *open_parts(sheaf__device *device, const char *isa, size_t limit)
{
    if (device->threads < 1) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "threads of a device");
        sheaf_expected(st, "1 or more");
        return sheaf_found(st, "%d", device->threads);
    }
#ifdef SHEAF_NO_X86
    if (device->kind == SHEAF_CPU) { /* no fast kernels, and no mode in which denormals are zero */
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "training and inference");
        sheaf_expected(st, "a build for x86-64 with AVX2 and FMA (-Disa=auto)");
        return sheaf_found(st, "one of plain C, which inspects, plans, converts and merges");
    }
#endif
    device->kernels = sheaf__kernels_for(isa);
    if (device->kernels == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "instruction set");
        sheaf_expected(st, "ref, avx2, avx512, avx512bf16 or amx, and a processor that has it");
        return sheaf_found(st, "%s", isa == NULL ? "none that fits this processor" : isa);
    }
    if (device->kind == SHEAF_CPU)
        device->units = sheaf__units_for(isa);
    sheaf_status *st = range_open(&device->range, device->kind, limit);
    if (st == NULL && device->kind == SHEAF_CPU)
        st = sheaf__pool_new(&device->pool, device->threads);
    return st != NULL ? st : open_scratch(device);
}

sheaf_status *sheaf__device_open(sheaf__device **out, sheaf_device_kind kind, int threads,
                                 const char *isa, size_t limit)
{
    sheaf__device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return sheaf__no_memory("out of memory");
    device->kind = kind;
    device->threads = threads;
    sheaf_status *st = open_parts(device, isa, limit);
    if (st != NULL) {
        sheaf__device_close(device);
        return st;
    }
    *out = device;
    return NULL;
}

void sheaf__device_close(sheaf__device *device)
{
    if (device == NULL)
        return;
    sheaf__pool_free(device->pool);
    range_close(device->range);
    free(device->scratch);
    free(device);
}

/* ---- allocation ---- */

static sheaf_status *refuse(const sheaf__device *device, size_t bytes, sheaf_memory kind,
                            const char *why)
{
    size_t sum = 0;
    int most = 0;
    for (int i = 0; i < SHEAF_MEM_KINDS; i++) {
        sum += device->in_use[i];
        if (device->in_use[i] > device->in_use[most])
            most = i;
    }
    sheaf_status *st =
        sheaf_fail(SHEAF_E_MEMORY, "allocating %.2f MiB for %s", mib(bytes), kind_names[kind]);
    sheaf_expected(st, "room in %.2f MiB%s", mib(device->range->space.capacity), why);
    sheaf_found(st, "%.2f MiB in use, %.2f MiB of it %s", mib(sum), mib(device->in_use[most]),
                kind_names[most]);
    return sheaf_try_this(
        st, "a smaller micro-batch or sequence length, recomputed activations, or more "
            "ranks; `sheaf plan` with the same flags says what fits");
}

static void count_in(sheaf__device *device, size_t size, sheaf_memory kind, bool mark_rose)
{
    device->in_use[kind] += size;
    if (device->in_use[kind] > device->peak_of[kind])
        device->peak_of[kind] = device->in_use[kind];
    if (mark_rose) {
        device->peak = round_up(device->range->space.mark, HUGE_PAGE);
        memcpy(device->at_peak, device->in_use, sizeof device->at_peak);
    }
}

sheaf_status *sheaf__device_alloc(void **out, sheaf__device *device, size_t bytes,
                                  sheaf_memory kind)
{
    assert(kind >= 0 && kind < SHEAF_MEM_KINDS);
    struct sheaf__range *range = device->range;
    const size_t mark = range->space.mark;
    size_t begin;
    switch (sheaf__space_take(&range->space, bytes, kind, &begin)) {
    case SHEAF__NO_SPACE: return refuse(device, bytes, kind, "");
    case SHEAF__NO_RECORD: return sheaf__no_memory("out of memory");
    case SHEAF__TAKEN: break;
    }
    if (!grow(range, range->space.mark)) {
        int tag;
        sheaf__space_give(&range->space, begin, &tag);
        range->space.mark = mark;
        return refuse(device, bytes, kind, ", and the system to grant it");
    }
    count_in(device, sheaf__space_size(bytes), kind, range->space.mark > mark);
    *out = range->base + begin;
    return NULL;
}

/* Huge page `index` from the one above the mark on: where there are none, its small ones. */
static void touch(void *context, int64_t index, int worker)
{
    const struct sheaf__range *range = context;
    volatile char *page =
        range->base + round_up(range->space.mark, HUGE_PAGE) + (size_t)index * HUGE_PAGE;
    (void)worker;
    for (size_t at = 0; at < HUGE_PAGE; at += SMALL_PAGE)
        page[at] = 0;
}

void sheaf__device_hold(sheaf__device *device, size_t bytes)
{
    struct sheaf__range *range = device->range;
    const size_t from = round_up(range->space.mark, HUGE_PAGE);
    const size_t to = bytes < range->capacity ? round_up(bytes, HUGE_PAGE) : range->capacity;
    if (range->map != NULL && to > from && grow(range, to))
        sheaf__pool_run(device->pool, (int64_t)((to - from) / HUGE_PAGE), touch, range);
}

size_t sheaf__device_needs(size_t bytes)
{
    return sheaf__space_size(bytes);
}

void sheaf__device_free(sheaf__device *device, void *block)
{
    if (block == NULL)
        return;
    int kind;
    const uintptr_t begin = (uintptr_t)block - (uintptr_t)device->range->base;
    const size_t size = sheaf__space_give(&device->range->space, begin, &kind);
    device->in_use[kind] -= size;
}

size_t sheaf__device_size(const sheaf__device *device, const void *block, sheaf_memory *kind)
{
    int tag = 0;
    const size_t size =
        block == NULL ? 0
                      : sheaf__space_find(&device->range->space,
                                          (uintptr_t)block - (uintptr_t)device->range->base, &tag);
    *kind = (sheaf_memory)tag;
    return size;
}
