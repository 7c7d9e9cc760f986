/* attention_mma_back.c - the backward pass of attention by tensor cores, in the orders mma8 and
 * mma16, without sums across blocks: dq of 64 queries, over all keys they see, and dk and dv of 64
 * keys, over all queries that see them, of one query head after the other. Scores are made twice.
 *
 * Of the 64 rows and of tiles of 32 columns two matrices are in shared memory: q and do, k and v.
 * For heads wider than 128 a block makes dk or dv alone, and the next tile has to wait for room. */
#include "ops/devices/gpu/cuda/kernels/attention_mma.h"

enum { COLS = 32 };

typedef struct back {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int head, kv;
    int32_t begin, tiles; /* of columns; of a query head, if they are queries */
    uint16_t *rows, *cols;
} back;

DEVICE int rows_bytes(int wide)
{
    return ATTENTION_ROWS * attention_line(wide);
}
DEVICE uint16_t *tile_of(const back *b, int32_t step, int wide)
{
    return b->cols + (wide > 128 ? 0 : step % 2 * 2 * COLS * attention_line(wide));
}

DEVICE void place_tiles(back *b, const sheaf__attention_part *a, int wide)
{
    b->a = a;
    b->rows = (uint16_t *)shared_memory;
    b->cols = b->rows + 2 * rows_bytes(wide);
}

DEVICE void load_queries(const back *b, uint16_t *to, int head, int32_t query, int count, int wide)
{
    const sheaf__attention_part *a = b->a;
    attention_load(to, a, (const uint16_t *)a->q + attention_q(a, &b->v, head), a->ldq, query,
                   b->v.queries, count, wide);
    attention_load(to + count * attention_line(wide), a,
                   (const uint16_t *)a->d_o + attention_o(a, &b->v, head), a->ldo, query,
                   b->v.queries, count, wide);
}
DEVICE void load_keys(const back *b, uint16_t *to, int32_t key, int count, int wide)
{
    const sheaf__attention_part *a = b->a;
    attention_load(to, a, (const uint16_t *)a->k + attention_key(a, &b->v, b->kv, a->ldk), a->ldk,
                   key, b->v.keys, count, wide);
    attention_load(to + count * attention_line(wide), a,
                   (const uint16_t *)a->v + attention_key(a, &b->v, b->kv, a->ldv), a->ldv, key,
                   b->v.keys, count, wide);
}

/* Of a query that is not there: what gives zeros. */
DEVICE sheaf__attention_row row_of(const back *b, int head, int32_t query)
{
    sheaf__attention_row row = { 0, 1, 1, 0 };
    if (query < b->v.queries)
        row = b->a->row[attention_stat(b->a, &b->v, head) + query];
    return row;
}

/* 1 - t * t of scores with a cap, which ds is multiplied by. Their code stands here once. */
DEVICE void cap_factors(float (*factor)[4], const sheaf__attention_part *a, float (*s)[4])
{
    UNROLL
    for (int i = 0; i < COLS / 2; i++)
        factor[i / 4][i % 4] = s[i / 4][i % 4];
    ROLLED
    for (int j = 0; j < COLS / 8; j++) {
        UNROLL
        for (int e = 0; e < 4; e++) {
            const float t = factor[0][e] / a->cap;
            factor[0][e] = 1.0f - t * t;
        }
        attention_turn(factor, COLS);
    }
}

/* Hidden keys stay zero, also if their score is not finite. */
DEVICE void use_factors(float (*ds)[4], float (*factor)[4], uint32_t seen)
{
    UNROLL
    for (int i = 0; i < COLS / 2; i++)
        if (seen >> i & 1)
            ds[i / 4][i % 4] = ds[i / 4][i % 4] * factor[i / 4][i % 4];
}

