/* peers.c - what GPUs of one process do with each other's memory (device.h): an address is the same
 * on all of them, and those that reach each other map it for all (gpu.c). And what a GPU does for
 * exchanges between processes. */
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/exchange.h"

#include "base/base.h"

/* The stream of exchanges goes before that of operations where both have work. */
sheaf_status *sheaf__gpu_peers_open(sheaf__gpu *gpu)
{
    enum { BEFORE_OTHERS = -1 };
    const sheaf__driver *d = gpu->driver;
    sheaf__gpu_error e = d->stream_new(&gpu->exchange, SHEAF__GPU_OWN_ORDER, BEFORE_OTHERS);
    for (int i = 0; i < SHEAF__GPU_MARKS && e == 0; i++)
        e = d->event_new(&gpu->marked[i], SHEAF__GPU_UNTIMED);
    return sheaf__gpu_failed(gpu, e, "opening a stream of exchanges");
}

void sheaf__gpu_peers_close(sheaf__gpu *gpu)
{
    for (int i = 0; i < SHEAF__GPU_MARKS; i++)
        if (gpu->marked[i] != NULL)
            (void)gpu->driver->event_free(gpu->marked[i]);
    if (gpu->exchange != NULL)
        (void)gpu->driver->stream_free(gpu->exchange);
    if (gpu->pinned != NULL)
        (void)gpu->driver->unpin(gpu->pinned);
}

/* Does each of n GPUs reach the others' memory? */
static sheaf__gpu_error all_reach(const sheaf__driver *d, const int *gpu, int n, bool *all)
{
    sheaf__gpu_error e = 0;
    *all = true;
    for (int i = 0; i < n; i++)
        for (int p = 0; p < n && e == 0 && *all; p++) {
            int reaches = 1;
            if (p != i)
                e = d->can_reach(&reaches, gpu[i], gpu[p]);
            *all = reaches != 0;
        }
    return e;
}

sheaf_status *sheaf__gpu_mates(sheaf__gpu *gpu, const sheaf__reserved *range)
{
    const sheaf__driver *d = gpu->driver;
    sheaf__gpu_error e = 0;
    gpu->mates = range->mates;
    if (range->mate == NULL)
        e = d->count(&gpu->mates);
    if (e == 0 && !sheaf__peers_are_off() && gpu->mates <= SHEAF__GPU_PEERS) {
        for (int i = 0; i < gpu->mates && e == 0; i++)
            e = d->device(&gpu->mate[i], range->mate == NULL ? i : range->mate[i]);
        SHEAF__GPU_TRY(e, all_reach(d, gpu->mate, gpu->mates, &gpu->reaches));
    }
    if (e == 0 && gpu->reaches)
        return NULL;
    gpu->mates = 1;
    gpu->mate[0] = gpu->handle;
    return sheaf__gpu_failed(gpu, e, "which other GPUs reach its memory");
}

static bool reach(const sheaf__reserved *range)
{
    return ((const sheaf__gpu *)range->own)->reaches;
}

/* Under the lock, with the context current. */
static sheaf__gpu_error enter(sheaf__gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    return gpu->driver->set_context(gpu->context);
}

static sheaf_status *mark(sheaf__reserved *range)
{
    sheaf__gpu *gpu = range->own;
    sheaf__gpu_error e = enter(gpu);
    const int at = (gpu->mark + gpu->marks) % SHEAF__GPU_MARKS;
    if (e == 0 && gpu->marks == SHEAF__GPU_MARKS)
        e = SHEAF__GPU_INVALID;
    SHEAF__GPU_TRY(e, gpu->driver->event_record(gpu->marked[at], gpu->stream));
    gpu->marks += e == 0;
    pthread_mutex_unlock(&gpu->lock);
    return sheaf__gpu_failed(gpu, e, "marking the operands of an exchange");
}

static sheaf_status *lend(void *range)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    const bool marked = gpu->marks > 0;
    sheaf__gpu_event until = gpu->marked[gpu->mark];
    if (marked) {
        gpu->mark = (gpu->mark + 1) % SHEAF__GPU_MARKS;
        gpu->marks--;
    }
    pthread_mutex_unlock(&gpu->lock);
    SHEAF__GPU_TRY(e, marked ? gpu->driver->event_finish(until)
                             : gpu->driver->stream_finish(gpu->stream));
    return sheaf__gpu_failed(gpu, e, "operations before an exchange");
}

