/* experts.c - kernels of a mixture of experts. */
#include "ops/devices/gpu/kernels/experts.h"

#include "ops/devices/gpu/kernels/lanes.h"

/* ---- the choice: what has an order is done by one thread a row, the rest by all ---- */

typedef struct choice_block {
    int64_t first; /* element of the first row */
    int32_t n;     /* elements of all rows */
    float *w, *of_row;
    bool own; /* this thread has a row, */
    float *x; /* this one */
} choice_block;

DEVICE choice_block choice_of(const sheaf__choice *a)
{
    const int32_t most = choice_rows(a->experts), pitch = choice_pitch(a->experts);
    const int64_t first = (int64_t)blockIdx.x * most, left = a->rows - first;
    const int32_t rows = left < most ? (int32_t)left : most;
    choice_block b;
    b.first = first * a->experts;
    b.n = rows * (int32_t)a->experts;
    b.w = (float *)shared_memory;
    b.of_row = b.w + most * pitch;
    b.own = (int32_t)threadIdx.x < rows;
    b.x = b.w + (int32_t)threadIdx.x * pitch;
    return b;
}

#define EACH(i, b) for (int32_t i = (int32_t)threadIdx.x; i < (b).n; i += (int32_t)blockDim.x)

/* One step of a row's own thread; `last` is what the step before left there. */
typedef enum choice_step { CHOICE_MOST, CHOICE_SUM, CHOICE_MARK } choice_step;

DEVICE void choice_row(const sheaf__choice *a, const choice_block *b, choice_step step)
{
    const int32_t n = (int32_t)a->experts;
    const float *x = b->x;
    sync_threads();
    if (b->own) {
        float out = step == CHOICE_MOST ? x[0] : 0;
        if (step == CHOICE_MARK)
            out = sheaf__choice_mark(b->x, n, a->top_k);
        for (int32_t e = 0; e < n && step != CHOICE_MARK; e++)
            if (step == CHOICE_SUM)
                out += x[e];
            else if (x[e] > out)
                out = x[e];
        b->of_row[threadIdx.x] = out;
    }
    sync_threads();
}

KERNELS(choice, sheaf__choice, CHOICE_THREADS)
{
    const choice_block b = choice_of(a);
    const int32_t n = (int32_t)a->experts, pitch = choice_pitch(n);
    EACH(i, b)
    b.w[i / n * pitch + i % n] = load_one(a->logits, b.first + i, dtype);
    choice_row(a, &b, CHOICE_MOST);
    EACH(i, b)
    {
        float *x = &b.w[i / n * pitch + i % n];
        *x = sheaf__choice_exp(*x, b.of_row[i / n]);
    }
    choice_row(a, &b, CHOICE_SUM);
    EACH(i, b)
    { /* without the sign, also of NaN: it is the mark */
        float *x = &b.w[i / n * pitch + i % n];
        *x = sheaf__float(sheaf__bits(*x / b.of_row[i / n]) & 0x7fffffff);
        if (a->all != NULL)
            a->all[b.first + i] = sheaf__one_nan(*x);
    }
    choice_row(a, &b, CHOICE_MARK);
    EACH(i, b)
    a->weights[b.first + i] =
        sheaf__choice_weight(b.w[i / n * pitch + i % n], a->of_all ? 1 : b.of_row[i / n]);
}

KERNELS(choice_back, sheaf__choice, CHOICE_THREADS)
{
    const choice_block b = choice_of(a);
    const int32_t n = (int32_t)a->experts, pitch = choice_pitch(n);
    EACH(i, b)
    b.w[i / n * pitch + i % n] = a->weights[b.first + i] * a->grad[b.first + i];
    choice_row(a, &b, CHOICE_SUM);
    const float *v = a->of_all ? a->all : a->weights;
    EACH(i, b)
    a->grad[b.first + i] = v[b.first + i] * (a->grad[b.first + i] - b.of_row[i / n]);
    if (a->add != NULL) {
        sync_threads();
        EACH(i, b)
        b.w[i / n * pitch + i % n] = a->all[b.first + i] * a->add[i % n];
        choice_row(a, &b, CHOICE_SUM);
    }
    EACH(i, b)
    {
        const float own = a->grad[b.first + i];
        const bool adds = sheaf__choice_adds(a, (b.first + i) / n);
        const float d = sheaf__one_nan(
            adds ? own + a->all[b.first + i] * (a->add[i % n] - b.of_row[i / n]) : own);
        a->grad[b.first + i] = d;
        put_one(a->logits, b.first + i, d, dtype, false);
    }
}

