/* attention_mma.c - attention forward by tensor cores, in the orders mma8 and mma16.
 *
 * Keys go by once, a block at a time: scores, m, which seldom moves, exponentials, and values.
 * While a warp works on scores the block's values are on their way, and while on values the next
 * keys. */
#include "ops/devices/gpu/cuda/kernels/attention_mma.h"

typedef struct forward {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int head, kv;
    int32_t begin, end; /* of keys */
    uint16_t *q, *k, *v_tile;
} forward;

/* Of a query: rows lane / 4 and 8 on. */
typedef struct softmax {
    float max[2], lane[2][4]; /* of a part; lane[row][column / 8 % 2 * 2 + column % 2] */
    attention_all all[2];
} softmax;

/* Whether queries are kept in registers: where neither spills, nor costs a block that would run
 * beside it. */
DEVICE bool is_kept(int wide)
{
    return wide == 64 || wide == 128;
}

/* Keys from `key` on, or their values. */
DEVICE void load(const forward *f, uint16_t *to, const void *from, int64_t ld, int32_t key,
                 int wide)
{
    if (key < f->end)
        attention_load(to, f->a, (const uint16_t *)from + attention_key(f->a, &f->v, f->kv, ld), ld,
                       key, f->v.keys, SHEAF__ATTENTION_KEYS, wide);
    copies_commit();
}

/* ---- a block of keys ---- */

DEVICE void largest_of(float *max, float (*s)[4], uint32_t seen)
{
    max[0] = max[1] = SHEAF__ATTENTION_LEAST;
    UNROLL
    for (int i = 0; i < SHEAF__ATTENTION_KEYS / 2; i++) {
        float *m = &max[i / 2 % 2];
        if (seen >> i & 1 && s[i / 4][i % 4] > *m)
            *m = s[i / 4][i % 4];
    }
    UNROLL
    for (int r = 0; r < 2; r++)
        UNROLL
    for (int by = 1; by < 4; by *= 2) {
        const float other = shuffle_xor(max[r], by);
        max[r] = other > max[r] ? other : max[r];
    }
}

/* Where m of a query moves, all that its part has so far meets a factor; nothing else does, as a
 * chain may be denormal. */
DEVICE void move(softmax *x, float (*out)[4], float (*s)[4], uint32_t seen, int wide)
{
    float max[2], by[2];
    largest_of(max, s, seen);
    const bool moves = max[0] > x->max[0] + SHEAF__ATTENTION_MARGIN ||
                       max[1] > x->max[1] + SHEAF__ATTENTION_MARGIN;
    if (!any_lane(moves))
        return;
    UNROLL
    for (int r = 0; r < 2; r++) {
        by[r] = attention_move(&x->max[r], max[r]);
        UNROLL
        for (int i = 0; i < 4; i++)
            x->lane[r][i] = x->lane[r][i] * by[r];
    }
    UNROLL
    for (int i = 0; i < wide / 2; i++) {
        float *o = &out[i / 4][i % 4];
        *o = by[i / 2 % 2] == 1.0f ? *o : *o * by[i / 2 % 2];
    }
}

/* Scores of the first `cols` keys to exponentials. */
DEVICE void take_some(softmax *x, float (*s)[4], uint32_t seen, int cols)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++) {
        const int r = i / 2 % 2;
        float *to = &x->lane[r][i / 4 % 2 * 2 + i % 2];
        const float e = sheaf__exp_below(s[i / 4][i % 4] - x->max[r]);
        s[i / 4][i % 4] = sheaf__float(sheaf__bits(e) & (0 - (seen >> i & 1)));
        *to = *to + s[i / 4][i % 4];
    }
}

/* Of all; in the widest heads a quarter at a time, as registers are few. */
DEVICE void take_exponentials(softmax *x, float (*s)[4], uint32_t seen, int wide)
{
    if (wide <= 128) {
        take_some(x, s, seen, SHEAF__ATTENTION_KEYS);
        return;
    }
    ROLLED
    for (int i = 0; i < 4; i++) {
        take_some(x, s, seen, SHEAF__ATTENTION_KEYS / 4);
        seen >>= SHEAF__ATTENTION_KEYS / 8;
        attention_turn(s, SHEAF__ATTENTION_KEYS);
        attention_turn(s, SHEAF__ATTENTION_KEYS);
    }
}

/* ---- parts ---- */

DEVICE void begin_part(softmax *x, float (*out)[4], int wide)
{
    x->max[0] = x->max[1] = SHEAF__ATTENTION_LEAST;
    attention_clear(x->lane, 16); /* both rows */
    attention_clear(out, wide);
}

/* Of the parts so far, or of the only one, in `out` if it is the last, else in `total`. */
DEVICE void end_part(softmax *x, float (*out)[4], float *total, bool first, bool last, int wide)
{
    float by[2], before[2];
    UNROLL
    for (int r = 0; r < 2; r++) { /* lanes 8 apart, 4, 2, 1 */
        float sum = x->lane[r][0] + x->lane[r][2], other = x->lane[r][1] + x->lane[r][3];
        sum = sum + shuffle_xor(sum, 2);
        other = other + shuffle_xor(other, 2);
        sum = sum + shuffle_xor(sum, 1);
        other = other + shuffle_xor(other, 1);
        attention_join(&x->all[r], x->max[r], sum + other, &by[r], &before[r]);
    }
    UNROLL
    for (int i = 0; i < wide / 2; i++) {
        float *t = total + i * ATTENTION_THREADS, *o = &out[i / 4][i % 4];
        if (!first)
            *o = fmaf(*o, by[i / 2 % 2], *t * before[i / 2 % 2]);
        if (!last)
            *t = *o;
    }
    if (!last)
        begin_part(x, out, wide);
}

