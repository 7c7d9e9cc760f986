/* attention_ref.c - attention as attention.h defines it, one number at a time.
 *
 * Nothing is kept between numbers: a score is worked out again wherever it is
 * needed, so that each function below reads like its formula. */
#include <math.h>

#include "ops/attention/attention_parts.h"
#include "ops/math/math.h"
#include "ops/matmul/mma.h"

#define CHUNK SHEAF__ATTENTION_CHUNK

/* One query head of one sequence against one key head. */
typedef struct head {
    const sheaf__attention_call *call;
    const sheaf__attention *s;
    int64_t batch, kv, head;
} head;

static int64_t q_at(const head *h, int64_t i)
{
    return sheaf__attention_at(h->batch * h->s->queries + i, h->s->ldq, h->head, h->s->head_dim);
}

static int64_t o_at(const head *h, int64_t i)
{
    return sheaf__attention_at(h->batch * h->s->queries + i, h->s->ldo, h->head, h->s->head_dim);
}

static int64_t k_at(const head *h, int64_t j)
{
    return sheaf__attention_key_at(h->s, h->batch, h->kv, j, h->s->ldk);
}

static int64_t v_at(const head *h, int64_t j)
{
    return sheaf__attention_key_at(h->s, h->batch, h->kv, j, h->s->ldv);
}

static bool sees(const head *h, int64_t i, int64_t j)
{
    return j >= sheaf__attention_first(h->s, i) && j <= sheaf__attention_last(h->s, i) &&
           !sheaf__attention_masked(h->s, h->batch, j);
}

static bool in_tiles(const head *h)
{
    return h->s->dtype == SHEAF_BF16 && h->call->sums == SHEAF_SUMS_TILES;
}

static bool by_mma(const head *h)
{
    return sheaf__by_mma(h->call->sums, h->s->dtype);
}

static const uint16_t *halves_at(const void *x, int64_t x0)
{
    return (const uint16_t *)x + x0;
}

static float channel(const head *h, const void *x, int64_t x0, int64_t c)
{
    return c < h->s->head_dim ? sheaf__load(x, x0 + c, h->s->dtype) : 0.0f;
}

/* x . y over head_dim in the order `tiles`: chunks of 32, the last one filled up with zeros, of
 * each a chain over the even channels and one over the odd ones. */
static float product_tiles(const head *h, const void *x, int64_t x0, const void *y, int64_t y0)
{
    float sum = 0.0f;
    for (int64_t c0 = 0; c0 < h->s->head_dim; c0 += CHUNK) {
        float even = 0.0f, odd = 0.0f;
        for (int64_t c = c0; c < c0 + CHUNK; c += 2) {
            even = fmaf(channel(h, x, x0, c), channel(h, y, y0, c), even);
            odd = fmaf(channel(h, x, x0, c + 1), channel(h, y, y0, c + 1), odd);
        }
        sum = sum + (even + odd);
    }
    return sum;
}

/* x . y over head_dim: ascending fma from 0; bfloat16 by pairs, the odd one first, and a last
 * one without another by a pair with zero. head_dim fits in one block of the contract. */
static float product(const head *h, const void *x, int64_t x0, const void *y, int64_t y0)
{
    const sheaf_dtype dtype = h->s->dtype;
    const int64_t step = dtype == SHEAF_BF16 ? 2 : 1;
    float sum = 0.0f;
    if (in_tiles(h))
        return product_tiles(h, x, x0, y, y0);
    if (by_mma(h))
        return sheaf__float(sheaf__mma_chain(h->call->sums, dtype, 0, halves_at(x, x0),
                                             halves_at(y, y0), h->s->head_dim));
    for (int64_t c = 0; c < h->s->head_dim; c += step)
        for (int64_t e = c + step - 1; e >= c; e--)
            sum = e < h->s->head_dim
                      ? fmaf(sheaf__load(x, x0 + e, dtype), sheaf__load(y, y0 + e, dtype), sum)
                      : fmaf(0.0f, 0.0f, sum);
    return sum;
}

static float score(const head *h, int64_t i, int64_t j)
{
    const float s = h->s->scale * product(h, h->call->q, q_at(h, i), h->call->k, k_at(h, j));
    return h->s->cap > 0 ? h->s->cap * sheaf__tanh(s / h->s->cap) : s;
}

static float p32(const head *h, int64_t i, int64_t j, float max, float sum)
{
    return sheaf__exp(score(h, i, j) - max) / sum;
}