static sheaf_status *wait(void *range)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    pthread_mutex_unlock(&gpu->lock);
    SHEAF__GPU_TRY(e, gpu->driver->stream_finish(gpu->exchange));
    return sheaf__gpu_failed(gpu, e, "an exchange");
}

static sheaf_status *copy(void *range, void *to, const void *from, size_t bytes)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    SHEAF__GPU_TRY(e, gpu->driver->copy((sheaf__gpu_address)(uintptr_t)to,
                                        (sheaf__gpu_address)(uintptr_t)from, bytes, gpu->exchange));
    pthread_mutex_unlock(&gpu->lock);
    return sheaf__gpu_failed(gpu, e, "copying from a peer");
}

/* Blocks of 256 threads with four elements each, as many as run side by side. */
static sheaf_status *combine(void *range, const sheaf__combining *what)
{
    enum { THREADS = 256, SIDE_BY_SIDE = 6 };
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__exchange a = { .ranks = what->ranks,
                          .operands = what->operands,
                          .steps = what->steps,
                          .begin = what->begin,
                          .end = what->end };
    for (int r = 0; r < a.ranks; r++)
        a.out[r] = what->out[r];
    for (int i = 0; i < a.operands; i++)
        a.operand[i] = what->operand[i];
    for (int s = 0; s < a.steps; s++) {
        a.to[s] = (int8_t)what->step[s].to;
        a.a[s] = (int8_t)what->step[s].a;
        a.b[s] = (int8_t)what->step[s].b;
    }
    const int64_t blocks = (a.end - a.begin + 4 * THREADS - 1) / (4 * THREADS),
                  most = (int64_t)gpu->processors * SIDE_BY_SIDE;
    sheaf_status *st = sheaf__gpu_failed(gpu, enter(gpu), "an exchange");
    sheaf__launch sum = *SHEAF__LAUNCHED("exchange_sum", blocks < most ? blocks : most, 1, THREADS,
                                         SHEAF__EXCHANGE_SHARED(THREADS), &a);
    sum.exchange = true;
    TRY(st, sheaf__gpu_queue(gpu, &sum));
    pthread_mutex_unlock(&gpu->lock);
    return st;
}

static sheaf_status *fetch(void *range, void *to, const void *from, size_t bytes)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    SHEAF__GPU_TRY(e, gpu->driver->download(to, (uintptr_t)from, bytes, gpu->exchange));
    pthread_mutex_unlock(&gpu->lock);
    return sheaf__gpu_failed(gpu, e, "copying from it to another process");
}

static sheaf_status *place(void *range, void *to, const void *from, size_t bytes)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    SHEAF__GPU_TRY(e, gpu->driver->upload((uintptr_t)to, from, bytes, gpu->exchange));
    pthread_mutex_unlock(&gpu->lock);
    return sheaf__gpu_failed(gpu, e, "copying to it from another process");
}

static sheaf_status *pinned(void **out, void *range, size_t bytes)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    sheaf__gpu_error e = enter(gpu);
    if (e == 0 && bytes > gpu->pinned_bytes) {
        if (gpu->pinned != NULL)
            (void)gpu->driver->unpin(gpu->pinned);
        gpu->pinned = NULL;
        e = gpu->driver->pin(&gpu->pinned, bytes);
        gpu->pinned_bytes = e == 0 ? bytes : 0;
    }
    *out = gpu->pinned;
    pthread_mutex_unlock(&gpu->lock);
    return sheaf__gpu_failed(gpu, e, "pinning memory of the host for exchanges");
}

static void abandon(void *range)
{
    sheaf__gpu *gpu = ((const sheaf__reserved *)range)->own;
    gpu->hangs = true;
}

const sheaf__peers sheaf__gpu_peers = {
    reach, mark, { lend, wait, copy, combine, fetch, place, pinned, abandon }
};
