/* attention.c - which parts of attention are computed where, and how many operations it takes. */
#include "ops/attention/attention_parts.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"

/* ---- the reference as kernels ---- */
static void ref_rows(const sheaf__attention_call *call, const sheaf__attention_part *part,
                     void *scratch, size_t bytes)
{
    sheaf__attention_ref_rows(call, part);
}

static void ref_dkv(const sheaf__attention_call *call, const sheaf__attention_part *part, bool both,
                    void *scratch, size_t bytes)
{
    sheaf__attention_ref_dkv(call, part);
    sheaf__attention_part queries = *part;
    queries.end = call->shape->queries;
    if (both)
        sheaf__attention_ref_dq(call, &queries);
}

static void ref_dq(const sheaf__attention_call *call, const sheaf__attention_part *part,
                   void *scratch, size_t bytes)
{
    sheaf__attention_ref_dq(call, part);
}

static const sheaf__attention_kernels ref = { ref_rows, ref_dkv, ref_dq };

/* An AVX-512 machine without the pair instruction takes the AVX2 kernels. */
const sheaf__attention_kernels *sheaf__attention_kernels_for(const char *isa)
{
#ifndef SHEAF_NO_X86
    if (strcmp(isa, "avx512") == 0 && SHEAF__CPU_HAS("avx512bf16"))
        return &sheaf__attention_avx512;
    if (strcmp(isa, "ref") != 0)
        return &sheaf__attention_avx2;
#endif
    return &ref;
}

/* The fast kernels read channels of bfloat16 by pairs, from where they lie: the last one of an odd
 * head would take that of the next. No released model has such heads; they go by the definition. */
static const sheaf__attention_kernels *kernels_of(const sheaf__device *device,
                                                  const sheaf__attention *s)
{
    const bool odd = s->dtype == SHEAF_BF16 && s->head_dim % 2 != 0;
    return sheaf__attention_kernels_for(odd ? "ref" : device->kernels->isa);
}

int64_t sheaf__attention_keys_held(const sheaf__attention *s, size_t bytes)
{
    const int64_t block = SHEAF__ATTENTION_BLOCK, step = s->dtype == SHEAF_BF16 ? 2 : 1;
    const int64_t depth = s->head_dim / step, wide = (s->head_dim + 15) / 16 * 16;
    const int64_t words = 2 * block * depth + 3 * block / step * wide + 5 * block +
                          3 * SHEAF__ATTENTION_STRIP * SHEAF__ATTENTION_LD + block * block / step +
                          block * wide +
                          (s->dtype == SHEAF_F16 ? SHEAF__ATTENTION_STRIP * wide : 0);
    return ((int64_t)(bytes / 4) - words) / (2 * wide) / block * block;
}

/* ---- operations ---- */

/* Pairs (query, key) of one head that order and window let through. */
static double visible_pairs(const sheaf__attention *s)
{
    const double q0 = (double)(s->keys - s->queries), n = (double)s->queries;
    if (s->full)
        return n * (double)s->keys;
    const double all = n * q0 + n * (n + 1) / 2; /* query i sees q0 + i + 1 keys */
    if (s->window <= 0 || s->keys <= s->window)
        return all;
    /* queries from `full` on see `window` keys; those before, one more each */
    const double full = q0 >= (double)s->window ? 0 : (double)s->window - q0;
    return full * q0 + full * (full + 1) / 2 + (n - full) * (double)s->window;
}

static void count_flops(sheaf__device *device, const sheaf__attention *s, int products)
{
    const double heads = (double)(s->batch * s->kv_heads * s->group);
    device->flops += 2.0 * products * visible_pairs(s) * heads * (double)s->head_dim;
}

/* ---- parallel regions ---- */
typedef struct work {
    const sheaf__attention_call *call;
    const sheaf__attention_kernels *kernels;
    void **scratch;
    int64_t chunk;     /* rows or keys of a task */
    int64_t chunks;    /* tasks of a key head */
    int64_t dkv_tasks; /* the rest give dq */
    bool fused;
} work;

static sheaf__attention_part part_of(const work *w, int64_t head, int64_t chunk, int64_t count)
{
    const sheaf__attention *s = w->call->shape;
    const int64_t begin = chunk * w->chunk, end = begin + w->chunk;
    return (sheaf__attention_part){
        head / s->kv_heads, head % s->kv_heads, 0, s->group, begin, end < count ? end : count
    };
}

static void forward_task(void *context, int64_t index, int worker)
{
    const work *w = context;
    const sheaf__attention *s = w->call->shape;
    const int64_t heads = s->batch * s->kv_heads;
    /* last queries first: they see most, and the small tasks fill the gaps at the end */
    const sheaf__attention_part part =
        part_of(w, index % heads, w->chunks - 1 - index / heads, s->queries * s->group);
    w->kernels->rows(w->call, &part, w->scratch[worker], SHEAF__THREAD_SCRATCH);
}