/* ds of one pair, rounded; stats holds max and sum of row i. */
static float dscore(const head *h, int64_t i, int64_t j, const float *stats)
{
    const sheaf__attention *s = h->s;
    float x[SHEAF__HEAD_DIM_MAX], y[SHEAF__HEAD_DIM_MAX];
    for (int64_t c = 0; c < s->head_dim; c++) {
        x[c] = sheaf__load(h->call->d_o, o_at(h, i) + c, s->dtype);
        y[c] = sheaf__load(h->call->o, o_at(h, i) + c, s->dtype);
    }
    const float whole = sheaf__lanes_dot(x, y, s->head_dim);
    const float dp = product(h, h->call->d_o, o_at(h, i), h->call->v, v_at(h, j));
    const float p = p32(h, i, j, stats[0], stats[1]);
    const float ds = s->scale * p * (dp - whole);
    if (s->cap == 0)
        return sheaf__rounded(ds, s->dtype);
    const float t = score(h, i, j) / s->cap;
    return sheaf__rounded(ds * (1.0f - t * t), s->dtype);
}

/* ---- sums of vectors: chain += weight * row; block += the chains of a chunk; total += block
 * ---- */
typedef struct running {
    float even[SHEAF__HEAD_DIM_MAX],
        odd[SHEAF__HEAD_DIM_MAX]; /* but for `tiles`, even is the only chain */
    float block[SHEAF__HEAD_DIM_MAX], total[SHEAF__HEAD_DIM_MAX];
    /* mma8, mma16: the chain, and a group that is collected */
    uint32_t chain[SHEAF__HEAD_DIM_MAX];
    uint16_t weight[SHEAF__MMA_MOST], value[SHEAF__HEAD_DIM_MAX][SHEAF__MMA_MOST];
} running;

static void collect_row(running *to, int64_t n, float weight, const head *h, const void *x,
                        int64_t x0)
{
    const int64_t at = n % sheaf__mma_length(h->call->sums);
    sheaf__store(to->weight, at, weight, h->s->dtype);
    for (int64_t c = 0; c < h->s->head_dim; c++)
        to->value[c][at] = halves_at(x, x0)[c];
}

/* The groups that end with index n, and chains. */
static void end_collected(running *to, int64_t n, int64_t count, const head *h)
{
    const sheaf_sums sums = h->call->sums;
    const int length = sheaf__mma_length(sums);
    const bool last = n + 1 == count, ends_chain = !last && (n + 1) % SHEAF__MMA_CHAIN == 0;
    if (!last && (n + 1) % length != 0)
        return;
    for (int64_t c = 0; c < h->s->head_dim; c++) {
        to->chain[c] =
            sheaf__mma_group(sums, h->s->dtype, to->chain[c], to->weight, to->value[c], length);
        if (ends_chain) {
            to->total[c] += sheaf__float(to->chain[c]);
            to->chain[c] = 0;
        }
    }
    memset(to->weight, 0, sizeof to->weight);
    memset(to->value, 0, sizeof to->value);
}

/* n: the index that is summed */
static void add_row(running *to, int64_t n, float weight, const head *h, const void *x, int64_t x0)
{
    if (by_mma(h)) {
        collect_row(to, n, weight, h, x, x0);
        return;
    }
    float *chain = in_tiles(h) && n % 2 == 1 ? to->odd : to->even;
    for (int64_t c = 0; c < h->s->head_dim; c++)
        chain[c] = fmaf(weight, sheaf__load(x, x0 + c, h->s->dtype), chain[c]);
}

/* After index n of `count` in ascending order, of blocks of `size`. */
static void end_row_at(running *to, int64_t n, int64_t count, int64_t size, const head *h)
{
    if (by_mma(h)) {
        end_collected(to, n, count, h);
        return;
    }
    const bool last = n + 1 == count, ends_block = last || (n + 1) % size == 0;
    const bool ends_chunk = in_tiles(h) && (ends_block || (n + 1) % CHUNK == 0);
    for (int64_t c = 0; ends_chunk && c < h->s->head_dim; c++) {
        to->block[c] += to->even[c] + to->odd[c];
        to->even[c] = to->odd[c] = 0.0f;
    }
    for (int64_t c = 0; ends_block && c < h->s->head_dim; c++) {
        to->total[c] += in_tiles(h) ? to->block[c] : to->even[c];
        to->even[c] = to->block[c] = 0.0f;
    }
}

static void end_row(running *to, int64_t n, int64_t count, const head *h)
{
    end_row_at(to, n, count, SHEAF__ATTENTION_BLOCK, h);
}

static void store_sums(void *x, int64_t x0, const running *from, const head *h)
{
    for (int64_t c = 0; c < h->s->head_dim; c++) {
        const float rest = sheaf__float(from->chain[c]); /* but by mma, +0 */
        sheaf__store(x, x0 + c, from->total[c] + rest + 0.0f, h->s->dtype);
    }
}

