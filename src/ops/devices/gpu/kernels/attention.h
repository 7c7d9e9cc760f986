/* attention.h - what kernels of attention share: their argument, where a task's rows lie, and what
 * a query sees (ops/attention/attention.h has the definition).
 *
 * A task is a block of queries of one query head, or of keys of one key head, within one sequence.
 * Blocks of all sequences are numbered one after the other. */
#pragma once

#include "ops/attention/attention_steps.h"
#include "ops/devices/gpu/kernel.h"
#include "ops/math/elementary.h"

/* Elements of the index that is summed, after which a chain of tensor cores ends, and a block of
 * all other orders. */
#define ATTENTION_CHAIN 4096
#define ATTENTION_BLOCK 256

/* The backward pass's inputs for a query of a head. */
typedef struct sheaf__attention_row {
    float max, sum, inverse, whole; /* 1 / sum; do . o */
} sheaf__attention_row;

typedef struct sheaf__attention_part {
    void *o;
    float *stats;
    const void *q, *k, *v, *d_o;
    void *dq, *dk, *dv;
    const uint8_t *key_mask;
    const int64_t *segment; /* NULL, or [segments + 1] rows, then as many numbers of first blocks */
    sheaf__attention_row *row; /* by the index of stats */
    float *total;              /* sums of chains that have ended; a block's own */
    int64_t tasks, mask_ld, ldq, ldk, ldv, ldo, kv_rows;
    int32_t batch, queries, keys, kv_heads, group, head_dim, segments, window;
    int32_t per; /* blocks of a sequence, without segments */
    float scale, cap;
    bool full, by_head, pairs, tiles, even; /* even: rows can be copied by 16 bytes */
    int32_t first_head, stats_heads;        /* of query heads, where `stats` has more than these */
} sheaf__attention_part;

/* A block of one sequence. */
typedef struct sheaf__attention_view {
    int64_t row, key_row; /* of its first query, and key, in all rows */
    const uint8_t *mask;
    int32_t queries, keys, first; /* the first query or key of the block */
    int32_t ahead;                /* keys before query 0 */
    int32_t window;
    bool full;
} sheaf__attention_view;