/* The same without space for factors; scores and slopes are back in their places in the end. */
DEVICE void cap_slopes(float (*ds)[4], float (*s)[4], const sheaf__attention_part *a, uint32_t seen)
{
    ROLLED
    for (int j = 0; j < COLS / 8; j++) {
        UNROLL
        for (int e = 0; e < 4; e++) {
            const float t = s[0][e] / a->cap;
            if (seen >> (j * 4 + e) & 1)
                ds[0][e] = ds[0][e] * (1.0f - t * t);
        }
        attention_turn(ds, COLS);
        attention_turn(s, COLS);
    }
}

DEVICE float probability(float score, const sheaf__attention_row *row)
{
    return attention_quotient(sheaf__exp_below(score - row->max), row->sum, row->inverse);
}

/* p in place of a score, and, if wanted, ds in place of dp. In the widest heads a branch keeps
 * apart what would take too many registers at once. */
DEVICE void weigh(const sheaf__attention_part *a, float *s, float *dp,
                  const sheaf__attention_row *row, bool seen, bool slopes, int wide)
{
    const float p = seen || wide <= 128 ? probability(*s, row) : 0.0f,
                ds = a->scale * p * (*dp - row->whole);
    *s = seen ? p : 0.0f;
    if (slopes)
        *dp = seen ? ds : 0.0f;
}

/* Waits for the tile of a step; copies of the next one begin. */
DEVICE void arrive(void)
{
    copies_wait(0);
    sync_threads();
}

/* With no tile behind it only copies of a group are waited for. */
DEVICE void arrive_alone(void)
{
    copies_commit();
    arrive();
}

/* ---- dq ---- */

DEVICE void dq_load(const back *b, int32_t step, int wide)
{
    load_keys(b, tile_of(b, step, wide), b->begin + step * COLS, COLS, wide);
    copies_commit();
}

DEVICE void dq_start(back *b, const sheaf__attention_part *a, int64_t task, int wide)
{
    const int heads = a->kv_heads * a->group;
    place_tiles(b, a, wide);
    b->head = (int)(task % heads);
    b->kv = b->head / a->group;
    b->v = attention_view(a, (a->tasks - 1 - task) / heads, ATTENTION_ROWS);
    b->begin = attention_begin(&b->v, b->v.first, COLS);
    const int32_t end = attention_end(&b->v, b->v.first, ATTENTION_ROWS);
    b->tiles = end > b->begin ? (end - b->begin + COLS - 1) / COLS : 0;
    load_queries(b, b->rows, b->head, b->v.first, ATTENTION_ROWS, wide);
    if (b->tiles > 0)
        dq_load(b, 0, wide);
    else
        arrive_alone();
}

/* ds of a tile, from where dp was. */
DEVICE void dq_weigh(const back *b, float (*dp)[4], const sheaf__attention_place *at,
                     const uint16_t *tile, int wide, sheaf_dtype dtype)
{
    const uint16_t *q = b->rows + threadIdx.x / 32 * 16 * attention_line(wide);
    float s[COLS / 8][4];
    attention_products(s, q, tile, COLS, wide, dtype);
    attention_scores(b->a, s, COLS);
    attention_products(dp, q + rows_bytes(wide), tile + COLS * attention_line(wide), COLS, wide,
                       dtype);
    const uint32_t seen = attention_seen(at, COLS);
    UNROLL
    for (int half = 0; half < 4; half += 2) { /* read again for each tile: registers are few */
        const sheaf__attention_row row =
            row_of(b, b->head, at->row + (int)threadIdx.x % 32 / 4 + half * 4);
        UNROLL
        for (int i = 0; i < COLS / 4; i++) {
            const int j = i / 2, e = half + i % 2;
            const float ds = b->a->scale * probability(s[j][e], &row) * (dp[j][e] - row.whole);
            dp[j][e] = seen >> (j * 4 + e) & 1 ? ds : 0.0f;
        }
    }
    if (b->a->cap > 0)
        cap_slopes(dp, s, b->a, seen);
}

