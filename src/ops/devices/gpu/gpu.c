/* gpu.c - the class `cuda`: opening a GPU, its memory, and its part of sheaf__device_class. */
#include "ops/devices/gpu/gpu.h"

#include <stdatomic.h>

#include "base/base.h"
#include "base/round_up.h"

/* ---- opening ---- */

/* Reads the GPU's name and limits, and checks them. */
static sheaf_status *look(sheaf__gpu *gpu)
{
    const sheaf__driver *d = gpu->driver;
    int can_map = 0, most_shared = 0;
    sheaf__gpu_error e = d->device(&gpu->handle, gpu->number);
    SHEAF__GPU_TRY(e, d->name(gpu->name, sizeof gpu->name, gpu->handle));
    SHEAF__GPU_TRY(e, d->attribute(&gpu->major, SHEAF__GPU_MAJOR, gpu->handle));
    SHEAF__GPU_TRY(e, d->attribute(&gpu->minor, SHEAF__GPU_MINOR, gpu->handle));
    SHEAF__GPU_TRY(e, d->attribute(&gpu->processors, SHEAF__GPU_PROCESSORS, gpu->handle));
    SHEAF__GPU_TRY(e, d->attribute(&can_map, SHEAF__GPU_CAN_MAP, gpu->handle));
    SHEAF__GPU_TRY(e, d->attribute(&most_shared, SHEAF__GPU_MOST_SHARED, gpu->handle));
    if (e != 0)
        return sheaf__gpu_failed(gpu, e, "looking at it");
    if (d->attribute(&gpu->rdma, SHEAF__GPU_CAN_RDMA, gpu->handle) != 0)
        gpu->rdma = 0; /* of a driver that does not know it */
    if (gpu->major < 8 || !can_map || (size_t)most_shared < SHEAF__GPU_SHARED) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "GPU %d (%s)", gpu->number, gpu->name);
        sheaf_expected(st,
                       "compute capability 8.0 or later (Ampere), with memory that can be mapped "
                       "into reserved addresses");
        sheaf_found(st, "%d.%d%s", gpu->major, gpu->minor, can_map ? "" : ", without such memory");
        return sheaf_try_this(st, "another GPU (`device cuda:N`), or `device cpu`");
    }
    return NULL;
}

static sheaf__gpu_memory memory_of(const sheaf__gpu *gpu)
{
    return (
        sheaf__gpu_memory){ .type = 1, .place = { 1, gpu->handle }, .flags.rdma = gpu->rdma != 0 };
}

/* Addresses for all the memory that the GPU has: no rank can use more. */
static sheaf_status *reserve_addresses(sheaf__gpu *gpu, size_t limit)
{
    const sheaf__driver *d = gpu->driver;
    const sheaf__gpu_memory memory = memory_of(gpu);
    size_t all = 0;
    sheaf__gpu_error e = d->granularity(&gpu->granularity, &memory, 0);
    SHEAF__GPU_TRY(e, d->memory_size(&all, gpu->handle));
    if (e != 0)
        return sheaf__gpu_failed(gpu, e, "the size of its memory");
    gpu->capacity = sheaf__round_up(limit != 0 && limit < all ? limit : all, gpu->granularity);
    e = d->reserve(&gpu->base, gpu->capacity, (size_t)2 << 20, 0, 0);
    return sheaf__gpu_failed(gpu, e, "reserving addresses for its memory");
}

