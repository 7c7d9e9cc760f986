/* attention_fma.c - attention in every order that is not that of tensor cores: float32, pairs and
 * tiles, by fma.
 *
 * A block of 256 threads has 32 queries and 32 keys at a time, as floats in shared memory; a thread
 * has the scores of 2 queries (threadIdx / 16, and 16 on) and 2 keys (threadIdx % 16), and sums of
 * 2 rows and of each 16th channel. What a query does not see is left out of every sum. */
#include "ops/devices/gpu/kernels/attention.h"

enum { THREADS = 256, SIDE = 32, LINE = SIDE + 1, PARTS = 16 };

/* Shared memory: two tiles of 32 rows, the weights of 32 x 32 pairs, and which are seen. */
typedef struct room {
    float *x, *y, *weight;
    uint8_t *seen;
    int ld, wide; /* channels, to a multiple of 32; ld is odd */
} room;

DEVICE room room_of(const sheaf__attention_part *a)
{
    room r;
    r.wide = (a->head_dim + 31) / 32 * 32;
    r.ld = r.wide + 1;
    r.x = (float *)shared_memory;
    r.y = r.x + SIDE * r.ld;
    r.weight = r.y + SIDE * r.ld;
    r.seen = (uint8_t *)(r.weight + SIDE * LINE);
    return r;
}

/* Rows [row, row + 32) of `rows`, with zeros behind them and behind their channels. */
DEVICE void load_tile(float *to, const room *r, const void *from, int64_t at, int64_t ld,
                      int32_t row, int32_t rows, int head_dim, sheaf_dtype dtype)
{
    for (int i = (int)threadIdx.x; i < SIDE * r->wide; i += THREADS) {
        const int line = i / r->wide, c = i % r->wide;
        const bool there = row + line < rows && c < head_dim;
        to[line * r->ld + c] =
            there ? sheaf__load(from, at + (int64_t)(row + line) * ld + c, dtype) : 0.0f;
    }
}

/* sum += of one channel: rows threadIdx / 16 (and 16 on) of x, threadIdx % 16 of y. */
DEVICE void add_channel(float (*sum)[2], const float *x, const float *y, int far)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        sum[i / 2][i % 2] = fmaf(x[i / 2 * far], y[i % 2 * far], sum[i / 2][i % 2]);
}

/* Products over channels of 2 rows of x and 2 of y. */
DEVICE void products(float (*sum)[2], const room *r, const sheaf__attention_part *a)
{
    const float *x = r->x + threadIdx.x / 16 * r->ld, *y = r->y + threadIdx.x % 16 * r->ld;
    const int far = 16 * r->ld, swap = a->pairs ? 1 : 0;
    const int end = a->pairs ? (a->head_dim + 1) / 2 * 2 : a->head_dim;
    UNROLL
    for (int i = 0; i < 4; i++)
        sum[i / 2][i % 2] = 0;
    for (int n = 0; n < end && !a->tiles; n++)
        add_channel(sum, x + (n ^ swap), y + (n ^ swap), far);
    for (int c0 = 0; c0 < r->wide && a->tiles; c0 += SIDE) {
        float even[2][2] = { { 0, 0 }, { 0, 0 } }, odd[2][2] = { { 0, 0 }, { 0, 0 } };
        for (int c = c0; c < c0 + SIDE; c += 2) {
            add_channel(even, x + c, y + c, far);
            add_channel(odd, x + c + 1, y + c + 1, far);
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            sum[i / 2][i % 2] = sum[i / 2][i % 2] + (even[i / 2][i % 2] + odd[i / 2][i % 2]);
    }
}

/* ---- sums over keys or queries ---- */

/* Of rows threadIdx / 16 and 16 on, channels threadIdx % 16 and each 16th on. In `tiles` the chain
 * is the sum of chunks. */
typedef struct running {
    float chain[2][PARTS], total[2][PARTS];
} running;

DEVICE void begin(running *to)
{
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++)
        to->chain[i / PARTS][i % PARTS] = to->total[i / PARTS][i % PARTS] = 0;
}

/* One index: its row of values, half of them or all, and where its weights and whether it is seen
 * stand. */
DEVICE void add_index(float (*sum)[4], const float *weight, const uint8_t *seen, int down,
                      const float *value, bool half)
{
    UNROLL
    for (int i = 0; i < 2; i++)
        if (seen[i * down])
            UNROLL
    for (int c = 0; c < 4; c++)
        if (c < 2 || !half)
            sum[i][c] = fmaf(weight[i * down], value[c * 16], sum[i][c]);
}

