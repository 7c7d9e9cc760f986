/* attention_few.c - attention forward of few queries over many keys (attention_few.h).
 *
 * Scores are computed in parallel over keys, their exponentials over rows and parts of keys, and
 * sums with values over parts and channels. So k and v are read once. */
#include "ops/devices/gpu/cuda/kernels/attention_few.h"
#include "ops/devices/gpu/cuda/kernels/attention_mma.h"

/* A unit of the work, and its place. */
typedef struct few {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int kv;
    int64_t row; /* its first row of score and weight */
} few;

DEVICE few few_of(const sheaf__attention_few *f, uint32_t unit)
{
    const uint32_t heads = (uint32_t)f->part.kv_heads, at = (uint32_t)f->unit + unit;
    few x;
    x.a = &f->part;
    x.v = attention_view(x.a, at / heads, 1);
    x.kv = (int)(at % heads);
    x.row = (int64_t)unit * f->rows;
    return x;
}

/* Elements of a row of the unit in q or o: its query, and its query head. */
DEVICE int64_t few_at(const few *x, int32_t row, int64_t ld)
{
    const int32_t group = x->a->group;
    return (x->v.row + row / group) * ld + (int64_t)(x->kv * group + row % group) * x->a->head_dim;
}

DEVICE int few_tiles(const sheaf__attention_few *f)
{
    return (f->rows + 15) / 16;
}

/* Eight elements, of which `dim` are there, or none. */
DEVICE void few_copy(uint16_t *to, const uint16_t *from, bool there, int dim, bool even)
{
    if (even) {
        copy_16(to, from, there && dim > 0);
        return;
    }
    for (int e = 0; e < 8; e++)
        to[e] = there && e < dim ? from[e] : (uint16_t)0;
}

/* ---- scores: a block has FEW_SCORES keys of a unit ---- */

DEVICE void load_queries(uint16_t *to, const sheaf__attention_few *f, const few *x, int wide)
{
    const sheaf__attention_part *a = x->a;
    const int count = few_tiles(f) * 16 * (wide / 8);
    ROLLED
    for (int i = (int)threadIdx.x; i < count; i += ATTENTION_THREADS) {
        const int row = i / (wide / 8), c = i % (wide / 8) * 8;
        const bool there = row < f->rows && c < a->head_dim;
        few_copy(to + row * attention_line(wide) + c,
                 (const uint16_t *)a->q + (there ? few_at(x, row, a->ldq) + c : 0), there,
                 a->head_dim - c, a->even);
    }
}

DEVICE void store_scores(const sheaf__attention_few *f, const few *x, float (*s)[4], int32_t row,
                         int32_t key)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int32_t r = row + lane / 4 + i / 2 % 2 * 8;
        if (r < f->rows)
            f->score[(x->row + r) * f->keys + key + i / 4 * 8 + lane % 4 * 2 + i % 2] =
                s[i / 4][i % 4];
    }
}

DEVICE void scores_block(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    const sheaf__attention_part *a = &f->part;
    const int32_t blocks = f->keys / FEW_SCORES, key = (int32_t)(blockIdx.x % blocks) * FEW_SCORES;
    const few x = few_of(f, blockIdx.x / blocks);
    const int wide = (a->head_dim + 15) / 16 * 16, warp = (int)threadIdx.x / 32;
    uint16_t *tile = (uint16_t *)(void *)shared_memory,
             *q = tile + FEW_SCORES * attention_line(wide);
    attention_load(tile, a, (const uint16_t *)a->k + attention_key(a, &x.v, x.kv, a->ldk), a->ldk,
                   f->begin + key, x.v.keys, FEW_SCORES, wide);
    load_queries(q, f, &x, wide);
    copies_commit();
    copies_wait(0);
    sync_threads();
    ROLLED
    for (int i = 0; i < few_tiles(f); i++) {
        float s[2][4];
        attention_products(s, q + i * 16 * attention_line(wide),
                           tile + warp * 16 * attention_line(wide), 16, wide, dtype);
        attention_scores(a, s, 16);
        store_scores(f, &x, s, i * 16, key + warp * 16);
    }
}

/* ---- exponentials: a block has a part of a row ---- */

DEVICE float *few_factors(const sheaf__attention_few *f, int64_t row, int32_t part)
{
    return f->factor + (row * f->parts + part) * FEW_BLOCKS;
}