static sheaf_status *open_gpu(sheaf__gpu *gpu, const sheaf__reserved *range, size_t limit)
{
    sheaf_status *st = sheaf__driver_get(&gpu->driver);
    TRY(st, look(gpu));
    TRY(st, sheaf__gpu_mates(gpu, range));
    if (st != NULL)
        return st;
    sheaf__gpu_error e = gpu->driver->retain(&gpu->context, gpu->handle);
    if (e != 0)
        return sheaf__gpu_failed(gpu, e, "opening it");
    gpu->retained = true;
    if ((e = gpu->driver->set_context(gpu->context)) == 0)
        e = gpu->driver->stream_new(&gpu->stream, SHEAF__GPU_OWN_ORDER, 0);
    st = sheaf__gpu_failed(gpu, e, "opening a stream");
    TRY(st, sheaf__gpu_peers_open(gpu));
    TRY(st, sheaf__gpu_load(gpu));
    TRY(st, sheaf__gpu_ring_open(gpu));
    return TRY(st, reserve_addresses(gpu, limit));
}

/* Failures do not matter: the GPU is lost, and the driver frees all with the process, as it does of
 * one that hangs, or that an MPI may still write to. */
static void close_gpu(sheaf__gpu *gpu)
{
    const sheaf__driver *d = gpu->driver;
    gpu->retained = gpu->retained && !gpu->hangs;
    if (gpu->retained && d->set_context(gpu->context) == 0) {
        size_t end = 0;
        if (gpu->stream != NULL)
            (void)d->stream_finish(gpu->stream);
        if (gpu->exchange != NULL)
            (void)d->stream_finish(gpu->exchange);
        sheaf__gpu_peers_close(gpu);
        for (int64_t i = 0; i < gpu->blocks; i++) {
            (void)d->unmap(gpu->base + end, gpu->block[i].bytes);
            (void)d->destroy(gpu->block[i].block);
            end += gpu->block[i].bytes;
        }
        if (gpu->base != 0)
            (void)d->unreserve(gpu->base, gpu->capacity);
        sheaf__gpu_ring_close(gpu);
        sheaf__gpu_clock_close(gpu);
        for (int i = 0; i < gpu->modules; i++)
            (void)d->module_free(gpu->module[i]);
        if (gpu->stream != NULL)
            (void)d->stream_free(gpu->stream);
        (void)d->set_context(NULL);
    }
    if (gpu->retained)
        (void)d->give_back(gpu->handle);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu->block);
    free(gpu->lists.kept);
    free(gpu);
}

/* One more block of memory, behind those that are mapped. */
static sheaf__gpu_error add_block(sheaf__gpu *gpu, size_t from, size_t bytes)
{
    const sheaf__driver *d = gpu->driver;
    const sheaf__gpu_memory memory = memory_of(gpu);
    sheaf__gpu_access access[SHEAF__GPU_PEERS];
    for (int i = 0; i < gpu->mates; i++)
        access[i] = (sheaf__gpu_access){ { 1, gpu->mate[i] }, SHEAF__GPU_READ_WRITE };
    sheaf__gpu_block block;
    if (!SHEAF_GROW(&gpu->block, &gpu->block_capacity, gpu->blocks + 1))
        return SHEAF__GPU_NO_MEMORY;
    sheaf__gpu_error e = d->create(&block, bytes, &memory, 0);
    if (e != 0)
        return e;
    if ((e = d->map(gpu->base + from, bytes, 0, block, 0)) == 0 &&
        (e = d->allow(gpu->base + from, bytes, access, (size_t)gpu->mates)) != 0)
        (void)d->unmap(gpu->base + from, bytes);
    if (e != 0)
        (void)d->destroy(block);
    else
        gpu->block[gpu->blocks++] = (sheaf__gpu_mapped){ block, bytes };
    return e;
}

/* ---- the class ---- */