/* A constant where it can be: registers are few. */
DEVICE bool in_tiles(const sheaf__attention_part *a, sheaf_dtype dtype)
{
    return dtype == SHEAF_BF16 && a->tiles;
}

/* A tile of 32 indices, whose rows are `values`; weights are [row][index], or across. */
DEVICE void add_tile(running *to, const room *r, const float *values, bool across,
                     const sheaf__attention_part *a, sheaf_dtype dtype)
{
    const int row = threadIdx.x / 16, down = across ? 16 : 16 * LINE, next = across ? LINE : 1;
    const int at = across ? row : row * LINE, swap = a->pairs ? 1 : 0;
    UNROLL
    for (int p = 0; p < PARTS / 4; p++) {
        const float *value = values + threadIdx.x % 16 + p * 64;
        float even[2][4], odd[2][4];
        const bool half = r->wide - p * 64 <= 32;
        if (p * 64 >= r->wide)
            continue;
        UNROLL
        for (int i = 0; i < 8; i++) {
            even[i / 4][i % 4] = in_tiles(a, dtype) ? 0 : to->chain[i / 4][p * 4 + i % 4];
            odd[i / 4][i % 4] = 0;
        }
        for (int n = 0; n < SIDE; n += 2) {
            const int one = n + swap, other = n + 1 - swap;
            add_index(even, r->weight + at + one * next, r->seen + at + one * next, down,
                      value + one * r->ld, half);
            const float *weight = r->weight + at + other * next;
            if (in_tiles(a, dtype))
                add_index(odd, weight, r->seen + at + other * next, down, value + other * r->ld,
                          half);
            else
                add_index(even, weight, r->seen + at + other * next, down, value + other * r->ld,
                          half);
        }
        UNROLL
        for (int i = 0; i < 8; i++) {
            float *chain = &to->chain[i / 4][p * 4 + i % 4];
            *chain = in_tiles(a, dtype) ? *chain + (even[i / 4][i % 4] + odd[i / 4][i % 4])
                                        : even[i / 4][i % 4];
        }
    }
}

DEVICE void end_block(running *to)
{
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) {
        float *chain = &to->chain[i / PARTS][i % PARTS];
        to->total[i / PARTS][i % PARTS] = to->total[i / PARTS][i % PARTS] + *chain;
        *chain = 0;
    }
}

/* After the tile from `index`, or the last one. */
DEVICE void end_tile(running *to, int32_t index, bool last)
{
    if (last || (index + SIDE) % ATTENTION_BLOCK == 0)
        end_block(to);
}

DEVICE void store(void *to, int64_t at, int64_t ld, int32_t rows, const running *from, int head_dim,
                  sheaf_dtype dtype)
{
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) {
        const int row = (int)threadIdx.x / 16 + i / PARTS * 16,
                  c = (int)threadIdx.x % 16 + i % PARTS * 16;
        if (row < rows && c < head_dim)
            sheaf__store(to, at + row * ld + c, from->total[i / PARTS][i % PARTS] + 0.0f, dtype);
    }
}

/* ---- a tile of pairs ---- */

/* The queries and keys that it begins with, of one head. */
typedef struct tile {
    const sheaf__attention_part *a;
    sheaf__attention_view v;
    int head, kv;
    int32_t query, key;
} tile;

DEVICE void load_queries(float *to, const room *r, const tile *t, const void *from, int64_t at,
                         int64_t ld, sheaf_dtype dtype)
{
    load_tile(to, r, from, at, ld, t->query, t->v.queries, t->a->head_dim, dtype);
}
DEVICE void load_keys(float *to, const room *r, const tile *t, const void *from, int64_t ld,
                      sheaf_dtype dtype)
{
    load_tile(to, r, from, attention_key(t->a, &t->v, t->kv, ld), ld, t->key, t->v.keys,
              t->a->head_dim, dtype);
}

/* Scores of the thread's pairs; the tiles are left in x and y. */
DEVICE void scores(float (*s)[2], const room *r, const tile *t, bool queries, sheaf_dtype dtype)
{
    sync_threads();
    if (queries)
        load_queries(r->x, r, t, t->a->q, attention_q(t->a, &t->v, t->head), t->a->ldq, dtype);
    load_keys(r->y, r, t, t->a->k, t->a->ldk, dtype);
    sync_threads();
    products(s, r, t->a);
    UNROLL
    for (int i = 0; i < 4; i++)
        s[i / 2][i % 2] = attention_score(t->a, s[i / 2][i % 2]);
}