/* The n-th index of an ascending sum: in the order `pairs` odd before even. */
static int64_t nth(const head *h, int64_t n, int64_t count)
{
    if (h->s->dtype != SHEAF_BF16 || in_tiles(h) || by_mma(h) || (count % 2 == 1 && n == count - 1))
        return n;
    return n ^ 1;
}

/* What has been summed of a row: of a part, or of the parts so far. */
typedef struct row {
    float max, sum, lane[16];
    running o;
} row;

static float factor(float before, float now)
{
    return before < now ? sheaf__exp(before - now) : 1.0f;
}

/* Before keys [j0, j1): m moves, and with it all so far. */
static void begin_block(row *r, const head *h, int64_t i, int64_t j0, int64_t j1)
{
    float most = SHEAF__ATTENTION_LEAST;
    for (int64_t j = j0; j < j1; j++)
        if (sees(h, i, j)) {
            const float s = score(h, i, j);
            most = s > most ? s : most;
        }
    most += 0.0f; /* the largest of -0 and +0 must not depend on their order */
    if (!(most > r->max + SHEAF__ATTENTION_MARGIN))
        return;
    const float by = factor(r->max, most);
    for (int l = 0; l < 16; l++)
        r->lane[l] *= by;
    for (int64_t c = 0; c < h->s->head_dim; c++) {
        float o = sheaf__float(r->o.chain[c]);
        o *= by;
        r->o.chain[c] = sheaf__bits(o);
        r->o.total[c] *= by;
    }
    r->max = most;
}

static void add_part(row *all, const head *h, int64_t i, int64_t from, int64_t to)
{
    const sheaf__attention *s = h->s;
    const int64_t size = SHEAF__ATTENTION_KEYS;
    row r = { .max = SHEAF__ATTENTION_LEAST };
    for (int64_t j0 = from, j1; j0 < to; j0 = j1) {
        j1 = j0 + size < to ? j0 + size : to;
        begin_block(&r, h, i, j0, j1);
        for (int64_t n = j0; n < j1; n++) {
            const int64_t j = nth(h, n, s->keys);
            if (sees(h, i, j)) {
                const float e = sheaf__exp(score(h, i, j) - r.max);
                add_row(&r.o, j, sheaf__rounded(e, s->dtype), h, h->call->v, v_at(h, j));
            }
            if (sees(h, i, n))
                r.lane[n % 16] += sheaf__exp(score(h, i, n) - r.max);
            end_row_at(&r.o, n, s->keys, in_tiles(h) ? CHUNK : size, h);
        }
    }
    const float max = r.max > all->max ? r.max : all->max, by = factor(r.max, max),
                before = factor(all->max, max);
    all->sum = fmaf(sheaf__lanes_join(r.lane), by, all->sum * before);
    for (int64_t c = 0; c < s->head_dim; c++)
        all->o.total[c] =
            fmaf(r.o.total[c] + sheaf__float(r.o.chain[c]), by, all->o.total[c] * before);
    all->max = max;
}

static void forward_row(const head *h, int64_t i)
{
    const sheaf__attention *s = h->s;
    row all = { .max = SHEAF__ATTENTION_LEAST };
    for (int64_t j = 0; j < s->keys; j += SHEAF__ATTENTION_PART)
        add_part(&all, h, i, j,
                 j + SHEAF__ATTENTION_PART < s->keys ? j + SHEAF__ATTENTION_PART : s->keys);
    const float by = 1.0f / (all.sum < 1.0f ? 1.0f : all.sum);
    for (int64_t c = 0; c < s->head_dim; c++)
        all.o.total[c] *= by;
    store_sums(h->call->o, o_at(h, i), &all.o, h);
    if (h->call->stats != NULL) {
        float *stats = sheaf__attention_stats(h->call, h->batch, h->head, i);
        stats[0] = all.max == SHEAF__ATTENTION_LEAST ? -INFINITY : all.max;
        stats[1] = all.sum == all.sum ? all.sum : sheaf__float(SHEAF__NAN_BITS);
    }
}

static void dq_row(const head *h, int64_t i)
{
    const sheaf__attention *s = h->s;
    const float *stats = sheaf__attention_stats(h->call, h->batch, h->head, i);
    running dq = { { 0 } };
    for (int64_t n = 0; n < s->keys; n++) {
        const int64_t j = nth(h, n, s->keys);
        if (sees(h, i, j))
            add_row(&dq, j, dscore(h, i, j, stats), h, h->call->k, k_at(h, j));
        end_row(&dq, n, s->keys, h);
    }
    store_sums(h->call->dq, q_at(h, i), &dq, h);
}