/* ---- shares: a thread has elements of a row ---- */

DEVICE int64_t share_at(const sheaf__share *s, int per, int64_t *i, float *w)
{
    const int64_t parts = (s->cols + per - 1) / per;
    int64_t part;
    *i = divide(own_index(), parts, &part);
    if (*i < s->rows)
        *w = s->weights[sheaf__share_row(s, *i) * s->experts + s->expert];
    return part * per;
}

KERNELS(share, sheaf__share, 256)
{
    const int per = PER(dtype);
    int64_t i;
    float w = 0, v[MOST], sum[MOST];
    const int64_t c = share_at(a, per, &i, &w);
    if (w == 0)
        return;
    const int64_t cols = a->cols, to = sheaf__share_row(a, i) * cols;
    load_some(v, a->y, i * cols + c, i * cols + cols, dtype, per);
    load_some(sum, a->sum, to + c, to + cols, dtype, per);
    UNROLL
    for (int e = 0; e < MOST; e++)
        if (e < per)
            sum[e] += rounded_one(v[e] * w, dtype);
    store_some(a->sum, to + c, to + cols, sum, dtype, per);
}

KERNELS(share_back, sheaf__share, 256)
{
    const int per = PER(dtype);
    int64_t i;
    float w = 0, v[MOST];
    const int64_t c = share_at(a, per, &i, &w);
    if (i >= a->rows)
        return;
    const int64_t cols = a->cols, from = sheaf__share_row(a, i) * cols;
    load_some(v, a->sum, from + c, from + cols, dtype, per);
    UNROLL
    for (int e = 0; e < MOST; e++)
        if (e < per)
            v[e] = w != 0 ? v[e] * w : 0;
    store_some(a->dy, i * cols + c, i * cols + cols, v, dtype, per);
}

/* Products of columns from `at` on. */
DEVICE void share_make(double *to, const sheaf__share *a, int64_t y, int64_t ds, int64_t at,
                       int32_t own, sheaf_dtype dtype)
{
    const int per = PER(dtype);
    UNROLL
    for (int k = 0; k < SHARE_CHUNK / SHARE_MAKERS / per; k++) {
        const int32_t c = (own + k * SHARE_MAKERS) * per;
        float u[MOST], v[MOST];
        load_some(u, a->y, y + at + c, y + a->cols, dtype, per);
        load_some(v, a->sum, ds + at + c, ds + a->cols, dtype, per);
        double product[MOST];
        UNROLL
        for (int e = 0; e < MOST; e++)
            product[e] = e < per ? (double)u[e] * v[e] : 0;
        lanes_put_d(to + c, product, per);
    }
}

KERNELS(share_dot, sheaf__share, SHARE_THREADS)
{
    const int64_t i = blockIdx.x, r = sheaf__share_row(a, i), cols = a->cols;
    const int32_t own = (int32_t)threadIdx.x - 32;
    const int64_t at_weight = r * a->experts + a->expert,
                  n = a->weights[at_weight] != 0 ? cols : -SHARE_CHUNK; /* none */
    double *made = (double *)shared_memory, sum = 0;
    for (int64_t k = 0, at = 0; at < n + SHARE_CHUNK; k++, at += SHARE_CHUNK) {
        const int64_t before = n - at + SHARE_CHUNK; /* columns from the last chunk on */
        if (own >= 0 && at < n)
            share_make(made + k % 2 * SHARE_CHUNK, a, i * cols, r * cols, at, own, dtype);
        else if (threadIdx.x == 0 && k > 0)
            sum = lanes_add_d(sum, made + (k + 1) % 2 * SHARE_CHUNK,
                              before < SHARE_CHUNK ? (int32_t)before : SHARE_CHUNK, 0, 1);
        sync_threads();
    }
    if (threadIdx.x == 0)
        a->dweights[at_weight] = sheaf__narrow(sum);
}