static sheaf_status *reserve(sheaf__reserved *range, size_t limit)
{
    sheaf__gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL)
        return sheaf__no_memory("a GPU");
    gpu->number = range->unit;
    gpu->panels = gpu->kept = SHEAF__GPU_SCRATCH / 2;
    snprintf(gpu->name, sizeof gpu->name, "unknown");
    pthread_mutex_init(&gpu->lock, NULL);
    const char *wgmma = getenv("SHEAF_WGMMA");
    gpu->wide_differs = wgmma != NULL && strcmp(wgmma, "off") == 0;
    sheaf_status *st = open_gpu(gpu, range, limit);
    TRY(st, sheaf__gpu_failed(gpu, add_block(gpu, 0, gpu->granularity), "its first memory"));
    TRY(st, sheaf__gpu_probe(gpu));
    TRY(st, sheaf__gpu_probe_products(gpu));
    TRY(st, sheaf__gpu_probe_peers(gpu));
    if (st != NULL) {
        close_gpu(gpu);
        return st;
    }
    *range = (sheaf__reserved){ .base = (char *)(uintptr_t)gpu->base, /* the host never reads it */
                                .capacity = gpu->capacity,
                                .usable = gpu->granularity,
                                .own = gpu,
                                .unit = gpu->number };
    return NULL;
}

static void release(sheaf__reserved *range)
{
    close_gpu(range->own);
}

static bool grow(sheaf__reserved *range, size_t to)
{
    sheaf__gpu *gpu = range->own;
    to = sheaf__round_up(to, gpu->granularity);
    pthread_mutex_lock(&gpu->lock);
    gpu->refused = gpu->driver->set_context(gpu->context);
    if (gpu->refused == 0)
        gpu->refused = add_block(gpu, range->usable, to - range->usable);
    pthread_mutex_unlock(&gpu->lock);
    if (gpu->refused == 0)
        range->usable = to;
    return gpu->refused == 0;
}

/* Memory that is mapped is resident. */
static void hold(sheaf__device *device, sheaf__reserved *range, size_t from, size_t to)
{
}

static void refused(const sheaf__reserved *range, char *text, size_t bytes)
{
    const sheaf__gpu *gpu = range->own;
    size_t left = 0, all = 0;
    char error[SHEAF__DRIVER_TEXT];
    if (gpu->refused == SHEAF__GPU_NO_MEMORY && gpu->driver->memory_left(&left, &all) == 0)
        snprintf(text, bytes,
                 ", and GPU %d (%s) to grant it: %.2f of its %.2f MiB are left, and what other "
                 "processes and ranks use of it is not sheaf's",
                 gpu->number, gpu->name, (double)left / (1 << 20), (double)all / (1 << 20));
    else
        snprintf(text, bytes, ", and GPU %d (%s) to grant it, which says %s", gpu->number,
                 gpu->name, sheaf__driver_error(gpu->driver, gpu->refused, error));
}

static sheaf_status *begin(sheaf__gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    return sheaf__gpu_failed(gpu, gpu->driver->set_context(gpu->context), "using it");
}

static sheaf_status *upload(sheaf__reserved *range, void *to, const void *from, size_t bytes)
{
    sheaf__gpu *gpu = range->own;
    sheaf_status *st = begin(gpu);
    const bool timed = st == NULL && sheaf__gpu_clock_begin(gpu, SHEAF__SPENT_TRANSFERS);
    TRY(st, sheaf__gpu_send(gpu, (uintptr_t)to, from, bytes));
    sheaf__gpu_clock_end(gpu, timed);
    pthread_mutex_unlock(&gpu->lock);
    return st;
}

static sheaf_status *download(sheaf__reserved *range, void *to, const void *from, size_t bytes)
{
    sheaf__gpu *gpu = range->own;
    sheaf_status *st = begin(gpu);
    TRY(st, sheaf__gpu_fetch(gpu, to, (uintptr_t)from, bytes));
    pthread_mutex_unlock(&gpu->lock);
    return st;
}