/* The largest score of each of the warp's blocks of keys. */
DEVICE void take_largest(sheaf__attention_few_row *m, const float *s, const bool *seen)
{
    UNROLL
    for (int b = 0; b < 2; b++) {
        float max = SHEAF__ATTENTION_LEAST;
        UNROLL
        for (int i = b * 2; i < b * 2 + 2; i++)
            max = seen[i] && s[i] > max ? s[i] : max;
        UNROLL
        for (int by = 16; by > 0; by /= 2) {
            const float other = shuffle_xor(max, by);
            max = other > max ? other : max;
        }
        if (threadIdx.x % 32 == 0)
            m->max[threadIdx.x / 32 * 2 + b] = max;
    }
    sync_threads();
}

/* The lanes of the first 16 threads, which meet the factors of blocks; m of the part's end. */
DEVICE float part_sum(const sheaf__attention_few_row *m, float *factor, float *max)
{
    float lane = 0;
    *max = SHEAF__ATTENTION_LEAST;
    for (int b = 0; b < FEW_BLOCKS; b++) {
        const float by = attention_move(max, m->max[b]),
                    *e = m->e + b * SHEAF__ATTENTION_KEYS + threadIdx.x % 16;
        lane = lane * by;
        UNROLL
        for (int i = 0; i < SHEAF__ATTENTION_KEYS; i += 16)
            lane = lane + e[i];
        if (threadIdx.x == 0)
            factor[b] = by;
    }
    UNROLL
    for (int by = 8; by > 0; by /= 2)
        lane = lane + shuffle_xor(lane, by);
    return lane;
}

DEVICE void store_row(const sheaf__attention_few *f, const few *x, int32_t row,
                      const attention_all *all)
{
    const sheaf__attention_part *a = x->a;
    if (a->stats != NULL)
        attention_store_stats(
            a->stats +
                (attention_stat(a, &x->v, x->kv * a->group + row % a->group) + row / a->group) * 2,
            all);
}

DEVICE void row_block(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    sheaf__attention_few_row *m = (sheaf__attention_few_row *)(void *)shared_memory;
    const uint32_t parts = (uint32_t)f->parts, rows = (uint32_t)f->rows, at = blockIdx.x / parts;
    const int32_t part = (int32_t)(blockIdx.x % parts);
    const few x = few_of(f, at / rows);
    const int32_t row = (int32_t)(at % rows), query = row / x.a->group,
                  first = (int32_t)threadIdx.x / 32 * 2 * SHEAF__ATTENTION_KEYS +
                          (int32_t)threadIdx.x % 32,
                  key = (f->first + part) * SHEAF__ATTENTION_PART + first - f->begin;
    const float *score = f->score + (int64_t)at * f->keys;
    float s[4], max = SHEAF__ATTENTION_LEAST;
    bool there[4], seen[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int32_t j = key + i * 32;
        there[i] = j >= 0 && j < f->keys;
        seen[i] = there[i] && attention_sees(&x.v, query, f->begin + j);
        s[i] = seen[i] ? score[j] : 0.0f;
    }
    take_largest(m, s, seen);
    for (int b = 0; b < (int)threadIdx.x / 32 * 2; b++)
        max = attention_moved(max, m->max[b]);
    UNROLL
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0)
            max = attention_moved(max, m->max[(int)threadIdx.x / 32 * 2 + i / 2]);
        const float e = seen[i] ? sheaf__exp_below(s[i] - max) : 0.0f;
        m->e[first + i * 32] = e;
        if (there[i])
            sheaf__store(f->weight + (int64_t)at * f->keys, key + i * 32, e, dtype);
    }
    sync_threads();
    if (threadIdx.x < 32) {
        attention_all all;
        all.sum = part_sum(m, few_factors(f, at, part), &all.max);
        if (threadIdx.x == 0)
            f->part_of[(int64_t)at * f->parts + part] = all;
        if (threadIdx.x == 0 && f->parts == 1)
            store_row(f, &x, row, &all);
    }
}

/* ---- sums with values: a block has a part and FEW_CHANNELS channels of a unit ---- */

typedef struct values {
    const sheaf__attention_few *f;
    few x;
    int32_t channel, part, begin, tiles; /* begin: of the keys */
} values;

DEVICE uint16_t *values_at(const values *y, int32_t tile)
{
    const int32_t rows = y->f->rows;
    return (uint16_t *)(void *)shared_memory +
           tile % attention_few_stages(rows) * attention_few_stage(rows);
}