DEVICE bool sees(const tile *t, int i)
{
    return attention_sees(&t->v, t->query + (int)threadIdx.x / 16 + i / 2 * 16,
                          t->key + (int)threadIdx.x % 16 + i % 2 * 16);
}

DEVICE void put_weight(const room *r, const tile *t, int i, float weight)
{
    const int at = ((int)threadIdx.x / 16 + i / 2 * 16) * LINE + (int)threadIdx.x % 16 + i % 2 * 16;
    r->weight[at] = weight;
    r->seen[at] = sees(t, i) ? 1 : 0;
}

/* ---- forward ---- */

/* Of 2 queries, of a part: m, the thread's lane, and o, which is the `total`. */
typedef struct forward {
    float max[2], lane[2];
    running o;
} forward;

/* m moves by the scores of a block of two tiles, and with it what the part has so far. */
DEVICE void take_block(forward *f, float (*s)[2][2])
{
    UNROLL
    for (int r = 0; r < 2; r++) {
        float max = f->max[r]; /* it moves by more only */
        UNROLL
        for (int i = 0; i < 4; i++) {
            const float x = s[i / 2][r][i % 2];
            max = x > max ? x : max;
        }
        UNROLL
        for (int by = 1; by < 16; by *= 2) {
            const float other = shuffle_xor(max, by);
            max = other > max ? other : max;
        }
        const float by = attention_move(&f->max[r], max);
        f->lane[r] = f->lane[r] * by;
        UNROLL
        for (int i = 0; i < PARTS; i++)
            f->o.total[r][i] = f->o.total[r][i] * by;
    }
}

/* Tile `h` of a block: its exponentials and values. A thread's keys are of one lane. */
DEVICE void take_values(forward *f, const room *r, const tile *t, float (*s)[2], sheaf_dtype dtype)
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float e = sees(t, i) ? sheaf__exp_of(s[i / 2][i % 2] - f->max[i / 2]) : 0.0f;
        f->lane[i / 2] = f->lane[i / 2] + e;
        put_weight(r, t, i, sheaf__rounded(e, dtype));
    }
    sync_threads();
    load_keys(r->y, r, t, t->a->v, t->a->ldv, dtype);
    sync_threads();
    add_tile(&f->o, r, r->y, false, t->a, dtype);
}

DEVICE void begin_part(forward *f)
{
    begin(&f->o);
    UNROLL
    for (int r = 0; r < 2; r++) {
        f->max[r] = SHEAF__ATTENTION_LEAST;
        f->lane[r] = 0;
    }
}

/* Of the parts so far, or of the only one: in `all` and `o` if it is the last. Before, in memory:
 * two blocks shall fit a multiprocessor. */
DEVICE void end_part(attention_all *all, forward *f, const room *r, const sheaf__attention_part *a,
                     bool first, bool last)
{
    enum { KEPT = 2 * PARTS + 4 };
    float *total = a->total + blockIdx.x * (KEPT * THREADS) + threadIdx.x;
    float by[2], before[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        float sum = f->lane[i], *kept = total + (2 * PARTS + i * 2) * THREADS;
        UNROLL
        for (int apart = 8; apart > 0; apart /= 2)
            sum = sum + shuffle_xor(sum, apart);
        all[i].max = first ? SHEAF__ATTENTION_LEAST : kept[0];
        all[i].sum = first ? 0 : kept[THREADS];
        attention_join(&all[i], f->max[i], sum, &by[i], &before[i]);
        if (!last) {
            kept[0] = all[i].max;
            kept[THREADS] = all[i].sum;
        }
    }
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) {
        float *o = &f->o.total[i / PARTS][i % PARTS], *t = total + i * THREADS;
        if (i % PARTS * 16 >= r->wide)
            continue;
        if (!first)
            *o = fmaf(*o, by[i / PARTS], *t * before[i / PARTS]);
        if (!last)
            *t = *o;
    }
    if (!last)
        begin_part(f);
}

/* Is the part of this key the first? */
DEVICE bool is_first(const tile *t, int32_t key)
{
    return key / SHEAF__ATTENTION_PART * SHEAF__ATTENTION_PART <= attention_first(&t->v, t->query);
}

