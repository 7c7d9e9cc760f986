/* attention_mma.c - attention forward by tensor cores, in the orders mma8 and mma16.
 *
 * Keys go by three times: for the largest score of each query, for the sum of exponentials, and for
 * probabilities, which are rounded after the sum is known, and meet the values. The next tile is
 * copied while one is worked on. */
#include "ops/devices/gpu/cuda/kernels/attention_mma.h"

enum { PASS_MAX, PASS_SUM, PASS_VALUES, PASSES };

typedef struct forward {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int head, kv;
    int32_t begin, tiles; /* of keys, of each pass */
    uint16_t *q, *k, *v_tile;
} forward;

/* Keys of a tile. */
DEVICE int cols_of(int wide)
{
    return wide > 128 ? 32 : 64;
}

/* Whether queries are kept in registers: where neither spills, nor costs a block that would run
 * beside it. */
DEVICE bool is_kept(int wide)
{
    return wide == 64 || wide == 128;
}

/* Of two tiles of k and two of v. q has its own, or, where it is kept in registers, that of the
 * second k for a while. */
DEVICE uint16_t *tile_of(uint16_t *first, int32_t step, int wide)
{
    return first + step % 2 * cols_of(wide) * attention_line(wide);
}

DEVICE void load(const forward *f, int32_t step, int pass, int32_t key, int wide)
{
    const sheaf__attention_part *a = f->a;
    attention_load(tile_of(f->k, step, wide), a,
                   (const uint16_t *)a->k + attention_key(a, &f->v, f->kv, a->ldk), a->ldk, key,
                   f->v.keys, cols_of(wide), wide);
    if (pass == PASS_VALUES)
        attention_load(tile_of(f->v_tile, step, wide), a,
                       (const uint16_t *)a->v + attention_key(a, &f->v, f->kv, a->ldv), a->ldv, key,
                       f->v.keys, cols_of(wide), wide);
    copies_commit();
}

/* ---- the first two passes ---- */

DEVICE void take_largest(float *max, float (*s)[4], uint32_t seen, int cols)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++) {
        float *m = &max[i / 2 % 2];
        if (seen >> i & 1 && s[i / 4][i % 4] > *m)
            *m = s[i / 4][i % 4];
    }
}

DEVICE void end_largest(float *max)
{
    UNROLL
    for (int r = 0; r < 2; r++) {
        UNROLL
        for (int by = 1; by < 4; by *= 2) {
            const float other = shuffle_xor(max[r], by);
            max[r] = other > max[r] ? other : max[r];
        }
        max[r] = max[r] + 0.0f;
    }
}

/* lane[row][column / 8 % 2 * 2 + column % 2]. */
DEVICE void take_sums(float (*lane)[4], const float *max, float (*s)[4], uint32_t seen, int cols)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++) {
        const float e = sheaf__exp_below(s[i / 4][i % 4] - max[i / 2 % 2]);
        float *to = &lane[i / 2 % 2][i / 4 % 2 * 2 + i % 2];
        *to = *to + (seen >> i & 1 ? e : 0.0f);
    }
}

/* Lanes 8 apart, 4, 2, 1. */
DEVICE void end_sums(float *sum, float *inverse, float (*lane)[4])
{
    UNROLL
    for (int r = 0; r < 2; r++) {
        float x = lane[r][0] + lane[r][2], y = lane[r][1] + lane[r][3];
        x = x + shuffle_xor(x, 2);
        y = y + shuffle_xor(y, 2);
        x = x + shuffle_xor(x, 1);
        y = y + shuffle_xor(y, 1);
        sum[r] = sheaf__one_nan(x + y);
        inverse[r] = 1.0f / sum[r];
    }
}

/* ---- all ---- */

DEVICE void take_weights(float (*s)[4], const float *max, const float *sum, const float *inverse,
                         uint32_t seen, int cols)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++) {
        const int r = i / 2 % 2;
        const float e = sheaf__exp_below(s[i / 4][i % 4] - max[r]),
                    p = attention_quotient(e, sum[r], inverse[r]);
        s[i / 4][i % 4] = sheaf__float(sheaf__bits(p) & (0 - (seen >> i & 1)));
    }
}

DEVICE void start(forward *f, const sheaf__attention_part *a, int64_t task, int wide)
{
    const int heads = a->kv_heads * a->group, tile = cols_of(wide) * attention_line(wide);
    f->a = a;
    f->head = (int)(task % heads);
    f->kv = f->head / a->group;
    /* the last queries first: they see most */
    f->v = attention_view(a, (a->tasks - 1 - task) / heads, ATTENTION_ROWS);
    f->begin = attention_begin(&f->v, f->v.first, cols_of(wide));
    const int32_t end = attention_end(&f->v, f->v.first, ATTENTION_ROWS);
    f->tiles = end > f->begin ? (end - f->begin + cols_of(wide) - 1) / cols_of(wide) : 0;
    f->k = (uint16_t *)shared_memory;
    f->v_tile = f->k + 2 * tile;
    f->q = !is_kept(wide) ? f->v_tile + 2 * tile : f->k + tile;
}

