/* clock.c - how long a GPU takes for products, attention and transfers: by events in its stream, as
 * the host only queues what is done later. */
#include "base/base.h"
#include "ops/devices/gpu/gpu.h"

/* More are not kept for one reading: then the rest is not measured. */
enum { MOST_PAIRS = 1 << 16 };

static sheaf__gpu_error new_pair(sheaf__gpu *gpu)
{
    sheaf__gpu_clock *c = &gpu->clock;
    if (c->used < c->made)
        return 0;
    if (c->made == MOST_PAIRS || !SHEAF_GROW(&c->pair, &c->capacity, c->made + 1))
        return SHEAF__GPU_NO_MEMORY;
    sheaf__gpu_pair *pair = &c->pair[c->made];
    sheaf__gpu_error e = gpu->driver->event_new(&pair->begin, 0);
    if (e == 0 && (e = gpu->driver->event_new(&pair->end, 0)) != 0)
        (void)gpu->driver->event_free(pair->begin);
    c->made += e == 0;
    return e;
}

bool sheaf__gpu_clock_begin(sheaf__gpu *gpu, sheaf__spending on)
{
    sheaf__gpu_clock *c = &gpu->clock;
    if (!c->on || c->open || on == SHEAF__SPENDINGS || new_pair(gpu) != 0)
        return false;
    c->pair[c->used].on = on;
    c->open = c->on = gpu->driver->event_record(c->pair[c->used].begin, gpu->stream) == 0;
    return c->open;
}

void sheaf__gpu_clock_end(sheaf__gpu *gpu, bool began)
{
    sheaf__gpu_clock *c = &gpu->clock;
    if (!began)
        return;
    c->on = gpu->driver->event_record(c->pair[c->used].end, gpu->stream) == 0;
    c->open = false;
    c->used += c->on;
}

void sheaf__gpu_clock_close(sheaf__gpu *gpu)
{
    for (int64_t i = 0; i < gpu->clock.made; i++) {
        (void)gpu->driver->event_free(gpu->clock.pair[i].begin);
        (void)gpu->driver->event_free(gpu->clock.pair[i].end);
    }
    free(gpu->clock.pair);
}

/* ---- of the class ---- */

void sheaf__gpu_measure(sheaf__reserved *range, bool on)
{
    sheaf__gpu *gpu = range->own;
    pthread_mutex_lock(&gpu->lock);
    gpu->clock.on = on;
    pthread_mutex_unlock(&gpu->lock);
}

/* Pairs end in their order; those that have ended become free, behind the others. */
void sheaf__gpu_spent(sheaf__reserved *range, sheaf__spent *sum)
{
    sheaf__gpu *gpu = range->own;
    sheaf__gpu_clock *c = &gpu->clock;
    int64_t n = 0;
    pthread_mutex_lock(&gpu->lock);
    sheaf__gpu_error e = c->used > 0 ? gpu->driver->set_context(gpu->context) : 0;
    for (; n < c->used && e == 0; n += e == 0) {
        float ms = 0;
        e = gpu->driver->event_elapsed(&ms, c->pair[n].begin, c->pair[n].end);
        if (e == 0)
            sum->of[c->pair[n].on] += (uint64_t)(1e6 * (double)ms);
    }
    c->on = c->on && (e == 0 || e == SHEAF__GPU_NOT_READY);
    sum->marks += 2 * (uint64_t)n;
    for (int64_t i = n; i < c->used; i++) {
        const sheaf__gpu_pair was = c->pair[i - n];
        c->pair[i - n] = c->pair[i];
        c->pair[i] = was;
    }
    c->used -= n;
    pthread_mutex_unlock(&gpu->lock);
}