/* A block of keys; `end` is behind the last one that is seen. */
DEVICE void attend_block(forward *f, const room *r, tile *t, int32_t end, sheaf_dtype dtype)
{
    const int32_t key = t->key;
    float s[2][2][2];
    UNROLL
    for (int h = 0; h < 2; h++) {
        t->key = key + h * SIDE;
        if (t->key < end)
            scores(s[h], r, t, false, dtype);
        UNROLL
        for (int i = 0; i < 4; i++)
            if (t->key >= end || !sees(t, i))
                s[h][i / 2][i % 2] = SHEAF__ATTENTION_LEAST;
    }
    take_block(f, s);
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) /* in `tiles` o goes on as the chain */
        f->o.chain[i / PARTS][i % PARTS] =
            in_tiles(t->a, dtype) ? f->o.total[i / PARTS][i % PARTS] : 0.0f;
    UNROLL
    for (int h = 0; h < 2; h++) {
        t->key = key + h * SIDE;
        if (t->key < end) {
            sync_threads();
            take_values(f, r, t, s[h], dtype);
        }
    }
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) {
        const float chain = f->o.chain[i / PARTS][i % PARTS], o = f->o.total[i / PARTS][i % PARTS];
        f->o.total[i / PARTS][i % PARTS] = in_tiles(t->a, dtype) ? chain : o + chain;
    }
    t->key = key;
}

/* A block has the queries of one head; those that see most keys come first. */
DEVICE tile queries_of(const sheaf__attention_part *a, int64_t task)
{
    const int heads = a->kv_heads * a->group;
    tile t;
    t.a = a;
    t.head = (int)(task % heads);
    t.kv = t.head / a->group;
    t.v = attention_view(a, (a->tasks - 1 - task) / heads, SIDE);
    t.query = t.v.first;
    return t;
}

DEVICE void forward_block(const sheaf__attention_part *a, int64_t task, sheaf_dtype dtype)
{
    const room r = room_of(a);
    tile t = queries_of(a, task);
    const int32_t end = attention_end(&t.v, t.query, SIDE);
    forward f;
    attention_all all[2];
    begin_part(&f);
    sync_threads();
    load_queries(r.x, &r, &t, a->q, attention_q(a, &t.v, t.head), a->ldq, dtype);
    t.key = attention_begin(&t.v, t.query, SHEAF__ATTENTION_KEYS);
    for (; t.key < end; t.key += SHEAF__ATTENTION_KEYS) {
        if (t.key % SHEAF__ATTENTION_PART == 0 && t.key > attention_first(&t.v, t.query))
            end_part(all, &f, &r, a, is_first(&t, t.key - 1), false);
        attend_block(&f, &r, &t, end, dtype);
    }
    end_part(all, &f, &r, a, is_first(&t, end - 1), true);
    UNROLL
    for (int i = 0; i < 2 * PARTS; i++) {
        float *o = &f.o.total[i / PARTS][i % PARTS];
        *o = *o * attention_inverse(&all[i / PARTS]);
    }
    store(a->o, attention_o(a, &t.v, t.head) + t.query * a->ldo, a->ldo, t.v.queries - t.query,
          &f.o, a->head_dim, dtype);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int32_t query = t.query + (int)threadIdx.x / 16 + i * 16;
        if (a->stats != NULL && query < t.v.queries && threadIdx.x % 16 == 0)
            attention_store_stats(a->stats + (attention_stat(a, &t.v, t.head) + query) * 2,
                                  &all[i]);
    }
}

KERNELS(attention_forward_fma, sheaf__attention_part, TWICE(THREADS))
{
    for (int64_t task = blockIdx.x; task < a->tasks; task += gridDim.x)
        forward_block(a, task, dtype);
}

/* ---- backward ---- */