static bool is_sound(const sheaf__attention *s)
{
    return (s->dtype == SHEAF_F32 || s->dtype == SHEAF_BF16 || s->dtype == SHEAF_F16) &&
           s->head_dim > 0 && s->head_dim <= SHEAF__HEAD_DIM_MAX &&
           (s->full || s->queries <= s->keys) && s->keys <= INT32_MAX && s->kv_rows >= s->keys;
}

void sheaf__attention_forward(sheaf__device *device, const sheaf__attention *shape, void *o,
                              float *stats, const void *q, const void *k, const void *v)
{
    const int64_t heads = shape->batch * shape->kv_heads, rows = shape->queries * shape->group;
    assert(is_sound(shape));
    count_flops(device, shape, 2);
    if (device->kind == SHEAF_DRY || heads * rows == 0)
        return;
    const sheaf__attention_call call = { .shape = shape,
                                         .o = o,
                                         .stats = stats,
                                         .q = q,
                                         .k = k,
                                         .v = v,
                                         .sums = device->sums,
                                         .units = device->units };
    work w = { &call, kernels_of(device, shape), device->scratch, 0, 0, 0, false };
    /* four tasks a thread even out; fewer rows than 256 do not pay for packing the values */
    const int64_t share = heads * rows / (4 * device->threads) / 64 * 64;
    w.chunk = share < 256 ? 256 : share;
    w.chunks = (rows + w.chunk - 1) / w.chunk;
    sheaf__pool_run(device->pool, heads * w.chunks, forward_task, &w);
}

static void backward_task(void *context, int64_t index, int worker)
{
    const work *w = context;
    const sheaf__attention *s = w->call->shape;
    const int64_t heads = s->batch * s->kv_heads;
    if (index < w->dkv_tasks) { /* the first keys are seen by most queries */
        const sheaf__attention_part part = part_of(w, index % heads, index / heads, s->keys);
        w->kernels->dkv(w->call, &part, w->fused, w->scratch[worker], SHEAF__THREAD_SCRATCH);
        return;
    }
    index -= w->dkv_tasks;
    const int64_t block = SHEAF__ATTENTION_BLOCK, blocks = (s->queries + block - 1) / block;
    const int64_t begin = (blocks - 1 - index / heads / s->group) * block,
                  g = index / heads % s->group;
    const int64_t end = begin + block < s->queries ? begin + block : s->queries;
    const sheaf__attention_part part = {
        index % heads / s->kv_heads, index % heads % s->kv_heads, g, g + 1, begin, end
    };
    w->kernels->dq(w->call, &part, w->scratch[worker], SHEAF__THREAD_SCRATCH);
}

/* One task a key head shares the scores among dq, dk and dv: five products. With two kinds of
 * tasks it is seven, but they are many and need space for few keys. */
static bool should_fuse(int64_t heads, int64_t keys, int64_t held, int threads)
{
    const int64_t turns = (heads + threads - 1) / threads;
    return keys <= held && turns * threads * 5 <= heads * 7;
}

void sheaf__attention_backward(sheaf__device *device, const sheaf__attention *shape, void *dq,
                               void *dk, void *dv, const void *d_o, const void *o,
                               const float *stats, const void *q, const void *k, const void *v)
{
    const int64_t heads = shape->batch * shape->kv_heads, block = SHEAF__ATTENTION_BLOCK;
    assert(is_sound(shape) && (shape->full || shape->queries == shape->keys));
    count_flops(device, shape, 5);
    if (device->kind == SHEAF_DRY || heads * (shape->queries + shape->keys) == 0)
        return;
    /* o and stats are only read; the call has one field for both directions */
    const sheaf__attention_call call = { shape, (void *)o,    (float *)stats, q, k, v, d_o, dq, dk,
                                         dv,    device->sums, device->units };
    work w = { &call, kernels_of(device, shape), device->scratch, 0, 0, 0, false };
    const int64_t held = sheaf__attention_keys_held(shape, SHEAF__THREAD_SCRATCH);
    w.fused = should_fuse(heads, shape->keys, held, device->threads);
    if (w.fused) {
        w.chunk = shape->keys;
        w.chunks = 1;
    } else {
        const int64_t share = heads * shape->keys / (4 * device->threads) / block * block;
        w.chunk = share < block ? block : share > held ? held : share;
        w.chunks = (shape->keys + w.chunk - 1) / w.chunk;
    }
    w.dkv_tasks = heads * w.chunks;
    const int64_t dq_tasks =
        w.fused ? 0 : heads * shape->group * ((shape->queries + block - 1) / block);
    sheaf__pool_run(device->pool, w.dkv_tasks + dq_tasks, backward_task, &w);
}