DEVICE void load_values(const values *y, int32_t tile)
{
    const sheaf__attention_few *f = y->f;
    const sheaf__attention_part *a = &f->part;
    const int32_t key = y->begin + tile * FEW_KEYS;
    const uint16_t *v =
        (const uint16_t *)a->v + attention_key(a, &y->x.v, y->x.kv, a->ldv) + y->channel;
    const uint16_t *w = f->weight + y->x.row * f->keys + (key - f->begin);
    uint16_t *to = values_at(y, tile);
    ROLLED
    for (int i = (int)threadIdx.x; i < FEW_KEYS * 2; i += ATTENTION_THREADS) {
        const int32_t j = key + i / 2, c = i % 2 * 8, dim = a->head_dim - y->channel - c;
        const bool there = j < y->x.v.keys && dim > 0;
        few_copy(to + i / 2 * attention_line(FEW_CHANNELS) + c, v + (there ? j * a->ldv + c : 0),
                 there, dim, a->even);
    }
    to += FEW_KEYS * attention_line(FEW_CHANNELS);
    ROLLED
    for (int i = (int)threadIdx.x; i < few_tiles(f) * 16 * (FEW_KEYS / 8); i += ATTENTION_THREADS) {
        const int row = i / (FEW_KEYS / 8), j = i % (FEW_KEYS / 8) * 8;
        const bool there = row < f->rows;
        copy_16(to + row * attention_line(FEW_KEYS) + j,
                w + (there ? (int64_t)row * f->keys + j : 0), there);
    }
}

/* Before step k of a tile: where a block of keys begins, sums meet its factors, but 1: a chain may
 * be denormal. */
DEVICE void move_sums(const values *y, float (*sum)[4], int32_t key, int k)
{
    const int32_t row = (int32_t)threadIdx.x / 32 * 16 + (int32_t)threadIdx.x % 32 / 4,
                  block =
                      (key / SHEAF__ATTENTION_KEYS + k * 16 / SHEAF__ATTENTION_KEYS) % FEW_BLOCKS;
    if (k % (SHEAF__ATTENTION_KEYS / 16) != 0)
        return;
    UNROLL
    for (int r = 0; r < 2; r++) {
        const float by = row + r * 8 < y->f->rows
                             ? few_factors(y->f, y->x.row + row + r * 8, y->part)[block]
                             : 1.0f;
        UNROLL
        for (int i = 0; i < 4; i++)
            sum[i / 2][r * 2 + i % 2] =
                by == 1.0f ? sum[i / 2][r * 2 + i % 2] : sum[i / 2][r * 2 + i % 2] * by;
    }
}

/* A tile of the warp's 16 rows, row by row (attention_add_apart). */
DEVICE void add_apart(const values *y, float (*sum)[4], const uint16_t *v, const uint16_t *w,
                      int32_t key, sheaf_dtype dtype)
{
    ROLLED
    for (int k = 0; k < FEW_KEYS / 16; k++) {
        move_sums(y, sum, key, k);
        uint32_t weight[4][4] = { { 0 } };
        const sheaf__attention_place at = { .v = &y->x.v,
                                            .row = (int)threadIdx.x / 32 * 16,
                                            .col = key + k * 16,
                                            .heads = y->f->part.group };
        attention_a(weight[0], w, k, FEW_KEYS);
        attention_add_rows(sum, weight, v + k * 16 * attention_line(FEW_CHANNELS), &at, 16,
                           FEW_CHANNELS, dtype);
    }
}

/* A tile of the warp's 16 rows. */
DEVICE void add_values(const values *y, float (*sum)[4], int32_t tile, sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int32_t key = y->begin + tile * FEW_KEYS;
    const uint16_t *v = values_at(y, tile), *w = v + FEW_KEYS * attention_line(FEW_CHANNELS) +
                                                 warp * 16 * attention_line(FEW_KEYS);
    if (attention_cuts(&y->x.v, 0, y->x.v.queries, key, FEW_KEYS) &&
        !attention_is_finite(v, FEW_KEYS, FEW_CHANNELS, dtype)) {
        add_apart(y, sum, v, w, key, dtype);
        return;
    }
    UNROLL
    for (int k = 0; k < FEW_KEYS / 16; k++) {
        uint32_t weight[4], b[4];
        move_sums(y, sum, key, k);
        attention_a(weight, w, k, FEW_KEYS);
        load_transposed(b, v + (k * 16 + lane % 16) * attention_line(FEW_CHANNELS) + lane / 16 * 8);
        attention_mma(sum[0], weight, b, dtype);
        attention_mma(sum[1], weight, b + 2, dtype);
    }
}