/* The one of [0, segments) from whose first number on `at` lies: a row, or a block. */
DEVICE int32_t attention_segment(const sheaf__attention_part *a, const int64_t *first, int64_t at)
{
    int32_t low = 0, high = a->segments;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (first[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

DEVICE sheaf__attention_view attention_view(const sheaf__attention_part *a, int64_t block, int size)
{
    sheaf__attention_view v;
    v.window = a->window;
    v.full = a->full;
    if (a->segment == NULL) {
        const uint32_t n = (uint32_t)block, per = (uint32_t)a->per; /* of a grid */
        const int64_t b = n / per;
        v.row = b * a->queries;
        v.key_row = b * a->kv_rows;
        v.mask = a->key_mask == NULL ? NULL : a->key_mask + b * a->mask_ld;
        v.queries = a->queries;
        v.keys = a->keys;
        v.first = (int32_t)(n % per) * size;
    } else {
        const int32_t s = attention_segment(a, a->segment + a->segments + 1, block);
        v.row = v.key_row = a->segment[s];
        const int64_t b = v.row / a->queries;
        v.mask = a->key_mask == NULL ? NULL : a->key_mask + b * a->mask_ld + v.row % a->queries;
        v.queries = v.keys = (int32_t)(a->segment[s + 1] - v.row);
        v.first = (int32_t)(block - a->segment[a->segments + 1 + s]) * size;
    }
    v.ahead = v.full ? 0 : v.keys - v.queries;
    return v;
}

/* The same of a query, as far as stats need it. */
DEVICE sheaf__attention_view attention_view_of_row(const sheaf__attention_part *a, int64_t row)
{
    sheaf__attention_view v;
    v.row = row / a->queries * a->queries;
    v.queries = a->queries;
    if (a->segment != NULL) {
        const int32_t s = attention_segment(a, a->segment, row);
        v.row = a->segment[s];
        v.queries = (int32_t)(a->segment[s + 1] - v.row);
    }
    return v;
}

/* ---- what a query sees ---- */

DEVICE int32_t attention_last(const sheaf__attention_view *v, int32_t i)
{
    return v->full ? v->keys - 1 : v->ahead + i;
}
DEVICE int32_t attention_first(const sheaf__attention_view *v, int32_t i)
{
    const int32_t first = v->ahead + i - v->window + 1;
    return v->window > 0 && !v->full && first > 0 ? first : 0;
}
DEVICE bool attention_sees(const sheaf__attention_view *v, int32_t i, int32_t j)
{
    return i < v->queries && j < v->keys && j <= attention_last(v, i) &&
           j >= attention_first(v, i) && (v->mask == NULL || v->mask[j] != 0);
}

/* The keys that some of the queries [i, i + rows) see, from a multiple of `step`. */
DEVICE int32_t attention_begin(const sheaf__attention_view *v, int32_t i, int step)
{
    return attention_first(v, i) / step * step;
}
DEVICE int32_t attention_end(const sheaf__attention_view *v, int32_t i, int rows)
{
    const int32_t last = i + rows < v->queries ? i + rows - 1 : v->queries - 1;
    return attention_last(v, last) + 1 < v->keys ? attention_last(v, last) + 1 : v->keys;
}
/* The queries that see some of the keys [j, j + cols). */
DEVICE int32_t attention_query_begin(const sheaf__attention_view *v, int32_t j, int step)
{
    return v->full || j < v->ahead ? 0 : (j - v->ahead) / step * step;
}
DEVICE int32_t attention_query_end(const sheaf__attention_view *v, int32_t j, int cols)
{
    const int64_t end = (int64_t)j + cols - 1 - v->ahead + v->window;
    return v->full || v->window == 0 || end > v->queries ? v->queries : (int32_t)end;
}

/* ---- where things lie ---- */

DEVICE int64_t attention_q(const sheaf__attention_part *a, const sheaf__attention_view *v, int head)
{
    return v->row * a->ldq + (int64_t)head * a->head_dim;
}
DEVICE int64_t attention_o(const sheaf__attention_part *a, const sheaf__attention_view *v, int head)
{
    return v->row * a->ldo + (int64_t)head * a->head_dim;
}
/* Of the first key of a key head, in k or v. */
DEVICE int64_t attention_key(const sheaf__attention_part *a, const sheaf__attention_view *v, int kv,
                             int64_t ld)
{
    return a->by_head ? (v->key_row * a->kv_heads + (int64_t)kv * a->kv_rows) * ld
                      : v->key_row * ld + (int64_t)kv * a->head_dim;
}
/* Of the first query of a head, in stats. */
DEVICE int64_t attention_stat(const sheaf__attention_part *a, const sheaf__attention_view *v,
                              int head)
{
    return v->row * a->kv_heads * a->group + (int64_t)head * v->queries;
}

/* ---- arithmetic ---- */

DEVICE float attention_score(const sheaf__attention_part *a, float product)
{
    const float s = a->scale * product;
    return a->cap > 0 ? a->cap * sheaf__tanh_of(s / a->cap) : s;
}

/* e / sum, correctly rounded, for e in [0, 2^12] and sum >= 1, or NaN: the remainder of an estimate
 * is exact, and gives the next one (Markstein). Far from denormals, where it would not be. */
DEVICE float attention_quotient(float e, float sum, float inverse)
{
    const float x = e * 0x1p64f;
    float q = x * inverse;
    q = fmaf(fmaf(-q, sum, x), inverse, q);
    q = fmaf(fmaf(-q, sum, x), inverse, q);
    return q * 0x1p-64f;
}

/* ds before it is rounded, of a probability and a score. */
DEVICE float attention_slope(const sheaf__attention_part *a, float p, float dp, float whole,
                             float score)
{
    const float ds = a->scale * p * (dp - whole);
    const float t = a->cap > 0 ? score / a->cap : 0.0f;
    return a->cap > 0 ? ds * (1.0f - t * t) : ds;
}

/* ---- forward ---- */

/* What a query has so far, of parts that have ended. */
typedef struct attention_all {
    float max, sum;
} attention_all;

/* exp(before - now), 1 where they are the same. */
DEVICE float attention_factor(float before, float now)
{
    const float by = sheaf__exp_below(before - now);
    return before < now ? by : 1.0f;
}

/* m after a block: its largest score, or as it was. */
DEVICE float attention_moved(float max, float largest)
{
    return largest > max + SHEAF__ATTENTION_MARGIN ? largest + 0.0f : max;
}

/* m moves, or stays; what there is so far meets the factor. */
DEVICE float attention_move(float *max, float largest)
{
    const float old = *max;
    *max = attention_moved(old, largest);
    return attention_factor(old, *max);
}

/* A part ends: what its sums, and those before it, meet. */
DEVICE void attention_join(attention_all *all, float max, float sum, float *by, float *before)
{
    const float now = max > all->max ? max : all->max;
    *by = attention_factor(max, now);
    *before = attention_factor(all->max, now);
    all->sum = fmaf(sum, *by, all->sum * *before);
    all->max = now;
}

DEVICE float attention_inverse(const attention_all *all)
{
    return 1.0f / (all->sum < 1.0f ? 1.0f : all->sum);
}

DEVICE void attention_store_stats(float *to, const attention_all *all)
{
    to[0] = all->max == SHEAF__ATTENTION_LEAST ? sheaf__float(0xff800000u) : all->max;
    to[1] = sheaf__one_nan(all->sum);
}