/* The share of query head h in dk and dv of key j. */
static void dkv_head(running *dk, running *dv, const head *h, int64_t j)
{
    const sheaf__attention *s = h->s;
    for (int64_t n = 0; n < s->queries; n++) {
        const int64_t i = nth(h, n, s->queries);
        if (sees(h, i, j)) {
            const float *stats = sheaf__attention_stats(h->call, h->batch, h->head, i);
            const float p = sheaf__rounded(p32(h, i, j, stats[0], stats[1]), s->dtype);
            add_row(dk, i, dscore(h, i, j, stats), h, h->call->q, q_at(h, i));
            add_row(dv, i, p, h, h->call->d_o, o_at(h, i));
        }
        end_row(dk, n, s->queries, h);
        end_row(dv, n, s->queries, h);
    }
}

/* ---- parts and the whole ---- */
static head head_of(const sheaf__attention_call *call, const sheaf__attention_part *part, int64_t g)
{
    return (head){ call, call->shape, part->batch, part->kv, part->kv * call->shape->group + g };
}

void sheaf__attention_ref_rows(const sheaf__attention_call *call, const sheaf__attention_part *part)
{
    const int64_t group = call->shape->group;
    for (int64_t row = part->begin; row < part->end; row++) {
        const head h = head_of(call, part, row % group);
        forward_row(&h, row / group);
    }
}

void sheaf__attention_ref_dq(const sheaf__attention_call *call, const sheaf__attention_part *part)
{
    for (int64_t g = part->g0; g < part->g1; g++) {
        const head h = head_of(call, part, g);
        for (int64_t i = part->begin; i < part->end; i++)
            dq_row(&h, i);
    }
}

void sheaf__attention_ref_dkv(const sheaf__attention_call *call, const sheaf__attention_part *part)
{
    for (int64_t j = part->begin; j < part->end; j++) {
        running dk = { { 0 } }, dv = { { 0 } };
        for (int64_t g = part->g0; g < part->g1; g++) {
            const head h = head_of(call, part, g);
            dkv_head(&dk, &dv, &h, j);
        }
        const head any = head_of(call, part, 0);
        store_sums(call->dk, k_at(&any, j), &dk, &any);
        store_sums(call->dv, v_at(&any, j), &dv, &any);
    }
}

void sheaf__attention_ref(const sheaf__attention_call *call, const sheaf__attention_part *part,
                          sheaf__attention_what what, void *scratch, size_t bytes)
{
    sheaf__attention_part queries = *part;
    if (what == SHEAF__ATTENTION_ROWS)
        sheaf__attention_ref_rows(call, part);
    if (what == SHEAF__ATTENTION_DKV || what == SHEAF__ATTENTION_DKV_DQ)
        sheaf__attention_ref_dkv(call, part);
    if (what == SHEAF__ATTENTION_DKV_DQ)
        queries.end = call->shape->queries;
    if (what == SHEAF__ATTENTION_DQ || what == SHEAF__ATTENTION_DKV_DQ)
        sheaf__attention_ref_dq(call, &queries);
}

static void *beyond(const void *x, int64_t elements, sheaf_dtype dtype)
{
    return x == NULL ? NULL : (char *)x + elements * (int64_t)sheaf_dtype_bytes(dtype);
}

void sheaf__attention_segment(sheaf__attention_call *call, sheaf__attention *shape,
                              const sheaf__attention_call *all, int64_t index)
{
    const sheaf__attention *s = all->shape;
    *call = *all;
    *shape = *s;
    call->shape = shape;
    if (s->segment == NULL)
        return;
    const int64_t row = s->segment[index], b = row / s->queries;
    shape->segment = NULL;
    shape->batch = 1;
    shape->queries = shape->keys = shape->kv_rows = s->segment[index + 1] - row;
    if (s->key_mask != NULL)
        shape->key_mask = s->key_mask + b * s->mask_ld + (row - b * s->queries);
    call->stats = all->stats == NULL ? NULL : all->stats + row * s->kv_heads * s->group * 2;
    call->q = beyond(all->q, row * s->ldq, s->dtype);
    call->dq = beyond(all->dq, row * s->ldq, s->dtype);
    call->k = beyond(all->k, row * s->ldk, s->dtype);
    call->dk = beyond(all->dk, row * s->ldk, s->dtype);
    call->v = beyond(all->v, row * s->ldv, s->dtype);
    call->dv = beyond(all->dv, row * s->ldv, s->dtype);
    call->o = beyond(all->o, row * s->ldo, s->dtype);
    call->d_o = beyond(all->d_o, row * s->ldo, s->dtype);
}
