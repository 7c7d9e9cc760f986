/* attention_mma_test.c - attention in the orders mma8 and mma16: its sums over keys and queries are
 * the products of matmul.h, counted from key 0 and query 0. */
#include "tests/attention_twin.h"

#include "ops/math/math.h"
#include "ops/matmul/matmul.h"

static const sheaf_sums orders[] = { SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA16 };

/* One key head, dense rows. */
static sheaf__attention shape_of(sheaf_dtype dtype, int64_t queries, int64_t keys, int64_t group,
                                 int64_t dim, bool full)
{
    sheaf__attention s = attention_of(dtype, 1, queries, keys, 1, group, dim, 0.25f);
    s.full = full;
    return s;
}

/* Probabilities, and ds, as attention.h says; [group][queries][keys] of the 16 bits. */
typedef struct scores {
    uint16_t *p, *ds, *e;
} scores;

static float product(const problem *p, const void *x, int64_t x0, const void *y, int64_t y0)
{
    float sum;
    const sheaf__term t = { .a = (const uint16_t *)x + x0,
                            .form = SHEAF__B_NK,
                            .b = (const uint16_t *)y + y0,
                            .k = p->s.head_dim };
    const sheaf__product job = { .m = 1,
                                 .n = 1,
                                 .dtype = p->s.dtype,
                                 .nslices = 1,
                                 .term = &t,
                                 .nterms = 1,
                                 .y = &sum,
                                 .out = SHEAF_F32,
                                 .alpha = 1,
                                 .round_to = SHEAF_F32 };
    sheaf__product_ref(&job, p->sums);
    return sum;
}

static scores scores_of(const problem *p, const result *r)
{
    const sheaf__attention *s = &p->s;
    const size_t n = (size_t)(s->group * s->queries * s->keys);
    const scores out = { calloc(n, 2), calloc(n, 2), calloc(n, 2) };
    for (int64_t g = 0; g < s->group; g++)
        for (int64_t i = 0; i < s->queries; i++) {
            const float *stats = r->stats + (g * s->queries + i) * 2;
            const int64_t q0 = i * s->ldq + g * s->head_dim, o0 = i * s->ldo + g * s->head_dim;
            float x[SHEAF__HEAD_DIM_MAX], y[SHEAF__HEAD_DIM_MAX];
            for (int64_t c = 0; c < s->head_dim; c++) {
                x[c] = sheaf__load(p->d_o, o0 + c, s->dtype);
                y[c] = sheaf__load(r->o, o0 + c, s->dtype);
            }
            const float whole = sheaf__lanes_dot(x, y, s->head_dim);
            for (int64_t j = 0; j < (s->full ? s->keys : i + 1); j++) {
                const int64_t at = (g * s->queries + i) * s->keys + j;
                const float score = s->scale * product(p, p->q, q0, p->k, j * s->ldk),
                            dp = product(p, p->d_o, o0, p->v, j * s->ldv),
                            p32 = sheaf__exp(score - stats[0]) / stats[1];
                sheaf__store(out.p, at, p32, s->dtype);
                sheaf__store(out.e, at, sheaf__exp(score - stats[0]), s->dtype);
                sheaf__store(out.ds, at, s->scale * p32 * (dp - whole), s->dtype);
            }
        }
    return out;
}

/* a [m, k] (a_km: [k, m]) and b [k, head_dim] of each query head into y [m, head_dim], divided by
 * the sums of stats, if there are some. */
static void check_sum(const char *name, const problem *p, const void *got, int64_t ldy, int64_t m,
                      const sheaf__term *term, int terms, const float *stats)
{
    const int64_t dim = p->s.head_dim;
    float *want = calloc((size_t)(m * dim), sizeof *want);
    const sheaf__product job = { .m = m,
                                 .n = dim,
                                 .dtype = p->s.dtype,
                                 .nslices = 1,
                                 .term = term,
                                 .nterms = terms,
                                 .y = want,
                                 .ldy = dim,
                                 .out = SHEAF_F32,
                                 .alpha = 1,
                                 .round_to = SHEAF_F32 };
    sheaf__product_ref(&job, p->sums);
    for (int64_t i = 0; i < m; i++)
        for (int64_t c = 0; c < dim; c++) {
            const float x = sheaf__load(got, i * ldy + c, p->s.dtype),
                        by = stats == NULL ? 1.0f : 1.0f / stats[i * 2 + 1],
                        y = sheaf__rounded(want[i * dim + c] * by + 0.0f, p->s.dtype);
            if (sheaf__bits(x) != sheaf__bits(y))
                fail_msg("%s, %s, %d queries: row %d, channel %d: %08x, wanted %08x", name,
                         sheaf__sums_text(p->sums), (int)p->s.queries, (int)i, (int)c,
                         sheaf__bits(x), sheaf__bits(y));
        }
    free(want);
}