static bool run(sheaf__device *device, sheaf__reserved *range, const sheaf__call *call)
{
    sheaf__gpu *gpu = range->own;
    sheaf__gpu_operation *const operation = sheaf__gpu_operations[call->operation];
    bool runs = operation != NULL;
    if (runs) {
        sheaf_status *st = begin(gpu);
        gpu->device = device;
        gpu->lists.operation++;
        gpu->lists.used = 0;
        const bool timed =
            st == NULL && sheaf__gpu_clock_begin(gpu, sheaf__spending_of(call->operation));
        runs = st != NULL || operation(gpu, call);
        sheaf__gpu_clock_end(gpu, timed);
        sheaf__device_fail(device, st);
        pthread_mutex_unlock(&gpu->lock);
    }
    atomic_fetch_add_explicit(&(runs ? gpu->ran : gpu->declined)[call->operation], 1,
                              memory_order_relaxed);
    return runs;
}

static sheaf_status *count(int *units)
{
    const sheaf__driver *driver;
    sheaf_status *st = sheaf__driver_get(&driver);
    if (st != NULL)
        return st;
    const sheaf__gpu_error e = driver->count(units);
    return e == 0 ? NULL : sheaf__driver_failed(driver, e, "counting GPUs");
}

enum { TAKES = 512 << 20 }; /* for its context and code */

/* Without opening it, which takes a while: what others use of it shows when it is opened. */
static sheaf_status *left(size_t *bytes, int unit)
{
    const sheaf__driver *driver;
    int handle;
    sheaf_status *st = sheaf__driver_get(&driver);
    if (st != NULL)
        return st;
    sheaf__gpu_error e = driver->device(&handle, unit);
    SHEAF__GPU_TRY(e, driver->memory_size(bytes, handle));
    *bytes = e == 0 && *bytes > TAKES ? *bytes - TAKES : 0;
    return e == 0 ? NULL : sheaf__driver_failed(driver, e, "the memory of GPU %d", unit);
}

static void name_unit(const sheaf__reserved *range, char *text, size_t bytes)
{
    const sheaf__gpu *gpu = range->own;
    size_t all = 0;
    (void)gpu->driver->memory_size(&all, gpu->handle);
    snprintf(text, bytes, "GPU %d (%s, %.1f GiB)", gpu->number, gpu->name, (double)all / (1 << 30));
}

/* By its capability; that it is true the probe finds, as a device is opened. */
static sheaf_status *native(sheaf_sums *out, int unit)
{
    const sheaf__driver *driver;
    int handle, major = 0;
    sheaf_status *st = sheaf__driver_get(&driver);
    if (st != NULL)
        return st;
    sheaf__gpu_error e = driver->device(&handle, unit);
    SHEAF__GPU_TRY(e, driver->attribute(&major, SHEAF__GPU_MAJOR, handle));
    *out = major >= 9 ? SHEAF_SUMS_MMA16 : SHEAF_SUMS_MMA8;
    return e == 0 ? NULL : sheaf__driver_failed(driver, e, "the capability of GPU %d", unit);
}

const sheaf__device_class sheaf__cuda_class = { .name = "cuda",
                                                .row_major = true,
                                                .work = SHEAF__GPU_SCRATCH + SHEAF__GPU_STAGE,
                                                .reserve = reserve,
                                                .grow = grow,
                                                .release = release,
                                                .hold = hold,
                                                .refused = refused,
                                                .upload = upload,
                                                .download = download,
                                                .run = run,
                                                .count = count,
                                                .native = native,
                                                .left = left,
                                                .takes = TAKES,
                                                .peers = &sheaf__gpu_peers,
                                                .measure = sheaf__gpu_measure,
                                                .spent = sheaf__gpu_spent,
                                                .name_unit = name_unit };

int64_t sheaf__gpu_ran(const sheaf__device *device, sheaf__operation operation)
{
    const sheaf__gpu *gpu = device->reserved->own;
    return atomic_load_explicit(&gpu->ran[operation], memory_order_relaxed);
}

int64_t sheaf__gpu_declined(const sheaf__device *device, sheaf__operation operation)
{
    const sheaf__gpu *gpu = device->reserved->own;
    return atomic_load_explicit(&gpu->declined[operation], memory_order_relaxed);
}
