/* device.c - see device.h. */
#include "ops/device.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/thread.h"
#include "base/clock.h"
#include "base/round_up.h"
#include "ops/call.h"
#include "ops/space.h"

#define HUGE_PAGE ((size_t)2 << 20)

struct sheaf__range {
    sheaf__space space; /* offsets in use */
    sheaf__reserved reserved;
};

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

const char *sheaf__memory_key(sheaf_memory kind)
{
    static const char *const name[SHEAF_MEM_KINDS] = { "weights",   "trained",     "gradients",
                                                       "optimizer", "activations", "cache",
                                                       "scratch",   "exchange",    "inputs" };
    return name[kind];
}

/* ---- opening ---- */

/* Of the processor's memory: the device's own where that is the same. */
static sheaf_status *open_scratch(sheaf__device *device)
{
    sheaf_status *st = NULL;
    device->scratch = calloc((size_t)device->threads, sizeof *device->scratch);
    if (device->scratch == NULL)
        return sheaf__no_memory("out of memory");
    for (int i = 0; i < device->threads && st == NULL; i++) {
        if (device->planned->shared)
            st = sheaf__device_alloc(&device->scratch[i], device, SHEAF__THREAD_SCRATCH,
                                     SHEAF_MEM_SCRATCH);
        else if (!device->class->counts &&
                 (device->scratch[i] = aligned_alloc(4096, SHEAF__THREAD_SCRATCH)) == NULL)
            st = sheaf__no_memory("out of memory");
        if (st != NULL)
            return sheaf_in(st, "scratch of thread %d", i);
    }
    return NULL;
}

static sheaf_status *open_range(sheaf__device *device, const sheaf__reserved *of, size_t limit)
{
    struct sheaf__range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return sheaf__no_memory("out of memory");
    range->reserved = *of;
    sheaf_status *st = device->class->reserve(&range->reserved, limit);
    if (st != NULL) {
        free(range);
        return st;
    }
    sheaf__space_init(&range->space, limit != 0 ? limit : range->reserved.capacity);
    device->range = range;
    device->reserved = &range->reserved;
    return NULL;
}

static sheaf_status *open_parts(sheaf__device *device, const sheaf__reserved *of, const char *isa,
                                size_t limit)
{
    if (device->threads < 1) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "threads of a device");
        sheaf_expected(st, "1 or more");
        return sheaf_found(st, "%d", device->threads);
    }
    if (!SHEAF__HAS_MODES && !device->class->counts)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "training and inference"),
                                          "x86-64 or AArch64"),
                           "a processor without a mode in which denormals are zero, on which sheaf "
                           "inspects, plans, converts and merges");
    device->kernels = sheaf__kernels_for(isa);
    if (device->kernels == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "instruction set");
        sheaf_expected(st, "ref, avx2, avx512, avx512bf16 or amx, and a processor that has it");
        return sheaf_found(st, "%s", isa == NULL ? "none that fits this processor" : isa);
    }
    if (!device->class->counts)
        device->units = sheaf__units_for(isa);
    sheaf_status *st = open_range(device, of, limit);
    if (!device->class->counts)
        TRY(st, sheaf__pool_new(&device->pool, device->threads));
    if (device->planned->work > 0)
        TRY(st,
            sheaf__device_alloc(&device->work, device, device->planned->work, SHEAF_MEM_SCRATCH));
    return TRY(st, open_scratch(device));
}

static sheaf_status *open_as(sheaf__device **out, const sheaf__device_class *class,
                             const sheaf__device_class *planned, const sheaf__reserved *of,
                             int threads, const char *isa, size_t limit)
{
    sheaf__device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return sheaf__no_memory("out of memory");
    device->class = class;
    device->planned = planned;
    device->threads = threads;
    pthread_mutex_init(&device->copying, NULL);
    sheaf_status *st = open_parts(device, of, isa, limit);
    if (st != NULL) {
        sheaf__device_close(device);
        return st;
    }
    *out = device;
    return NULL;
}

sheaf_status *sheaf__device_open(sheaf__device **out, const sheaf__device_class *class, int threads,
                                 const char *isa, size_t limit)
{
    return sheaf__device_open_of(out, class, &(sheaf__reserved){ 0 }, threads, isa, limit);
}