DEVICE void dq_block(const sheaf__attention_part *a, int64_t task, int wide, sheaf_dtype dtype)
{
    float sum[ATTENTION_WIDEST][4], dp[COLS / 8][4], *total = attention_total(a, 0, 1, wide);
    bool started = false;
    back b;
    dq_start(&b, a, task, wide);
    const int32_t query = b.v.first + (int)threadIdx.x / 32 * 16;
    attention_clear(sum, wide);
    for (int32_t step = 0; step < b.tiles; step++) {
        const int32_t key = b.begin + step * COLS;
        const sheaf__attention_place at = {
            &b.v, query, key, false, attention_cuts(&b.v, b.v.first, ATTENTION_ROWS, key, COLS)
        };
        arrive();
        if (step + 1 < b.tiles && wide <= 128)
            dq_load(&b, step + 1, wide);
        dq_weigh(&b, dp, &at, tile_of(&b, step, wide), wide, dtype);
        attention_add(sum, dp, tile_of(&b, step, wide), &at, COLS, wide, dtype);
        if ((key + COLS) % ATTENTION_CHAIN == 0 && key + COLS < b.v.keys) {
            attention_end_chains(sum, total, started, wide);
            started = true;
        }
        if (step + 1 < b.tiles && wide > 128) {
            sync_threads();
            dq_load(&b, step + 1, wide);
        }
    }
    attention_store(a->dq, attention_q(a, &b.v, b.head) + query * a->ldq, a->ldq,
                    b.v.queries - query, sum, total, started, a->head_dim, wide, dtype);
    sync_threads();
}

/* ---- dk and dv ---- */

DEVICE void dkv_load(const back *b, int32_t step, int head, int32_t query, int wide)
{
    load_queries(b, tile_of(b, step, wide), head, query, COLS, wide);
    copies_commit();
}

DEVICE void dkv_start(back *b, const sheaf__attention_part *a, int64_t task, int wide)
{
    place_tiles(b, a, wide);
    b->kv = (int)(task % a->kv_heads);
    b->v = attention_view(a, task / a->kv_heads, ATTENTION_ROWS);
    b->begin = attention_query_begin(&b->v, b->v.first, COLS);
    const int32_t end = attention_query_end(&b->v, b->v.first, ATTENTION_ROWS);
    b->tiles = end > b->begin ? (end - b->begin + COLS - 1) / COLS : 0;
    load_keys(b, b->rows, b->v.first, ATTENTION_ROWS, wide);
    if (b->tiles > 0)
        dkv_load(b, 0, b->kv * a->group, b->begin, wide);
    else
        arrive_alone();
}

/* p and ds of a tile; rows are keys, columns queries. */
DEVICE void dkv_weigh(const back *b, float (*p)[4], float (*ds)[4],
                      const sheaf__attention_place *at, const uint16_t *tile, int head, bool slopes,
                      int wide, sheaf_dtype dtype)
{
    const uint16_t *k = b->rows + threadIdx.x / 32 * 16 * attention_line(wide);
    const int t = (int)threadIdx.x % 4 * 2;
    float factor[COLS / 8][4];
    attention_products(p, k, tile, COLS, wide, dtype);
    attention_scores(b->a, p, COLS);
    if (slopes)
        attention_products(ds, k + rows_bytes(wide), tile + COLS * attention_line(wide), COLS, wide,
                           dtype);
    const uint32_t seen = attention_seen(at, COLS);
    if (slopes && b->a->cap > 0)
        cap_factors(factor, b->a, p);
    UNROLL
    for (int j = 0; j < COLS / 8; j++)
        UNROLL
    for (int e = 0; e < 2; e++) {
        const sheaf__attention_row row = row_of(b, head, at->col + j * 8 + t + e);
        UNROLL
        for (int half = 0; half < 4; half += 2)
            weigh(b->a, &p[j][half + e], &ds[j][half + e], &row, seen >> (j * 4 + half + e) & 1,
                  slopes, wide);
    }
    if (slopes && b->a->cap > 0)
        use_factors(ds, factor, seen);
}