/* What is left of o: a sum divided. */
DEVICE void store_o(const sheaf__attention_few *f, const few *x, int32_t row, int32_t channel,
                    float sum, const attention_all *all, sheaf_dtype dtype)
{
    sheaf__store(f->part.o, few_at(x, row, f->part.ldo) + channel,
                 sum * attention_inverse(all) + 0.0f, dtype);
}

DEVICE void store_values(const values *y, float (*sum)[4], sheaf_dtype dtype)
{
    const sheaf__attention_few *f = y->f;
    const sheaf__attention_part *a = &f->part;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float *to = f->sum + (y->x.row * f->parts + (int64_t)y->part * f->rows) * a->head_dim;
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int32_t row = warp * 16 + lane / 4 + i / 2 % 2 * 8,
                      c = y->channel + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row >= f->rows || c >= a->head_dim)
            continue;
        if (f->parts == 1)
            store_o(f, &y->x, row, c, sum[i / 4][i % 4], &f->part_of[y->x.row + row], dtype);
        else
            to[(int64_t)row * a->head_dim + c] = sum[i / 4][i % 4];
    }
}

DEVICE values values_of(const sheaf__attention_few *f)
{
    values y;
    const uint32_t slices = ((uint32_t)f->part.head_dim + FEW_CHANNELS - 1) / FEW_CHANNELS,
                   at = blockIdx.x / slices, parts = (uint32_t)f->parts;
    y.f = f;
    y.channel = (int32_t)(blockIdx.x % slices) * FEW_CHANNELS;
    y.part = (int32_t)(at % parts);
    y.x = few_of(f, at / parts);
    const int64_t first = (int64_t)(f->first + y.part) * SHEAF__ATTENTION_PART,
                  last = first + SHEAF__ATTENTION_PART, end = (int64_t)f->begin + f->keys;
    y.begin = first > f->begin ? (int32_t)first : f->begin;
    y.tiles = (int32_t)((last < end ? last : end) - y.begin) / FEW_KEYS;
    return y;
}

DEVICE void values_block(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    const values y = values_of(f);
    const int ahead = attention_few_stages(f->rows) - 1;
    float sum[2][4];
    attention_clear(sum, FEW_CHANNELS);
    for (int32_t tile = 0; tile < ahead; tile++) {
        if (tile < y.tiles)
            load_values(&y, tile);
        copies_commit();
    }
    for (int32_t tile = 0; tile < y.tiles; tile++) {
        if (ahead == 7)
            copies_wait(6);
        else
            copies_wait(2);
        sync_threads();
        if (tile + ahead < y.tiles)
            load_values(&y, tile + ahead);
        copies_commit();
        if ((int)threadIdx.x / 32 < few_tiles(f))
            add_values(&y, sum, tile, dtype);
    }
    store_values(&y, sum, dtype);
}

/* ---- parts, in order ---- */

DEVICE void join_parts(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    const int64_t dim = f->part.head_dim, part = f->rows * dim,
                  i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= f->units * part)
        return;
    const few x = few_of(f, (uint32_t)(i / part));
    const int32_t row = (int32_t)(i % part / dim);
    const float *from = f->sum + i / part * f->parts * part + i % part;
    const attention_all *of = f->part_of + (x.row + row) * f->parts;
    attention_all all = { SHEAF__ATTENTION_LEAST, 0 };
    float o = 0, by, before;
    for (int32_t c = 0; c < f->parts; c++) {
        attention_join(&all, of[c].max, of[c].sum, &by, &before);
        o = fmaf(from[c * part], by, o * before);
    }
    store_o(f, &x, row, (int32_t)(i % dim), o, &all, dtype);
    if (i % dim == 0)
        store_row(f, &x, row, &all);
}

#define FEW(type, dtype)                                                                           \
    KERNEL(attention_few_scores_##type, sheaf__attention_few, ATTENTION_THREADS)                   \
    {                                                                                              \
        scores_block(a, dtype);                                                                    \
    }                                                                                              \
    KERNEL(attention_few_rows_##type, sheaf__attention_few, FEW_ROW_THREADS)                       \
    {                                                                                              \
        row_block(a, dtype);                                                                       \
    }                                                                                              \
    KERNEL(attention_few_values_##type, sheaf__attention_few, ATTENTION_THREADS)                   \
    {                                                                                              \
        values_block(a, dtype);                                                                    \
    }                                                                                              \
    KERNEL(attention_few_join_##type, sheaf__attention_few, 256)                                   \
    {                                                                                              \
        join_parts(a, dtype);                                                                      \
    }
FEW(bf16, SHEAF_BF16)
FEW(f16, SHEAF_F16)
