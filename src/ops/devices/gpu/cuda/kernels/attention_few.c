/* attention_few.c - attention forward of few queries over many keys (attention_few.h).
 *
 * Scores are computed in parallel over keys, a row's probabilities by one block, and their sums
 * with values in parallel over chains and channels. So k and v are read once. */
#include "ops/devices/gpu/cuda/kernels/attention_few.h"
#include "ops/devices/gpu/cuda/kernels/attention_mma.h"

/* A unit of the work, and its place. */
typedef struct few {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int kv;
    int64_t row; /* its first row of score and weight */
} few;

DEVICE few few_of(const sheaf__attention_few *f, int64_t unit)
{
    few x;
    x.a = &f->part;
    x.v = attention_view(x.a, (f->unit + unit) / x.a->kv_heads, 1);
    x.kv = (int)((f->unit + unit) % x.a->kv_heads);
    x.row = unit * f->rows;
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

/* ---- probabilities: a block has a row ---- */

DEVICE float row_max(sheaf__attention_few_row *m, const few *x, const float *score, int32_t query,
                     int32_t begin, int32_t keys)
{
    float max = sheaf__float(0xff800000u);
    UNROLL
    for (int32_t j = (int32_t)threadIdx.x; j < keys; j += FEW_ROW_THREADS) {
        const float s = score[j];
        max = attention_sees(&x->v, query, begin + j) && s > max ? s : max;
    }
    UNROLL
    for (int by = 16; by > 0; by /= 2) {
        const float other = shuffle_xor(max, by);
        max = other > max ? other : max;
    }
    if (threadIdx.x % 32 == 0)
        m->max[threadIdx.x / 32] = max;
    sync_threads();
    max = m->max[0];
    UNROLL
    for (int i = 1; i < FEW_ROW_THREADS / 32; i++)
        max = m->max[i] > max ? m->max[i] : max;
    return max + 0.0f;
}

/* Four numbers that many threads read, each the next one. */
DEVICE void take_four(float *s, const float *from, int32_t j, int32_t count, int32_t threads)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        s[i] = j + i * threads < count ? from[j + i * threads] : 0.0f;
}

/* Exponentials of a chunk, by all warps but the first. */
DEVICE void take_exponentials(float *chunk, const few *x, float *score, int32_t query,
                              int32_t begin, int32_t count, float max)
{
    const int32_t first = (int32_t)threadIdx.x - 32;
    float s[4];
    take_four(s, score, first, count, FEW_ROW_CHUNK / 4);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int32_t j = first + i * (FEW_ROW_CHUNK / 4);
        if (j >= count)
            continue;
        const bool seen = attention_sees(&x->v, query, begin + j);
        const float e = sheaf__exp_of(s[i] - max);
        score[j] = seen ? e : -1.0f;
        chunk[j] = seen ? e : 0.0f;
    }
}