/* with: 1 dv, 2 dk, 3 both. */
DEVICE void dkv_block(const sheaf__attention_part *a, int64_t task, int with, int wide,
                      sheaf_dtype dtype)
{
    float dk[ATTENTION_WIDEST][4], dv[ATTENTION_WIDEST][4], p[COLS / 8][4], ds[COLS / 8][4];
    float *k_total = attention_total(a, 0, 2, wide), *v_total = attention_total(a, 1, 2, wide);
    bool started = false;
    back b;
    dkv_start(&b, a, task, wide);
    const int32_t key = b.v.first + (int)threadIdx.x / 32 * 16, steps = b.tiles * a->group,
                  end = b.begin + b.tiles * COLS;
    int head = b.kv * a->group; /* of the step's tile, */
    int32_t query = b.begin;    /* begins there */
    attention_clear(dk, wide);
    attention_clear(dv, wide);
    ROLLED
    for (int32_t step = 0; step < steps; step++) {
        const uint16_t *tile = tile_of(&b, step, wide);
        const sheaf__attention_place at = {
            &b.v, key, query, true, attention_cuts(&b.v, query, COLS, b.v.first, ATTENTION_ROWS)
        };
        const bool ends = query + COLS == end;
        const int next_head = ends ? head + 1 : head;
        const int32_t next = ends ? b.begin : query + COLS;
        arrive();
        if (step + 1 < steps && wide <= 128)
            dkv_load(&b, step + 1, next_head, next, wide);
        dkv_weigh(&b, p, ds, &at, tile, head, with & 2, wide, dtype);
        if (with & 1)
            attention_add(dv, p, tile + COLS * attention_line(wide), &at, COLS, wide, dtype);
        if (with & 2)
            attention_add(dk, ds, tile, &at, COLS, wide, dtype);
        if ((query + COLS) % ATTENTION_CHAIN == 0 && query + COLS < b.v.queries) {
            if (with & 1)
                attention_end_chains(dv, v_total, started, wide);
            if (with & 2)
                attention_end_chains(dk, k_total, started, wide);
            started = true;
        }
        if (step + 1 < steps && wide > 128) {
            sync_threads();
            dkv_load(&b, step + 1, next_head, next, wide);
        }
        head = next_head;
        query = next;
    }
    if (with & 1)
        attention_store(a->dv, attention_key(a, &b.v, b.kv, a->ldv) + key * a->ldv, a->ldv,
                        b.v.keys - key, dv, v_total, started, a->head_dim, wide, dtype);
    if (with & 2)
        attention_store(a->dk, attention_key(a, &b.v, b.kv, a->ldk) + key * a->ldk, a->ldk,
                        b.v.keys - key, dk, k_total, started, a->head_dim, wide, dtype);
    sync_threads();
}

#define BACK(name, wide, type, block)                                                              \
    KERNEL(attention_##name##_mma##wide##_##type, sheaf__attention_part, TWICE(ATTENTION_THREADS)) \
    {                                                                                              \
        for (int64_t task = blockIdx.x; task < a->tasks; task += gridDim.x)                        \
            block;                                                                                 \
    }
#define BACKS(wide, type, dtype)                                                                   \
    BACK(dq, wide, type, dq_block(a, task, wide, dtype))                                           \
    BACK(dkv, wide, type, dkv_block(a, task, 3, wide, dtype))
BACKS(64, bf16, SHEAF_BF16)
BACKS(64, f16, SHEAF_F16)
BACKS(96, bf16, SHEAF_BF16)
BACKS(96, f16, SHEAF_F16)
BACKS(128, bf16, SHEAF_BF16)
BACKS(128, f16, SHEAF_F16)
BACK(dq, 256, bf16, dq_block(a, task, 256, SHEAF_BF16))
BACK(dq, 256, f16, dq_block(a, task, 256, SHEAF_F16))
BACK(dv, 256, bf16, dkv_block(a, task, 1, 256, SHEAF_BF16))
BACK(dv, 256, f16, dkv_block(a, task, 1, 256, SHEAF_F16))
BACK(dk, 256, bf16, dkv_block(a, task, 2, 256, SHEAF_BF16))
BACK(dk, 256, f16, dkv_block(a, task, 2, 256, SHEAF_F16))
