/* stream.c - what is queued on a GPU: transfers through pinned memory, and launches. */
#include <stdatomic.h>
#include <time.h>

#include "base/base.h"
#include "ops/devices/gpu/gpu.h"

/* ---- pinned memory ---- */

sheaf_status *sheaf__gpu_ring_open(sheaf__gpu *gpu)
{
    sheaf__gpu_ring *ring = &gpu->ring;
    void *pinned = NULL;
    sheaf__gpu_error e = gpu->driver->pin(&pinned, SHEAF__GPU_SEGMENTS * SHEAF__GPU_SEGMENT);
    ring->pinned = pinned;
    for (int i = 0; i < SHEAF__GPU_SEGMENTS && e == 0; i++)
        e = gpu->driver->event_new(&ring->done[i], SHEAF__GPU_UNTIMED);
    return sheaf__gpu_failed(gpu, e, "pinning memory of the host");
}

void sheaf__gpu_ring_close(sheaf__gpu *gpu)
{
    for (int i = 0; i < SHEAF__GPU_SEGMENTS; i++)
        if (gpu->ring.done[i] != NULL)
            (void)gpu->driver->event_free(gpu->ring.done[i]);
    if (gpu->ring.pinned != NULL)
        (void)gpu->driver->unpin(gpu->ring.pinned);
}

/* A place for `bytes` bytes, a segment at most, out of which nothing is copied any more. */
static sheaf__gpu_error take(char **out, sheaf__gpu *gpu, size_t bytes)
{
    sheaf__gpu_ring *ring = &gpu->ring;
    sheaf__gpu_error e = 0;
    if (ring->used + bytes > SHEAF__GPU_SEGMENT) {
        if ((e = gpu->driver->event_record(ring->done[ring->at], gpu->stream)) != 0)
            return e;
        ring->pending[ring->at] = true;
        ring->at = (ring->at + 1) % SHEAF__GPU_SEGMENTS;
        ring->used = 0;
        if (ring->pending[ring->at])
            e = gpu->driver->event_finish(ring->done[ring->at]);
        ring->pending[ring->at] = false;
    }
    *out = ring->pinned + (size_t)ring->at * SHEAF__GPU_SEGMENT + ring->used;
    ring->used += (bytes + 63) / 64 * 64;
    return e;
}

/* ---- transfers ---- */

sheaf_status *sheaf__gpu_send(sheaf__gpu *gpu, sheaf__gpu_address to, const void *from,
                              size_t bytes)
{
    sheaf__gpu_error e = 0;
    for (size_t at = 0, n; at < bytes && e == 0; at += n) {
        char *pinned;
        n = bytes - at < SHEAF__GPU_SEGMENT ? bytes - at : SHEAF__GPU_SEGMENT;
        if ((e = take(&pinned, gpu, n)) == 0) {
            memcpy(pinned, (const char *)from + at, n);
            e = gpu->driver->upload(to + at, pinned, n, gpu->stream);
        }
    }
    return sheaf__gpu_failed(gpu, e, "copying to it");
}

/* A part that comes. */
typedef struct arrival {
    char *pinned;
    size_t at, bytes;
} arrival;

/* The host copies one part while the next one comes. */
sheaf_status *sheaf__gpu_fetch(sheaf__gpu *gpu, void *to, sheaf__gpu_address from, size_t bytes)
{
    sheaf__gpu_ring *ring = &gpu->ring;
    sheaf__gpu_error e = 0;
    arrival last = { 0 };
    bool timed = sheaf__gpu_clock_begin(gpu, SHEAF__SPENT_TRANSFERS);
    for (size_t at = 0; (at < bytes || last.bytes > 0) && e == 0;) {
        arrival next = { NULL, at, bytes - at };
        if (next.bytes > SHEAF__GPU_SEGMENT)
            next.bytes = SHEAF__GPU_SEGMENT;
        const int segment = ring->at;
        if (next.bytes > 0 && (e = take(&next.pinned, gpu, next.bytes)) == 0)
            e = gpu->driver->download(next.pinned, from + at, next.bytes, gpu->stream);
        if (next.bytes > 0 && at + next.bytes == bytes) /* before the host waits for it */
            sheaf__gpu_clock_end(gpu, timed);
        if (last.bytes > 0 && e == 0) {
            e = next.bytes > 0 && segment != ring->at && ring->pending[segment]
                    ? gpu->driver->event_finish(ring->done[segment])
                    : gpu->driver->stream_finish(gpu->stream);
            if (e == 0)
                memcpy((char *)to + last.at, last.pinned, last.bytes);
        }
        last = next;
        at += next.bytes;
        timed = timed && at < bytes;
    }
    sheaf__gpu_clock_end(gpu, timed); /* where it failed before its last part */
    return sheaf__gpu_failed(gpu, e, "copying from it, after the operations before");
}

sheaf_status *sheaf__gpu_await(sheaf__gpu *gpu, sheaf__gpu_stream stream, const char *remedy)
{
    enum { POLLS = 10000 }; /* a millisecond each */
    const sheaf__driver *d = gpu->driver;
    sheaf__gpu_error e = d->event_record(gpu->marked[0], stream);
    for (int i = 0; d->event_ready != NULL && i < POLLS && e == 0; i++) {
        e = d->event_ready(gpu->marked[0]);
        if (e != SHEAF__GPU_NOT_READY)
            return sheaf__gpu_failed(gpu, e, "its probe");
        e = 0;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    if (e != 0 || d->event_ready == NULL)
        return sheaf__gpu_failed(gpu, e, "its probe");
    gpu->hangs = true;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "GPU %d (%s): its probe", gpu->number, gpu->name);
    sheaf_expected(st, "an end after milliseconds");
    sheaf_found(st, "none after 10 seconds; the last kernel launched was %s", gpu->last);
    return sheaf_try_this(st, "%s", remedy);
}