/* lane += a chunk, of which each 16 begin at a whole multiple. */
DEVICE float add_chunk(float lane, const float *chunk, int32_t count)
{
    const float *from = chunk + threadIdx.x % 16;
    for (int32_t j = 0; j < count; j += 128) {
        float e[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            e[i] = from[j + i * 16];
        UNROLL
        for (int i = 0; i < 8; i++)
            lane = lane + e[i];
    }
    return lane;
}

/* The first warp adds a chunk while the others work on the next one. */
DEVICE float row_sum(sheaf__attention_few_row *m, const few *x, float *score, int32_t query,
                     int32_t begin, int32_t keys, float max)
{
    float lane = 0;
    for (int32_t j = 0; j < keys + FEW_ROW_CHUNK; j += FEW_ROW_CHUNK) {
        const int32_t own = threadIdx.x < 32 ? j - FEW_ROW_CHUNK : j,
                      count = keys - own < FEW_ROW_CHUNK ? keys - own : FEW_ROW_CHUNK;
        float *chunk = m->chunk[(own + FEW_ROW_CHUNK) / FEW_ROW_CHUNK % 2];
        if (threadIdx.x >= 32)
            take_exponentials(chunk, x, score + own, query, begin + own, count, max);
        else if (own >= 0)
            lane = add_chunk(lane, chunk, count);
        sync_threads();
    }
    UNROLL
    for (int by = 8; by > 0; by /= 2)
        lane = lane + shuffle_xor(lane, by);
    if (threadIdx.x == 0)
        m->sum = sheaf__one_nan(lane);
    sync_threads();
    return m->sum;
}

DEVICE void row_block(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    sheaf__attention_few_row *m = (sheaf__attention_few_row *)(void *)shared_memory;
    const sheaf__attention_part *a = &f->part;
    const few x = few_of(f, blockIdx.x / f->rows);
    const int32_t row = (int32_t)(blockIdx.x % f->rows), query = row / a->group;
    float *score = f->score + (x.row + row) * f->keys;
    uint16_t *weight = f->weight + (x.row + row) * f->keys;
    const float max = row_max(m, &x, score, query, f->begin, f->keys);
    const float sum = row_sum(m, &x, score, query, f->begin, f->keys, max), inverse = 1.0f / sum;
    for (int32_t j = (int32_t)threadIdx.x; j < f->keys; j += 4 * FEW_ROW_THREADS) {
        float e[4];
        take_four(e, score, j, f->keys, FEW_ROW_THREADS);
        UNROLL
        for (int i = 0; i < 4; i++)
            if (j + i * FEW_ROW_THREADS < f->keys)
                sheaf__store(weight, j + i * FEW_ROW_THREADS,
                             e[i] < 0 ? 0.0f : attention_quotient(e[i], sum, inverse), dtype);
    }
    if (a->stats != NULL && threadIdx.x == 0) {
        float *stats =
            a->stats + (attention_stat(a, &x.v, x.kv * a->group + row % a->group) + query) * 2;
        stats[0] = max;
        stats[1] = sum;
    }
}

/* ---- sums with values: a block has a chain and FEW_CHANNELS channels of a unit ---- */

typedef struct values {
    const sheaf__attention_few *f;
    few x;
    int32_t channel, chain, begin, tiles; /* begin: of the keys */
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

/* A tile of the warp's 16 rows, row by row (attention_add_apart). */
DEVICE void add_apart(const values *y, float (*sum)[4], const uint16_t *v, const uint16_t *w,
                      int32_t key, sheaf_dtype dtype)
{
    ROLLED
    for (int k = 0; k < FEW_KEYS / 16; k++) {
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
        attention_a(weight, w, k, FEW_KEYS);
        load_transposed(b, v + (k * 16 + lane % 16) * attention_line(FEW_CHANNELS) + lane / 16 * 8);
        attention_mma(sum[0], weight, b, dtype);
        attention_mma(sum[1], weight, b + 2, dtype);
    }
}

DEVICE void store_values(const values *y, float (*sum)[4], sheaf_dtype dtype)
{
    const sheaf__attention_few *f = y->f;
    const sheaf__attention_part *a = &f->part;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float *to = f->sum + (y->x.row * f->chains + (int64_t)y->chain * f->rows) * a->head_dim;
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int32_t row = warp * 16 + lane / 4 + i / 2 % 2 * 8,
                      c = y->channel + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row >= f->rows || c >= a->head_dim)
            continue;
        if (f->chains == 1)
            sheaf__store(a->o, few_at(&y->x, row, a->ldo) + c, sum[i / 4][i % 4] + 0.0f, dtype);
        else
            to[(int64_t)row * a->head_dim + c] = sum[i / 4][i % 4];
    }
}

DEVICE values values_of(const sheaf__attention_few *f)
{
    values y;
    const int32_t slices = (f->part.head_dim + FEW_CHANNELS - 1) / FEW_CHANNELS;
    y.f = f;
    y.channel = (int32_t)(blockIdx.x % slices) * FEW_CHANNELS;
    y.chain = (int32_t)(blockIdx.x / slices % f->chains);
    y.x = few_of(f, blockIdx.x / slices / f->chains);
    const int64_t first = (int64_t)(f->chain + y.chain) * ATTENTION_CHAIN,
                  last = first + ATTENTION_CHAIN, end = (int64_t)f->begin + f->keys;
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

/* ---- chains, in order ---- */

DEVICE void join_chains(const sheaf__attention_few *f, sheaf_dtype dtype)
{
    const int64_t dim = f->part.head_dim, chain = f->rows * dim,
                  i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= f->units * chain)
        return;
    const few x = few_of(f, i / chain);
    const float *from = f->sum + i / chain * f->chains * chain + i % chain;
    float total = 0;
    for (int32_t c = 0; c < f->chains; c++)
        total = total + from[c * chain];
    sheaf__store(f->part.o, few_at(&x, (int32_t)(i % chain / dim), f->part.ldo) + i % dim,
                 total + 0.0f, dtype);
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
        join_chains(a, dtype);                                                                     \
    }
FEW(bf16, SHEAF_BF16)
FEW(f16, SHEAF_F16)