/* ---- all ---- */

DEVICE void start(forward *f, const sheaf__attention_part *a, int64_t task, int wide)
{
    const int heads = a->kv_heads * a->group, tile = SHEAF__ATTENTION_KEYS * attention_line(wide);
    f->a = a;
    f->head = (int)(task % heads);
    f->kv = f->head / a->group;
    /* the last queries first: they see most */
    f->v = attention_view(a, (a->tasks - 1 - task) / heads, ATTENTION_ROWS);
    f->begin = attention_begin(&f->v, f->v.first, SHEAF__ATTENTION_KEYS);
    f->end = attention_end(&f->v, f->v.first, ATTENTION_ROWS);
    f->k = (uint16_t *)shared_memory;
    f->v_tile = f->k + tile;
    f->q = f->v_tile + (is_kept(wide) ? 0 : tile);
}

/* Scores of the block's keys. */
DEVICE void scores_of(float (*s)[4], const forward *f, uint32_t (*q)[4], int wide,
                      sheaf_dtype dtype)
{
    const int warp = (int)threadIdx.x / 32;
    attention_clear(s, SHEAF__ATTENTION_KEYS);
    if (is_kept(wide)) {
        UNROLL
        for (int k = 0; k < wide / 16; k++)
            attention_step(s, q[k], f->k, k, SHEAF__ATTENTION_KEYS, wide, dtype);
    } else {
        ROLLED /* registers are few */
            for (int k = 0; k < wide / 16; k++)
        {
            attention_a(q[0], f->q + warp * 16 * attention_line(wide), k, wide);
            attention_step(s, q[0], f->k, k, SHEAF__ATTENTION_KEYS, wide, dtype);
        }
    }
    attention_scores(f->a, s, SHEAF__ATTENTION_KEYS);
}

/* And the first keys and values. */
DEVICE void load_queries(forward *f, uint32_t (*q)[4], int wide)
{
    const sheaf__attention_part *a = f->a;
    attention_load(f->q, a, (const uint16_t *)a->q + attention_q(a, &f->v, f->head), a->ldq,
                   f->v.first, f->v.queries, ATTENTION_ROWS, wide);
    load(f, f->k, a->k, a->ldk, f->begin, wide);
    copies_wait(0);
    sync_threads();
    UNROLL
    for (int k = 0; k < wide / 16 && is_kept(wide); k++)
        attention_a(q[k], f->q + threadIdx.x / 32 * 16 * attention_line(wide), k, wide);
    if (is_kept(wide))
        sync_threads();
    load(f, f->v_tile, a->v, a->ldv, f->begin, wide);
}

DEVICE void store_stats(const forward *f, const softmax *x)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL
    for (int r = 0; r < 2; r++) {
        const int32_t query = f->v.first + (int)threadIdx.x / 32 * 16 + lane / 4 + r * 8;
        if (f->a->stats != NULL && query < f->v.queries && lane % 4 == 0)
            attention_store_stats(f->a->stats + (attention_stat(f->a, &f->v, f->head) + query) * 2,
                                  &x->all[r]);
    }
}

DEVICE void forward_block(const sheaf__attention_part *a, int64_t task, int wide, sheaf_dtype dtype)
{
    float s[8][4], out[ATTENTION_WIDEST][4];
    float *total = attention_total(a, 0, 1, wide);
    uint32_t q[8][4];
    bool first = true;
    softmax x;
    forward f;
    start(&f, a, task, wide);
    const int32_t query = f.v.first + (int)threadIdx.x / 32 * 16;
    UNROLL
    for (int r = 0; r < 2; r++) {
        x.all[r].max = SHEAF__ATTENTION_LEAST;
        x.all[r].sum = 0;
    }
    begin_part(&x, out, wide);
    load_queries(&f, q, wide);
    ROLLED
    for (int32_t key = f.begin; key < f.end; key += SHEAF__ATTENTION_KEYS) {
        const int32_t next = key + SHEAF__ATTENTION_KEYS;
        const sheaf__attention_place at = { &f.v, query, key, false,
                                            attention_cuts(&f.v, f.v.first, ATTENTION_ROWS, key,
                                                           SHEAF__ATTENTION_KEYS) };
        copies_wait(1);
        sync_threads();
        scores_of(s, &f, q, wide, dtype);
        sync_threads();
        load(&f, f.k, a->k, a->ldk, next, wide);
        const uint32_t seen = attention_seen(&at, SHEAF__ATTENTION_KEYS);
        move(&x, out, s, seen, wide);
        take_exponentials(&x, s, seen, wide);
        copies_wait(1);
        sync_threads();
        attention_add(out, s, f.v_tile, &at, SHEAF__ATTENTION_KEYS, wide, dtype);
        if (next % SHEAF__ATTENTION_PART == 0 || next >= f.end) {
            end_part(&x, out, total, first, next >= f.end, wide);
            first = false;
        }
        sync_threads();
        load(&f, f.v_tile, a->v, a->ldv, next, wide);
    }
    UNROLL
    for (int i = 0; i < wide / 2; i++)
        out[i / 4][i % 4] = out[i / 4][i % 4] * attention_inverse(&x.all[i / 2 % 2]);
    attention_store(a->o, attention_o(a, &f.v, f.head) + query * a->ldo, a->ldo,
                    f.v.queries - query, out, total, false, a->head_dim, wide, dtype);
    store_stats(&f, &x);
    copies_wait(0);
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