/* Scores of the tile of a step. */
DEVICE void scores_of(float (*s)[4], const forward *f, uint32_t (*q)[4], int32_t step, int wide,
                      sheaf_dtype dtype)
{
    const int cols = cols_of(wide), warp = (int)threadIdx.x / 32;
    const uint16_t *tile = tile_of(f->k, step, wide);
    if (!is_kept(wide)) {
        attention_products(s, f->q + warp * 16 * attention_line(wide), tile, cols, wide, dtype);
    } else {
        attention_clear(s, cols);
        UNROLL
        for (int k = 0; k < wide / 16; k++)
            attention_step(s, q[k], tile, k, cols, wide, dtype);
    }
    attention_scores(f->a, s, cols);
}

DEVICE void load_queries(forward *f, uint32_t (*q)[4], int wide)
{
    const sheaf__attention_part *a = f->a;
    attention_load(f->q, a, (const uint16_t *)a->q + attention_q(a, &f->v, f->head), a->ldq,
                   f->v.first, f->v.queries, ATTENTION_ROWS, wide);
    copies_commit();
    if (f->tiles > 0)
        load(f, 0, PASS_MAX, f->begin, wide);
    copies_wait(0);
    sync_threads();
    UNROLL
    for (int k = 0; k < wide / 16 && is_kept(wide); k++)
        attention_a(q[k], f->q + threadIdx.x / 32 * 16 * attention_line(wide), k, wide);
}

DEVICE void store_stats(const forward *f, const float *max, const float *sum)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL
    for (int r = 0; r < 2; r++) {
        const int32_t query = f->v.first + (int)threadIdx.x / 32 * 16 + lane / 4 + r * 8;
        if (f->a->stats == NULL || query >= f->v.queries || lane % 4 != 0)
            continue;
        float *stats = f->a->stats + (attention_stat(f->a, &f->v, f->head) + query) * 2;
        stats[0] = max[r];
        stats[1] = sum[r];
    }
}

DEVICE void forward_block(const sheaf__attention_part *a, int64_t task, int wide, sheaf_dtype dtype)
{
    const int cols = cols_of(wide);
    float max[2] = { sheaf__float(0xff800000u), sheaf__float(0xff800000u) }, sum[2] = { 0, 0 },
          inverse[2] = { 0, 0 }, lane[2][4], s[8][4], out[ATTENTION_WIDEST][4];
    float *total = attention_total(a, 0, 1, wide);
    uint32_t q[8][4];
    bool started = false;
    forward f;
    start(&f, a, task, wide);
    const int32_t query = f.v.first + (int)threadIdx.x / 32 * 16;
    attention_clear(out, wide);
    attention_clear(lane, 16); /* both rows */
    load_queries(&f, q, wide);
    int32_t step = 0;
    ROLLED
    for (int pass = PASS_MAX; pass < PASSES; pass++) {
        const int32_t end = f.begin + f.tiles * cols;
        ROLLED
        for (int32_t key = f.begin; key < end; key += cols, step++) {
            const sheaf__attention_place at = {
                &f.v, query, key, false, attention_cuts(&f.v, f.v.first, ATTENTION_ROWS, key, cols)
            };
            copies_wait(0);
            sync_threads();
            if (key + cols < end)
                load(&f, step + 1, pass, key + cols, wide);
            else if (pass < PASS_VALUES)
                load(&f, step + 1, pass + 1, f.begin, wide);
            scores_of(s, &f, q, step, wide, dtype);
            const uint32_t seen = attention_seen(&at, cols);
            if (pass == PASS_MAX) {
                take_largest(max, s, seen, cols);
            } else if (pass == PASS_SUM) {
                take_sums(lane, max, s, seen, cols);
            } else {
                take_weights(s, max, sum, inverse, seen, cols);
                attention_add(out, s, tile_of(f.v_tile, step, wide), &at, cols, wide, dtype);
                if ((key + cols) % ATTENTION_CHAIN == 0 && key + cols < f.v.keys) {
                    attention_end_chains(out, total, started, wide);
                    started = true;
                }
            }
        }
        if (pass == PASS_MAX)
            end_largest(max);
        if (pass == PASS_SUM)
            end_sums(sum, inverse, lane);
    }
    attention_store(a->o, attention_o(a, &f.v, f.head) + query * a->ldo, a->ldo,
                    f.v.queries - query, out, total, started, a->head_dim, wide, dtype);
    store_stats(&f, max, sum);
    sync_threads();
}

#define FORWARD(wide, type, dtype)                                                                 \
    KERNEL(attention_forward_mma##wide##_##type, sheaf__attention_part, TWICE(ATTENTION_THREADS))  \
    {                                                                                              \
        for (int64_t task = blockIdx.x; task < a->tasks; task += gridDim.x)                        \
            forward_block(a, task, wide, dtype);                                                   \
    }
#define FORWARDS(wide)                                                                             \
    FORWARD(wide, bf16, SHEAF_BF16)                                                                \
    FORWARD(wide, f16, SHEAF_F16)
FORWARDS(64)
FORWARDS(96)
FORWARDS(128)
FORWARDS(256)