static void check_sums(const problem *p)
{
    const sheaf__attention *s = &p->s;
    const int64_t dim = s->head_dim, keys = s->keys, queries = s->queries;
    sheaf__term dk[4], dv[4];
    result r = result_of(p);
    run_ref(p, &r);
    const unsigned before = sheaf__compute_mode_enter();
    const scores of = scores_of(p, &r);
    for (int64_t g = 0; g < s->group; g++) {
        const uint16_t *pr = of.p + g * queries * keys, *ds = of.ds + g * queries * keys;
        const sheaf__term o = { of.e + g * queries * keys,
                                keys,
                                false,
                                SHEAF__B_KN,
                                p->v,
                                s->ldv,
                                NULL,
                                keys,
                                false },
                          dq = { ds, keys, false, SHEAF__B_KN, p->k, s->ldk, NULL, keys, false };
        if (keys <= SHEAF__ATTENTION_PART) /* where m moves once */
            check_sum("o", p, (const uint16_t *)r.o + g * dim, s->ldo, queries, &o, 1,
                      r.stats + g * queries * 2);
        check_sum("dq", p, (const uint16_t *)r.dq + g * dim, s->ldq, queries, &dq, 1, NULL);
        dk[g] = (sheaf__term){ ds,     keys, true,    SHEAF__B_KN, (const uint16_t *)p->q + g * dim,
                               s->ldq, NULL, queries, false };
        dv[g] =
            (sheaf__term){ pr,     keys, true,    SHEAF__B_KN, (const uint16_t *)p->d_o + g * dim,
                           s->ldo, NULL, queries, false };
    }
    check_sum("dk", p, r.dk, s->ldk, keys, dk, (int)s->group, NULL);
    check_sum("dv", p, r.dv, s->ldv, keys, dv, (int)s->group, NULL);
    sheaf__compute_mode_leave(before);
    free(of.p);
    free(of.e);
    free(of.ds);
}

TEST(test_attention__sums_are_products)
{
    const struct {
        int64_t queries, keys, group, dim;
        bool full;
    } row[] = {
        { 37, 53, 3, 20, true }, /* what is left of a group, of keys and of queries */
        { 41, 41, 2, 17, false }, { 1, 4100, 1, 3, true }, /* a chain ends */
        { 2, 8193, 1, 2, true },  { 4101, 2, 2, 2, true }, /* over queries; the next head goes on */
        { 4096, 1, 2, 2, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (size_t o = 0; o < 2 * ARRAY_LEN(orders); o++) {
            problem p = problem_of(shape_of(o % 2 ? SHEAF_F16 : SHEAF_BF16, row[i].queries,
                                            row[i].keys, row[i].group, row[i].dim, row[i].full),
                                   1, false);
            p.sums = orders[o / 2];
            check_sums(&p);
        }
}

/* A device runs them as the reference does, however it divides the work; masked, with a window, and
 * two key heads. */
TEST(test_attention__on_a_device)
{
    for (size_t o = 0; o < 2 * ARRAY_LEN(orders); o++) {
        sheaf__attention s = shape_of(o % 2 ? SHEAF_F16 : SHEAF_BF16, 70, 70, 2, 16, false);
        s.batch = 2;
        s.kv_heads = 2;
        s.window = o < 2 ? 0 : 40;
        s.cap = o < 2 ? 3 : 0;
        problem p = problem_of(s, 2, true);
        p.sums = orders[o / 2];
        fill_mask(&p, 3);
        result want = result_of(&p), got = result_of(&p);
        run_ref(&p, &want);
        for (int threads = 1; threads <= 3; threads += 2) {
            run_device(&p, &got, NULL, threads);
            same_results(sheaf__sums_text(p.sums), &p, &got, &want);
        }
    }
}

/* Kernels where chains end, over keys and over queries; a head whose queries do not see a key ends
 * its chain, too. */
TEST(test_attention__kernels_end_chains)
{
    const struct {
        const char *name;
        int64_t queries, keys, group, dim, window;
        bool full;
    } row[] = {
        { "many keys", 18, 4200, 2, 4, 0, true },    { "one query", 1, 8200, 3, 20, 0, false },
        { "both", 4400, 4400, 2, 2, 24, false },     { "many queries", 4150, 34, 2, 4, 0, true },
        { "the last 30", 30, 4200, 1, 4, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i += (size_t)every(3)) {
        sheaf__attention s = shape_of(i % 2 ? SHEAF_F16 : SHEAF_BF16, row[i].queries, row[i].keys,
                                      row[i].group, row[i].dim, row[i].full);
        s.window = row[i].window;
        problem p = problem_of(s, 2, false);
        p.sums = orders[i / 2 % 2];
        check_order(&p, row[i].name);
    }
}

/* All keys weigh the same. What is small in the second chain would be lost beside what is large in
 * the first, and is all that is left when that is subtracted. */
TEST(test_attention__what_a_second_chain_keeps)
{
    enum { KEYS = 4200, DIM = 16 };
    for (size_t o = 0; o < 4 * ARRAY_LEN(orders); o++) {
        const int queries = o < 4 ? 1 : 3;
        problem p = problem_of(
            shape_of(o % 2 ? SHEAF_F16 : SHEAF_BF16, queries, KEYS, 1, DIM, true), 0, false);
        p.sums = orders[o / 2 % 2];
        memset(p.k, 0, bytes_of(&p, p.nk));
        for (int64_t at = 0; at < p.nv; at++) {
            const int64_t j = at / DIM;
            sheaf__store(p.v, at,
                         j == 0           ? 0x1p14f
                         : j == KEYS - 1  ? -0x1p14f
                         : j >= KEYS - 64 ? 0x1p-13f
                                          : 0,
                         p.s.dtype);
        }
        check_order(&p, "a second chain");
    }
}

/* Only where m moves do sums meet a factor, and lose a denormal. */
TEST(test_attention__denormal_chains)
{
    static const int64_t queries[] = { 1, 3, 20 };
    for (size_t i = 0; i < ARRAY_LEN(queries) * ARRAY_LEN(orders); i++) {
        problem p = problem_of(shape_of(SHEAF_BF16, queries[i / 2], 300, 1, 16, false), 0, false);
        p.sums = orders[i % 2];
        put_denormal_chains(&p);
        check_order(&p, "denormal chains");
    }
}
