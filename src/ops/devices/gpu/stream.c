/* stream.c - what is queued on a GPU: transfers through pinned memory, and launches. */
#include <stdatomic.h>
#include <time.h>

#include "base/base.h"
#include "base/hash.h"
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
    sheaf__gpu_clock_end(gpu, timed); /* it failed before its last part */
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

/* ---- lists ---- */

/* Place of a short list, found by its content (*lies), or a free one; -1: none. */
static int place_of(bool *lies, sheaf__gpu *gpu, const void *list, size_t bytes)
{
    enum { TRIES = 8 };
    sheaf__gpu_lists *l = &gpu->lists;
    int place = -1;
    *lies = false;
    if (bytes == 0 || bytes > SHEAF__GPU_LIST)
        return -1;
    if (l->kept == NULL && (l->kept = malloc((size_t)SHEAF__GPU_LISTS * SHEAF__GPU_LIST)) == NULL)
        return -1;
    if (l->work != gpu->device->work)
        memset(l->bytes, 0, sizeof l->bytes);
    l->work = gpu->device->work;
    const uint64_t h = sheaf__hash(list, bytes).low;
    for (uint64_t i = 0; i < TRIES; i++) {
        const int at = (int)((h + i) % SHEAF__GPU_LISTS);
        *lies = l->bytes[at] == bytes &&
                memcmp(l->kept + (size_t)at * SHEAF__GPU_LIST, list, bytes) == 0;
        if (*lies)
            return at;
        if (place < 0 && l->user[at] != l->operation) /* its kernels may not be queued yet */
            place = at;
    }
    return place;
}

void *sheaf__gpu_stage(sheaf__gpu *gpu, const void *from, size_t bytes)
{
    sheaf__gpu_lists *l = &gpu->lists;
    const size_t most = SHEAF__GPU_STAGE - (size_t)SHEAF__GPU_LISTS * SHEAF__GPU_LIST;
    bool lies;
    const int place = place_of(&lies, gpu, from, bytes);
    char *at = (char *)gpu->device->work + SHEAF__GPU_SCRATCH;
    sheaf_status *st = NULL;
    if (place >= 0) {
        at += most + (size_t)place * SHEAF__GPU_LIST;
        l->user[place] = l->operation;
        l->bytes[place] = lies ? bytes : 0;
    } else if (bytes > most - l->used) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "an operation's lists on GPU %d", gpu->number);
        sheaf_expected(st, "%zu bytes at most", most);
        sheaf_found(st, "%zu", l->used + bytes);
    } else {
        at += l->used;
        l->used += (bytes + 255) / 256 * 256;
        l->used = l->used < most ? l->used : most;
    }
    if (!lies)
        TRY(st, sheaf__gpu_send(gpu, (uintptr_t)at, from, bytes));
    if (st == NULL && place >= 0 && !lies) {
        memcpy(l->kept + (size_t)place * SHEAF__GPU_LIST, from, bytes);
        l->bytes[place] = bytes;
    }
    sheaf__device_fail(gpu->device, st);
    return st == NULL ? at : NULL;
}

void sheaf__gpu_read(sheaf__gpu *gpu, void *to, const void *from, size_t bytes)
{
    sheaf__device_fail(gpu->device, sheaf__gpu_fetch(gpu, to, (uintptr_t)from, bytes));
}

/* ---- launches ---- */

static sheaf__gpu_error find(sheaf__gpu_kernel **out, sheaf__gpu *gpu, const char *name)
{
    const uint64_t h = sheaf__fnv(SHEAF__FNV, name, strlen(name));
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
    SHEAF__GPU_TRY(e, gpu->driver->launch(k->function, blocks[0], blocks[1], blocks[2],
                                          (unsigned)l->threads, 1, 1, (unsigned)l->shared,
                                          l->exchange ? gpu->exchange : gpu->stream, NULL, extra));
    return sheaf__gpu_failed(gpu, e, what);
}

void sheaf__gpu_launch(sheaf__gpu *gpu, const sheaf__launch *l)
{
    if (atomic_load(&gpu->device->failed) == NULL)
        sheaf__device_fail(gpu->device, sheaf__gpu_queue(gpu, l));
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