void *sheaf__gpu_scratch(sheaf__gpu *gpu)
{
    return gpu->device->work;
}

size_t sheaf__gpu_panels(const sheaf__gpu *gpu)
{
    return gpu->panels;
}

size_t sheaf__gpu_kept(const sheaf__gpu *gpu)
{
    return gpu->kept;
}

void *sheaf__gpu_stage(sheaf__gpu *gpu, const void *from, size_t bytes)
{
    char *at = (char *)gpu->device->work + SHEAF__GPU_SCRATCH + gpu->staged;
    if (bytes > SHEAF__GPU_STAGE - gpu->staged) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "an operation's lists on GPU %d", gpu->number);
        sheaf_expected(st, "%zu bytes at most", SHEAF__GPU_STAGE);
        sheaf__device_fail(gpu->device, sheaf_found(st, "%zu", gpu->staged + bytes));
        return NULL;
    }
    sheaf_status *st = sheaf__gpu_send(gpu, (uintptr_t)at, from, bytes);
    gpu->staged += (bytes + 255) / 256 * 256;
    if (gpu->staged > SHEAF__GPU_STAGE)
        gpu->staged = SHEAF__GPU_STAGE;
    sheaf__device_fail(gpu->device, st);
    return st == NULL ? at : NULL;
}

void sheaf__gpu_read(sheaf__gpu *gpu, void *to, const void *from, size_t bytes)
{
    sheaf__device_fail(gpu->device, sheaf__gpu_fetch(gpu, to, (uintptr_t)from, bytes));
}

/* ---- launches ---- */

static uint64_t hash_of(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

static sheaf__gpu_error find(sheaf__gpu_kernel **out, sheaf__gpu *gpu, const char *name)
{
    const uint64_t h = hash_of(name);
    if (strlen(name) >= sizeof gpu->kernel->name)
        return SHEAF__GPU_NOT_FOUND;
    for (uint64_t i = 0; i < SHEAF__GPU_KERNELS; i++) {
        sheaf__gpu_kernel *k = &gpu->kernel[(h + i) % SHEAF__GPU_KERNELS];
        if (*k->name != '\0' && strcmp(k->name, name) != 0)
            continue;
        if (*k->name == '\0') {
            sheaf__gpu_error e = SHEAF__GPU_NOT_FOUND;
            for (int m = 0; m < gpu->modules && e == SHEAF__GPU_NOT_FOUND; m++)
                e = gpu->driver->find(&k->function, gpu->module[m], name);
            if (e != 0)
                return e;
            strcpy(k->name, name);
            k->shared = (size_t)48 << 10; /* without a request */
        }
        *out = k;
        return 0;
    }
    return SHEAF__GPU_NOT_FOUND;
}

sheaf_status *sheaf__gpu_queue(sheaf__gpu *gpu, const sheaf__launch *l)
{
    unsigned blocks[3];
    char what[160];
    sheaf__gpu_kernel *k;
    if (l->blocks[0] == 0)
        return NULL;
    snprintf(what, sizeof what, "launching %s", l->kernel);
    sheaf__gpu_error e = find(&k, gpu, l->kernel);
    if (e != 0)
        return sheaf__gpu_failed(gpu, e, what);
    for (int i = 0; i < 3; i++) {
        if (l->blocks[i] > (i == 0 ? INT32_MAX : UINT16_MAX))
            e = SHEAF__GPU_INVALID;
        blocks[i] = l->blocks[i] == 0 ? 1 : (unsigned)l->blocks[i];
    }
    if (e == 0 && l->shared > k->shared) {
        e = gpu->driver->set_kernel(k->function, SHEAF__GPU_DYNAMIC_SHARED, (int)l->shared);
        k->shared = e == 0 ? l->shared : k->shared;
    }
    size_t bytes = l->bytes;
    void *extra[] = { (void *)1, (void *)l->arguments, (void *)2, &bytes, NULL };
    gpu->last = e == 0 ? k->name : gpu->last;
    if (e == 0)
        e = gpu->driver->launch(k->function, blocks[0], blocks[1], blocks[2], (unsigned)l->threads,
                                1, 1, (unsigned)l->shared,
                                l->exchange ? gpu->exchange : gpu->stream, NULL, extra);
    return sheaf__gpu_failed(gpu, e, what);
}

void sheaf__gpu_launch(sheaf__gpu *gpu, const sheaf__launch *l)
{
    if (atomic_load(&gpu->device->failed) == NULL)
        sheaf__device_fail(gpu->device, sheaf__gpu_queue(gpu, l));
}

void sheaf__gpu_each(sheaf__gpu *gpu, const char *kernel, int64_t n, const void *arguments,
                     size_t bytes)
{
    sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = kernel,
                                             .blocks = { (n + 255) / 256 },
                                             .threads = 256,
                                             .arguments = arguments,
                                             .bytes = bytes });
}

sheaf_sums sheaf__gpu_sums(const sheaf__gpu *gpu)
{
    return gpu->device->sums;
}

bool sheaf__gpu_computes(const sheaf__gpu *gpu, sheaf_sums sums)
{
    return sums == SHEAF_SUMS_MMA8 ? gpu->major == 8 : sums == SHEAF_SUMS_MMA16 && gpu->major >= 9;
}

int sheaf__gpu_processors(const sheaf__gpu *gpu)
{
    return gpu->processors;
}