sheaf_status *sheaf__device_open_of(sheaf__device **out, const sheaf__device_class *class,
                                    const sheaf__reserved *of, int threads, const char *isa,
                                    size_t limit)
{
    return open_as(out, class, class->counts ? &sheaf__cpu : class, of, threads, isa, limit);
}

sheaf_status *sheaf__device_plan(sheaf__device **out, const sheaf__device_class *planned,
                                 int threads, const char *isa)
{
    return open_as(out, &sheaf__dry, planned, &(sheaf__reserved){ 0 }, threads, isa, 0);
}

void sheaf__device_close(sheaf__device *device)
{
    if (device == NULL)
        return;
    sheaf__pool_free(device->pool);
    for (int i = 0; i < device->threads && device->scratch != NULL && !device->planned->shared; i++)
        free(device->scratch[i]);
    free(device->scratch);
    if (device->range != NULL) {
        if (device->class->release != NULL)
            device->class->release(device->reserved);
        sheaf__space_release(&device->range->space);
    }
    free(device->range);
    sheaf_status_free(sheaf__device_check(device));
    pthread_mutex_destroy(&device->copying);
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
            "ranks; sheaf plan with the same flags says what fits");
}

static void count_in(sheaf__device *device, size_t size, sheaf_memory kind, bool mark_rose)
{
    device->in_use[kind] += size;
    if (device->in_use[kind] > device->peak_of[kind])
        device->peak_of[kind] = device->in_use[kind];
    if (mark_rose) {
        device->peak = sheaf__round_up(device->range->space.mark, HUGE_PAGE);
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
    if (range->space.mark > range->reserved.usable &&
        !device->class->grow(&range->reserved, range->space.mark)) {
        int tag;
        sheaf__space_give(&range->space, begin, &tag);
        range->space.mark = mark;
        char why[256] = ", and the system to grant it";
        if (device->class->refused != NULL)
            device->class->refused(&range->reserved, why, sizeof why);
        return refuse(device, bytes, kind, why);
    }
    count_in(device, sheaf__space_size(bytes), kind, range->space.mark > mark);
    *out = range->reserved.base + begin;
    return NULL;
}

sheaf_status *sheaf__host_alloc(void **out, sheaf__device *device, size_t bytes, sheaf_memory kind)
{
    if (device->planned->shared)
        return sheaf__device_alloc(out, device, bytes, kind);
    *out = malloc(device->class->counts ? 1 : bytes + 1);
    return *out == NULL ? sheaf__no_memory(sheaf__memory_name(kind)) : NULL;
}

void sheaf__host_free(sheaf__device *device, void *block)
{
    if (device->planned->shared)
        sheaf__device_free(device, block);
    else
        free(block);
}

void sheaf__device_hold(sheaf__device *device, size_t bytes)
{
    struct sheaf__range *range = device->range;
    sheaf__reserved *of = &range->reserved;
    const size_t from = sheaf__round_up(range->space.mark, HUGE_PAGE);
    const size_t to = bytes < of->capacity ? sheaf__round_up(bytes, HUGE_PAGE) : of->capacity;
    if (device->class->hold != NULL && to > from &&
        (to <= of->usable || device->class->grow(of, to)))
        device->class->hold(device, of, from, to);
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
    const uintptr_t begin = (uintptr_t)block - (uintptr_t)device->range->reserved.base;
    const size_t size = sheaf__space_give(&device->range->space, begin, &kind);
    device->in_use[kind] -= size;
}

size_t sheaf__device_size(const sheaf__device *device, const void *block, sheaf_memory *kind)
{
    int tag = 0;
    const size_t size =
        block == NULL
            ? 0
            : sheaf__space_find(&device->range->space,
                                (uintptr_t)block - (uintptr_t)device->range->reserved.base, &tag);
    *kind = (sheaf_memory)tag;
    return size;
}

size_t sheaf__host_size(const sheaf__device *device, const void *block, sheaf_memory *kind)
{
    return sheaf__device_size(device, device->planned->shared ? block : NULL, kind);
}

/* ---- time ---- */

void sheaf__device_measure(sheaf__device *device, bool on)
{
    if (device->class->measure != NULL)
        device->class->measure(device->reserved, on);
    else
        atomic_store(&device->measures, on && !device->class->counts);
}

void sheaf__device_spent(sheaf__device *device, sheaf__spent *sum)
{
    if (device->class->spent != NULL)
        device->class->spent(device->reserved, sum);
    for (int i = 0; i < SHEAF__SPENDINGS; i++)
        sum->of[i] += atomic_exchange(&device->spent[i], 0);
}

sheaf__spending sheaf__spending_of(int operation)
{
    switch (operation) {
    case SHEAF__OP_PRODUCTS: return SHEAF__SPENT_PRODUCTS;
    case SHEAF__OP_ATTENTION:
    case SHEAF__OP_ATTENTION_BACK: return SHEAF__SPENT_ATTENTION;
    default: return SHEAF__SPENDINGS;
    }
}

double sheaf__spend_begin(const sheaf__device *device, sheaf__spending on)
{
    return on != SHEAF__SPENDINGS && atomic_load_explicit(&device->measures, memory_order_relaxed)
               ? sheaf__seconds()
               : 0;
}

void sheaf__spend_end(sheaf__device *device, sheaf__spending on, double began)
{
    if (began > 0)
        atomic_fetch_add_explicit(&device->spent[on], (uint64_t)(1e9 * (sheaf__seconds() - began)),
                                  memory_order_relaxed);
}

/* ---- transfers ---- */

sheaf_status *sheaf__upload(sheaf__device *device, void *to, const void *from, size_t bytes)
{
    atomic_fetch_add_explicit(&device->uploaded, bytes, memory_order_relaxed);
    if (bytes == 0 || device->class->counts)
        return NULL;
    if (!device->class->shared) {
        const double began = sheaf__spend_begin(device, SHEAF__SPENT_TRANSFERS);
        sheaf_status *st = device->class->upload(device->reserved, to, from, bytes);
        sheaf__spend_end(device, SHEAF__SPENT_TRANSFERS, began);
        return st;
    }
    if (to != from)
        memcpy(to, from, bytes);
    return NULL;
}

sheaf_status *sheaf__download(sheaf__device *device, void *to, const void *from, size_t bytes)
{
    atomic_fetch_add_explicit(&device->downloaded, bytes, memory_order_relaxed);
    if (bytes == 0 || device->class->counts)
        return NULL;
    sheaf_status *st = sheaf__device_check(device);
    if (st != NULL)
        return st;
    if (!device->class->shared) {
        const double began = sheaf__spend_begin(device, SHEAF__SPENT_TRANSFERS);
        st = device->class->download(device->reserved, to, from, bytes);
        sheaf__spend_end(device, SHEAF__SPENT_TRANSFERS, began);
        return st;
    }
    if (to != from)
        memcpy(to, from, bytes);
    return NULL;
}

sheaf_status *sheaf__upload_rounded(sheaf__device *device, void *dst, sheaf_dtype to,
                                    const void *src, sheaf_dtype from, int64_t n)
{
    const size_t bytes = (size_t)n * sheaf_dtype_bytes(to);
    void *rounded;
    sheaf_status *st = sheaf__borrow(&rounded, device, dst, bytes, false);
    if (rounded != NULL)
        device->kernels->convert(rounded, to, src, from, n);
    return st != NULL ? st : sheaf__return(rounded, device, dst, bytes, true);
}

/* Does `at` lie elsewhere? *from: where there. On dry nothing is moved. */
static bool is_elsewhere(const sheaf__device *device, const void *at, size_t *from)
{
    const sheaf__elsewhere *e = device->elsewhere;
    *from = e == NULL ? 0 : (uintptr_t)at - e->first;
    return e != NULL && !device->class->counts && (uintptr_t)at >= e->first && *from < e->bytes;
}

static sheaf_status *borrow_elsewhere(void *host, sheaf__device *device, size_t from, size_t bytes,
                                      bool reads)
{
    void *copy = malloc(bytes + 1);
    if (copy == NULL)
        return sheaf__no_memory("a copy of offloaded memory");
    sheaf_status *st =
        reads ? device->elsewhere->move(device->elsewhere->self, from, copy, bytes, false) : NULL;
    if (st == NULL)
        memcpy(host, &copy, sizeof copy);
    else
        free(copy);
    return st;
}

sheaf_status *sheaf__borrow(void *host, sheaf__device *device, const void *at, size_t bytes,
                            bool reads)
{
    void *copy = device->class->counts ? NULL : (void *)at;
    size_t from;
    memcpy(host, &(void *){ NULL }, sizeof copy);
    if (is_elsewhere(device, at, &from))
        return borrow_elsewhere(host, device, from, bytes, reads);
    if (!device->class->shared && bytes > 0 && (copy = malloc(bytes)) == NULL)
        return sheaf__no_memory("a copy of the device's memory");
    sheaf_status *st = reads ? sheaf__download(device, copy, at, bytes) : NULL;
    if (st == NULL)
        memcpy(host, &copy, sizeof copy);
    else if (!device->class->shared)
        free(copy);
    return st;
}

sheaf_status *sheaf__return(void *host, sheaf__device *device, void *at, size_t bytes, bool writes)
{
    size_t from;
    if (is_elsewhere(device, at, &from)) {
        const sheaf__elsewhere *e = device->elsewhere;
        sheaf_status *moved =
            host != NULL && writes ? e->move(e->self, from, host, bytes, true) : NULL;
        free(host);
        return moved;
    }
    sheaf_status *st = (host != NULL || device->class->counts) && writes
                           ? sheaf__upload(device, at, host, bytes)
                           : NULL;
    if (!device->class->shared && bytes > 0)
        free(host);
    return st;
}

sheaf_status *sheaf__host_list(void *out, const sheaf__device *device, size_t bytes)
{
    void *list = device->class->counts ? NULL : malloc(bytes + 1);
    memcpy(out, &list, sizeof list);
    return list != NULL || device->class->counts ? NULL : sheaf__no_memory("a list of rows");
}

sheaf_status *sheaf__lend(void *at, sheaf__device *device, const void *host, size_t bytes)
{
    void *copy = (void *)host;
    sheaf_status *st = NULL;
    if (!device->planned->shared) {
        copy = NULL;
        st = sheaf__device_alloc(&copy, device, bytes, SHEAF_MEM_SCRATCH);
    }
    TRY(st, sheaf__upload(device, copy, host, bytes));
    if (st != NULL)
        sheaf__reclaim(copy, device);
    else
        memcpy(at, &copy, sizeof copy);
    return st;
}

void sheaf__reclaim(const void *at, sheaf__device *device)
{
    if (!device->planned->shared)
        sheaf__device_free(device, (void *)at);
}

/* A plan may need any number of bytes: of what it does not fill nothing is taken, and NULL, where
 * there are not as many addresses, is never filled. */
static void *host_side(const sheaf__device *device, size_t bytes)
{
    if (!device->class->counts)
        return calloc(1, bytes + 1);
    void *at = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

sheaf_status *sheaf__mirror_alloc(sheaf__mirror *out, sheaf__device *device, size_t bytes,
                                  sheaf_memory kind)
{
    *out = (sheaf__mirror){ .bytes = bytes };
    sheaf_status *st = sheaf__device_alloc(&out->device, device, bytes, kind);
    out->host = out->device;
    if (st == NULL && (device->class->counts || !device->class->shared) &&
        (out->host = host_side(device, bytes)) == NULL && !device->class->counts)
        st = sheaf__no_memory("the host's side of the device's memory");
    if (st != NULL)
        sheaf__mirror_free(out, device);
    return st;
}

sheaf_status *sheaf__mirror_upload(const sheaf__mirror *m, sheaf__device *device, size_t bytes)
{
    return sheaf__upload(device, m->device, m->host, bytes);
}

void sheaf__mirror_free(sheaf__mirror *m, sheaf__device *device)
{
    if (m->host != m->device && device->class->counts && m->host != NULL)
        munmap(m->host, m->bytes + 1);
    else if (m->host != m->device)
        free(m->host);
    sheaf__device_free(device, m->device);
    *m = (sheaf__mirror){ 0 };
}

/* ---- failures ---- */

void sheaf__device_fail(sheaf__device *device, sheaf_status *st)
{
    sheaf_status *none = NULL;
    if (st != NULL && !atomic_compare_exchange_strong(&device->failed, &none, st))
        sheaf_status_free(st);
}

sheaf_status *sheaf__device_check(sheaf__device *device)
{
    return atomic_load(&device->failed) == NULL ? NULL : atomic_exchange(&device->failed, NULL);
}