/* p, or ds, of the tile's pairs as weights; queries are left in x and keys in y. */
DEVICE void weigh(const room *r, const tile *t, bool slopes, sheaf_dtype dtype)
{
    const sheaf__attention_part *a = t->a;
    float s[2][2], dp[2][2];
    if (slopes) {
        sync_threads();
        load_queries(r->x, r, t, a->d_o, attention_o(a, &t->v, t->head), a->ldo, dtype);
        load_keys(r->y, r, t, a->v, a->ldv, dtype);
        sync_threads();
        products(dp, r, a);
    }
    scores(s, r, t, true, dtype);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int32_t query = t->query + (int)threadIdx.x / 16 + i / 2 * 16;
        if (!sees(t, i)) { /* so that few exponentials are under way at once: registers */
            put_weight(r, t, i, 0);
            continue;
        }
        const sheaf__attention_row row = a->row[attention_stat(a, &t->v, t->head) + query];
        const float p = sheaf__exp_of(s[i / 2][i % 2] - row.max) / row.sum;
        put_weight(
            r, t, i,
            sheaf__rounded(
                slopes ? attention_slope(a, p, dp[i / 2][i % 2], row.whole, s[i / 2][i % 2]) : p,
                dtype));
    }
    sync_threads();
}

KERNELS(attention_dq_fma, sheaf__attention_part, THREADS)
{
    const room r = room_of(a);
    tile t = queries_of(a, blockIdx.x);
    t.key = attention_begin(&t.v, t.query, SIDE);
    const int32_t end = attention_end(&t.v, t.query, SIDE);
    running dq;
    begin(&dq);
    for (; t.key < end; t.key += SIDE) {
        weigh(&r, &t, true, dtype);
        add_tile(&dq, &r, r.y, false, a, dtype);
        end_tile(&dq, t.key, t.key + SIDE >= end);
    }
    store(a->dq, attention_q(a, &t.v, t.head) + t.query * a->ldq, a->ldq, t.v.queries - t.query,
          &dq, a->head_dim, dtype);
}

/* dv in even blocks, dk in odd ones. */
KERNELS(attention_dkv_fma, sheaf__attention_part, THREADS)
{
    const room r = room_of(a);
    const bool slopes = blockIdx.x % 2 == 1;
    tile t;
    t.a = a;
    t.kv = (int)(blockIdx.x / 2 % (unsigned)a->kv_heads);
    t.v = attention_view(a, blockIdx.x / 2 / (unsigned)a->kv_heads, SIDE);
    t.key = t.v.first;
    const int32_t from = attention_query_begin(&t.v, t.key, SIDE),
                  end = attention_query_end(&t.v, t.key, SIDE);
    running sum;
    begin(&sum);
    for (int g = 0; g < a->group; g++) {
        t.head = t.kv * a->group + g;
        for (t.query = from; t.query < end; t.query += SIDE) {
            weigh(&r, &t, slopes, dtype);
            if (!slopes) {
                load_queries(r.x, &r, &t, a->d_o, attention_o(a, &t.v, t.head), a->ldo, dtype);
                sync_threads();
            }
            add_tile(&sum, &r, r.x, true, a, dtype);
            end_tile(&sum, t.query, t.query + SIDE >= end);
        }
    }
    const int64_t ld = slopes ? a->ldk : a->ldv;
    store(slopes ? a->dk : a->dv, attention_key(a, &t.v, t.kv, ld) + t.key * ld, ld,
          t.v.keys - t.key, &sum, a->head_dim, dtype);
}

/* ---- what both backward kernels read of a query ---- */

/* 16 threads a row. */
KERNELS(attention_rows, sheaf__attention_part, THREADS)
{
    const int64_t heads = (int64_t)a->kv_heads * a->group, count = (int64_t)a->batch * a->queries,
                  n = (int64_t)blockIdx.x * 16 + threadIdx.x / 16;
    const int64_t row = n / heads, at = row * a->ldo + n % heads * a->head_dim;
    float x = 0;
    for (int c = (int)threadIdx.x % 16; c < a->head_dim && row < count; c += 16)
        x = fmaf(sheaf__load(a->d_o, at + c, dtype), sheaf__load(a->o, at + c, dtype), x);
    UNROLL
    for (int by = 8; by > 0; by /= 2)
        x = x + shuffle_xor(x, by);
    if (threadIdx.x % 16 != 0 || row >= count)
        return;
    const sheaf__attention_view v = attention_view_of_row(a, row);
    const int64_t to = attention_stat(a, &v, (int)(n % heads)) + row - v.row,
                  from = v.row * a->stats_heads + (a->first_head + n % heads) * v.queries + row -
                         v.row;
    sheaf__attention_row *out = &a->row[to];
    out->max = a->stats[from * 2];
    out->sum = a->stats[from * 2 + 1];
    out->inverse = 1.0f / out->sum;
    out->whole = sheaf__one_nan(x);
}
