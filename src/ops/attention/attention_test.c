/* attention_test.c - attention against numbers worked by hand, a double version, and
 * the fast kernels against the reference, bit for bit. */
#include "tests/attention_twin.h"

/* ---- by hand ---- */

/* Two keys of one channel, scale 1. Query 0 sees key 0: o = v0. Query 1 has scores q k =
 * ln 3 and 0: p = 3/4, 1/4. With d_o = 1 on query 1 only: o = 3/4 * 4 + 1/4 * 8 = 5;
 * D = 5; dp = 4, 8; ds = 3/4 * (4-5) = -3/4 and 1/4 * (8-5) = 3/4;
 * dq1 = ds . k; dk = ds * q1; dv = p. */
TEST(test_attention__two_tokens_worked_by_hand)
{
    const float ln3 = 1.09861229f, q[2] = { 7, 1 }, k[2] = { 1.09861229f, 0 }, v[2] = { 4, 8 };
    const float d_o[2] = { 0, 1 };
    float o[2], stats[4], dq[2], dk[2], dv[2];
    sheaf__attention s = attention_of(SHEAF_F32, 1, 2, 2, 1, 1, 1, 1);
    attention_forward_ref(&s, SHEAF_SUMS_PAIRS, o, stats, q, k, v);
    attention_backward_ref(&s, SHEAF_SUMS_PAIRS, dq, dk, dv, d_o, o, stats, q, k, v);
    const struct {
        const char *name;
        float got, want;
    } row[] = {
        { "o of the first is its own v", o[0], 4 },
        { "o of the second", o[1], 5 },
        { "max of the first", stats[0], 7 * ln3 },
        { "sum of the first", stats[1], 1 },
        { "max of the second", stats[2], ln3 },
        { "sum of the second: 1 + 1/3", stats[3], 4.0f / 3 },
        { "dq of the first", dq[0], 0 },
        { "dq of the second", dq[1], -0.75f * ln3 },
        { "dk", dk[0], -0.75f },
        { "dk", dk[1], 0.75f },
        { "dv", dv[0], 0.75f },
        { "dv", dv[1], 0.25f },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        CHECK_NEAR(row[i].name, row[i].got, row[i].want, 2e-6);
}

/* Equal keys give every visible key the same weight: o is the mean of the visible v. */
TEST(test_attention__window_and_mask_worked_by_hand)
{
    const float q[4] = { 1, 1, 1, 1 }, k[4] = { 0, 0, 0, 0 }, v[4] = { 1, 2, 4, 8 };
    const uint8_t left[4] = { 0, 1, 1, 1 }, right[4] = { 1, 1, 0, 0 };
    const struct {
        const char *name;
        int64_t window;
        const uint8_t *mask;
        float want[4];
    } table[] = {
        { "all", 0, NULL, { 1, 1.5f, 7.0f / 3, 3.75f } },
        { "window of two", 2, NULL, { 1, 1.5f, 3, 6 } },
        { "window of one is itself", 1, NULL, { 1, 2, 4, 8 } },
        { "left padding; the first sees nothing", 0, left, { 0, 2, 3, 14.0f / 3 } },
        { "right padding", 0, right, { 1, 1.5f, 1.5f, 1.5f } },
        { "window and right padding; the last sees nothing", 2, right, { 1, 1.5f, 2, 0 } },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        float o[4];
        sheaf__attention s = attention_of(SHEAF_F32, 1, 4, 4, 1, 1, 1, 1);
        s.window = table[i].window;
        s.key_mask = table[i].mask;
        s.mask_ld = 4;
        attention_forward_ref(&s, SHEAF_SUMS_PAIRS, o, NULL, q, k, v);
        for (int t = 0; t < 4; t++)
            CHECK_NEAR(table[i].name, o[t], table[i].want[t], 1e-6);
    }
}

/* ---- against a double version ---- */
enum { TOKENS = 7, MOST = 9, GROUP = 2, DIM = 4, NQ = MOST * GROUP * DIM, NK = TOKENS * DIM };
typedef struct exact {
    double q[NQ], k[NK], v[NK], w[NQ]; /* w: the gradient of the loss with regard to o */
} exact;

/* Of TOKENS keys; with fewer queries than MOST the last rows of q and w are not used. */
typedef struct exact_kind {
    const char *name;
    int queries;
    bool full;
} exact_kind;
static const exact_kind causal = { "causal", TOKENS, false };
static const exact_kind few = { "full, fewer queries than keys", 4, true },
                        many = { "full, more queries than keys", MOST, true };
static const uint8_t exact_mask[TOKENS] = { 1, 1, 0, 1, 1, 1, 1 };
enum { EXACT_WINDOW = 5 };
static const double exact_scale = 0.5;

static bool exact_sees(const exact_kind *kind, int i, int j)
{
    return (kind->full || (j <= i && j > i - EXACT_WINDOW)) && exact_mask[j];
}

static void exact_row(double p[TOKENS], const exact *e, const exact_kind *kind, int i, int g)
{
    double sum = 0;
    for (int j = 0; j < TOKENS; j++) {
        double s = 0;
        for (int c = 0; c < DIM; c++)
            s += e->q[(i * GROUP + g) * DIM + c] * e->k[j * DIM + c];
        p[j] = exact_sees(kind, i, j) ? exp(exact_scale * s) : 0;
        sum += p[j];
    }
    for (int j = 0; j < TOKENS; j++)
        p[j] /= sum;
}

/* sum of w * o; x is q, k, v, w end to end */
static double exact_loss(const double *x, const exact_kind *kind)
{
    exact e;
    double loss = 0;
    memcpy(&e, x, sizeof e);
    for (int i = 0; i < kind->queries; i++)
        for (int g = 0; g < GROUP; g++) {
            double p[TOKENS];
            exact_row(p, &e, kind, i, g);
            for (int j = 0; j < TOKENS; j++)
                for (int c = 0; c < DIM; c++)
                    loss += p[j] * e.v[j * DIM + c] * e.w[(i * GROUP + g) * DIM + c];
        }
    return loss;
}

static double loss_causal(const double *x)
{
    return exact_loss(x, &causal);
}
static double loss_few(const double *x)
{
    return exact_loss(x, &few);
}
static double loss_many(const double *x)
{
    return exact_loss(x, &many);
}

/* The formulas of attention.h in double; out.w is o. */
static void exact_gradient(exact *out, const exact *e, const exact_kind *kind)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < kind->queries; i++)
        for (int g = 0; g < GROUP; g++) {
            const int row = (i * GROUP + g) * DIM;
            double p[TOKENS], whole = 0;
            exact_row(p, e, kind, i, g);
            for (int j = 0; j < TOKENS; j++)
                for (int c = 0; c < DIM; c++)
                    out->w[row + c] += p[j] * e->v[j * DIM + c];
            for (int c = 0; c < DIM; c++)
                whole += e->w[row + c] * out->w[row + c];
            for (int j = 0; j < TOKENS; j++) {
                double dp = 0;
                for (int c = 0; c < DIM; c++)
                    dp += e->w[row + c] * e->v[j * DIM + c];
                const double ds = exact_scale * p[j] * (dp - whole);
                for (int c = 0; c < DIM; c++) {
                    out->q[row + c] += ds * e->k[j * DIM + c];
                    out->k[j * DIM + c] += ds * e->q[row + c];
                    out->v[j * DIM + c] += p[j] * e->w[row + c];
                }
            }
        }
}

static void exact_fill(exact *e)
{
    double *x = (double *)e;
    for (size_t i = 0; i < sizeof *e / sizeof *x; i++)
        x[i] = (double)(float)twin_number(i, TWIN_PLAIN) * 0.25;
}

TEST(test_attention__double_version_passes_finite_differences)
{
    const struct {
        const exact_kind *kind;
        double (*loss)(const double *x);
    } table[] = {
        { &causal, loss_causal },
        { &few, loss_few },
        { &many, loss_many },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        exact e, gradient;
        exact_fill(&e);
        exact_gradient(&gradient, &e, table[i].kind);
        /* with regard to w the loss is linear, with slope o */
        twin_gradient(table[i].kind->name, table[i].loss, (double *)&e, sizeof e / sizeof(double),
                      (double *)&gradient);
    }
}

static void check_exact(const exact_kind *kind)
{
    exact e, want;
    float x[sizeof e / sizeof(double)], o[NQ], stats[MOST * GROUP * 2], dq[NQ], dk[NK], dv[NK];
    const float *q = x, *k = q + NQ, *v = k + NK, *w = v + NK;
    const int n = kind->queries * GROUP * DIM;
    sheaf__attention s =
        attention_of(SHEAF_F32, 1, kind->queries, TOKENS, 1, GROUP, DIM, (float)exact_scale);
    s.window = EXACT_WINDOW;
    s.full = kind->full;
    s.key_mask = exact_mask;
    s.mask_ld = TOKENS;
    exact_fill(&e);
    exact_gradient(&want, &e, kind);
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = (float)((double *)&e)[i];
    attention_forward_ref(&s, SHEAF_SUMS_PAIRS, o, stats, q, k, v);
    attention_backward_ref(&s, SHEAF_SUMS_PAIRS, dq, dk, dv, w, o, stats, q, k, v);
    /* float rounding is 6e-8; sums of 7 terms, twice */
    twin_close("o", o, want.w, n, 1e-5);
    twin_close("dq", dq, want.q, n, 1e-5);
    twin_close("dk", dk, want.k, NK, 1e-5);
    twin_close("dv", dv, want.v, NK, 1e-5);
}

TEST(test_attention__float_version_agrees_with_double)
{
    check_exact(&causal);
    check_exact(&few);
    check_exact(&many);
}

/* Scores of one part and of several, of which some move m; a value is large where its weight is
 * small, so that all keys count. */
TEST(test_attention__parts_agree_with_double)
{
    static const struct {
        int64_t keys;
        bool masked; /* the first part */
    } table[] = { { 1023 }, { 1024 }, { 1025 }, { 2049 }, { 2049, true } };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const int64_t keys = table[i].keys;
        problem p = problem_of(attention_of(SHEAF_F32, 1, 1, keys, 1, 1, 2, 0.25f), 0, true);
        double sum = 0, o[2] = { 0 };
        put_rising(&p);
        for (int64_t j = 0; j < keys; j++) {
            const double e = exp((double)rising(j) - (double)rising(keys - 1));
            float *v = (float *)p.v + j * 2;
            v[0] = (float)(1 / e);
            v[1] *= v[0];
            p.mask[j] = !table[i].masked || j >= SHEAF__ATTENTION_PART;
            sum += p.mask[j] ? e : 0;
            for (int c = 0; c < 2; c++)
                o[c] += p.mask[j] ? e * (double)v[c] : 0;
        }
        o[0] /= sum;
        o[1] /= sum;
        result r = result_of(&p);
        run_ref(&p, &r);
        twin_close("o", r.o, o, 2, 1e-6);
        CHECK_NEAR("max and sum", (double)r.stats[0] + log((double)r.stats[1]),
                   (double)rising(keys - 1) + log(sum), 1e-5);
    }
}

/* ---- the fast kernels are the reference ---- */

TEST(test_attention__fast_equals_reference_at_odd_shapes)
{
    static const int64_t group[] = { 1, 2, 3, 7, 8, 18 };
    const uint64_t halves = (uint64_t)in_soak(120, 60); /* from there on float16 */
    for (uint64_t i = 0; i < halves + 12; i += (uint64_t)every(11)) {
        sheaf__attention s = { .dtype = i >= halves ? SHEAF_F16
                                        : i & 1     ? SHEAF_BF16
                                                    : SHEAF_F32,
                               .scale = 0.3f };
        s.batch = 1 + chance(i * 16, 2);
        s.keys = 1 + chance(i * 16 + 1, 70);
        s.queries = i % 3 == 0 ? 1 + chance(i * 16 + 2, (uint32_t)s.keys) : s.keys;
        s.kv_heads = 1 + chance(i * 16 + 3, 2);
        s.group = group[chance(i * 16 + 4, ARRAY_LEN(group))];
        s.head_dim = 2 * (4 + chance(i * 16 + 5, 40));
        s.window = i % 4 == 1 ? 1 + chance(i * 16 + 6, 90) : 0;
        s.kv_rows = s.keys + chance(i * 16 + 7, 5);
        s.cap = i % 15 == 2 ? 1.5f : 0;
        s.by_head = i % 3 == 0 && chance(i * 16 + 9, 2) == 0;
        check_shape(s, chance(i * 16 + 8, 3), i % 2 == 0, i);
    }
}

/* More than one block of 256 keys and of 256 queries; more than one strip and panel. */
TEST(test_attention__fast_equals_reference_across_blocks)
{
    static const struct {
        sheaf_dtype dtype;
        int64_t batch, queries, keys, kv, group, d, window;
        bool mask;
    } table[] = {
        { SHEAF_BF16, 1, 515, 515, 1, 2, 16, 0, false },
        { SHEAF_F32, 1, 515, 515, 1, 2, 10, 0, true },
        { SHEAF_BF16, 1, 600, 600, 1, 1, 8, 70, false },
        { SHEAF_F32, 1, 600, 600, 1, 1, 8, 300, true },
        { SHEAF_BF16, 2, 300, 300, 1, 3, 34, 0, true },
        { SHEAF_F32, 1, 257, 257, 2, 1, 64, 0, false },
        { SHEAF_BF16, 1, 70, 70, 1, 2, 256, 0, false },
        { SHEAF_F32, 1, 70, 70, 1, 2, 256, 0, false },
        { SHEAF_BF16, 1, 3, 1300, 2, 8, 64, 0, true },
        { SHEAF_F32, 1, 3, 1300, 2, 8, 64, 700, false },
        { SHEAF_BF16, 1, 1, 4097, 1, 4, 64, 0, false },
        { SHEAF_F32, 1, 2, 8300, 1, 3, 64, 0, false },
        { SHEAF_BF16, 1, 256, 256, 1, 1, 128, 0, false },
        { SHEAF_F32, 1, 100, 100, 1, 1, 1, 0, false },
        { SHEAF_F16, 1, 300, 300, 1, 2, 15, 70, true },
        { SHEAF_F16, 1, 3, 1300, 2, 8, 64, 0, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i += (size_t)every(7))
        check_shape(
            windowed(attention_of(table[i].dtype, table[i].batch, table[i].queries, table[i].keys,
                                  table[i].kv, table[i].group, table[i].d, 0.125f),
                     table[i].window),
            0, table[i].mask, 2 + i);
}

/* Scores so far apart that quotients reach down to the smallest numbers, and below them zero. Each
 * key has a column of v to itself, or nearly: o is then p, whatever its size. */
TEST(test_attention__small_probabilities)
{
    for (int i = 0; i < 4; i++) {
        char name[40];
        problem p = problem_of(
            attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1, 120, 120, 1, 2, 64, i & 2 ? 4 : 16), 0,
            false);
        for (int64_t at = 0; at < p.nv; at++)
            sheaf__store(p.v, at, at % 64 == at / 64 % 64 ? 1.0f : 0.0f, p.s.dtype);
        snprintf(name, sizeof name, "one column a key, scale %g", (double)p.s.scale);
        check_twins(&p, name);
    }
}

/* An inf or NaN reaches exactly those who see it, and denormals count as zero. */
TEST(test_attention__numbers_out_of_the_ordinary)
{
    static const float odd[] = { INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, 3e38f };
    for (uint64_t n = 0; n < 3 * 4 * ARRAY_LEN(odd); n += (uint64_t)every(5)) {
        const uint64_t i = n % (2 * 4 * ARRAY_LEN(odd));
        sheaf__attention s = attention_of(n != i  ? SHEAF_F16
                                          : i & 1 ? SHEAF_BF16
                                                  : SHEAF_F32,
                                          1, 40, 40, 2, 2, 18, 0.3f);
        s.window = i % 3 == 0 ? 9 : 0;
        check_odd_number(s, i % 5 == 0, i, (int)(i / 2 % 4), 5 + (int64_t)chance(i, 30),
                         odd[i / 8]);
    }
}

TEST(test_attention__nan_in_the_future_leaves_the_past_alone)
{
    sheaf__attention s = attention_of(SHEAF_F32, 1, 20, 20, 1, 1, 8, 0.3f);
    problem p = problem_of(s, 0, false);
    result clean = result_of(&p), dirty = result_of(&p);
    run_device(&p, &clean, NULL, 1);
    ((float *)p.v)[11 * 8 + 3] = NAN;
    run_device(&p, &dirty, NULL, 1);
    CHECK_BYTES("rows before the NaN", dirty.o, clean.o, 11 * 8 * 4);
    for (int i = 11; i < 20; i++)
        assert_true(isnan(((float *)dirty.o)[i * 8 + 3]));
}

TEST(test_attention__a_row_that_sees_nothing_is_zero)
{
    for (int isa = -1; isa < (int)ARRAY_LEN(columns); isa++) {
        const char *name = isa < 0 ? "ref" : columns[isa];
        if (!on_this_cpu(name))
            continue;
        sheaf__attention s = attention_of(SHEAF_F32, 1, 9, 9, 1, 2, 8, 0.3f);
        problem p = problem_of(s, 0, true);
        result r = result_of(&p);
        memset(p.mask, 1, 9);
        memset(p.mask, 0, 3); /* queries 0, 1, 2 see nothing, keys 0, 1, 2 are not seen */
        run_device(&p, &r, name, 1);
        for (int i = 0; i < 3 * 16; i++) {
            assert_true(sheaf__bits(((float *)r.o)[i]) == 0);
            assert_true(sheaf__bits(((float *)r.dq)[i]) == 0);
        }
        for (int i = 0; i < 3 * 8; i++) {
            assert_true(sheaf__bits(((float *)r.dk)[i]) == 0);
            assert_true(sheaf__bits(((float *)r.dv)[i]) == 0);
        }
        assert_true(r.stats[0] == -INFINITY && r.stats[1] == 0 && r.stats[6] > -INFINITY &&
                    r.stats[7] >= 1);
    }
}

/* ---- maxima at the edge ---- */

static void put_number(const problem *p, void *x, int64_t at, float value)
{
    if (p->s.dtype == SHEAF_F32)
        ((float *)x)[at] = value;
    else /* powers of two: nothing to round */
        ((uint16_t *)x)[at] = (uint16_t)(sheaf__bits(value) >> 16);
}

static float product_flushed(float x, float y)
{
    const unsigned before = sheaf__compute_mode_enter();
    volatile float a = x, b = y, product = a * b;
    sheaf__compute_mode_leave(before);
    return product;
}

/* Scores scale * (1 * k): -0 is a negative score that counts as zero. */
TEST(test_attention__the_largest_score_is_minus_zero)
{
    enum { KEYS = 100 };
    const float minus = -0x1p-126f, scale = 0.3f;
    const struct {
        const char *name;
        float even, odd, from_70;
    } table[] = {
        { "all -0", minus, minus, minus },      { "+0, then -0", 0, 0, minus },
        { "-0, then +0", minus, minus, 0 },     { "-0 and +0 in turn", minus, 0, minus },
        { "+0 and -0 in turn", 0, minus, 0 },   { "low ones, then -0", -64, -64, minus },
        { "-0, then low ones", minus, -1, -1 },
    };
    assert_true(sheaf__bits(product_flushed(scale, minus)) == 0x80000000u);
    for (size_t i = 0; i < ARRAY_LEN(table) * 8; i += (size_t)every(5)) {
        const size_t row = i / 8;
        problem p = problem_of(windowed(attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1,
                                                     i & 2 ? 3 : KEYS, KEYS, 1, 2, 18, scale),
                                        i & 4 ? 40 : 0),
                               0, false);
        memset(p.q, 0, bytes_of(&p, p.nq));
        memset(p.k, 0, bytes_of(&p, p.nk));
        for (int64_t q = 0; q < p.s.queries * 2; q++)
            put_number(&p, p.q, q * 18, 1);
        for (int64_t j = 0; j < KEYS; j++)
            put_number(&p, p.k, j * p.s.ldk,
                       j >= 70 ? table[row].from_70
                       : j % 2 ? table[row].odd
                               : table[row].even);
        result r = result_of(&p);
        run_ref(&p, &r);
        assert_true(sheaf__bits(r.stats[(p.s.queries - 1) * 2]) == 0);
        check_twins(&p, table[row].name);
    }
}

/* q_i is 2^100 but for channel i, k_j is -2^100 in channel j only: each query's other keys score
 * -inf, its own 2^-126 * -2^100 * scale. Nothing but scores is infinite. */
TEST(test_attention__all_but_itself_are_minus_infinity)
{
    enum { KEYS = 100 };
    const struct {
        const char *name;
        float scale, max;
        bool masked;
    } table[] = {
        { "itself below zero", 0.5f, -0x1p-27f, false },
        { "itself -0", 0x1p-101f, 0, false },
        { "itself below zero, masked", 0.5f, -0x1p-27f, true },
        { "itself -0, masked", 0x1p-101f, 0, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(table) * 2; i += (size_t)every(3)) {
        const size_t row = i / 2;
        problem p = problem_of(attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1, KEYS, KEYS, 1, 1,
                                            KEYS, table[row].scale),
                               0, table[row].masked);
        memset(p.k, 0, bytes_of(&p, p.nk));
        for (int64_t t = 0; t < KEYS; t++) {
            for (int64_t c = 0; c < KEYS; c++)
                put_number(&p, p.q, t * p.s.ldq + c, c == t ? 0x1p-126f : 0x1p100f);
            put_number(&p, p.k, t * p.s.ldk + t, -0x1p100f);
        }
        for (int64_t j = 0; p.mask != NULL && j < KEYS; j++)
            p.mask[j] = j % 5 != 2;
        result r = result_of(&p);
        run_ref(&p, &r);
        for (int64_t t = 0; t < KEYS; t++)
            if (p.mask == NULL || p.mask[t]) {
                assert_true(sheaf__bits(r.stats[t * 2]) == sheaf__bits(table[row].max) &&
                            r.stats[t * 2 + 1] == 1);
                CHECK_BYTES("o is its own v", (char *)r.o + bytes_of(&p, t * p.s.ldo),
                            (char *)p.v + bytes_of(&p, t * p.s.ldv), bytes_of(&p, KEYS));
            }
        check_twins(&p, table[row].name);
    }
}

/* Only its own key is not hidden, for one query; the others see nothing or that key. */
TEST(test_attention__one_key_is_not_hidden)
{
    static const int64_t only[] = { 0, 15, 16, 63, 64, 99 };
    for (size_t i = 0; i < ARRAY_LEN(only) * 4; i++) {
        problem p = problem_of(
            windowed(attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1, 100, 100, 1, 2, 18, 0.3f),
                     i & 2 ? 1 : 0),
            0, true);
        char name[80];
        p.mask[only[i / 4]] = 1;
        snprintf(name, sizeof name, "only key %d", (int)only[i / 4]);
        check_twins(&p, name);
    }
}

/* ---- odd heads of bfloat16 ---- */

/* Heads of `from` channels in rows of ld, as heads of `to`: what is more is zero. */
static void copy_heads(uint16_t *to, int64_t to_ld, int64_t to_dim, const uint16_t *from,
                       int64_t from_ld, int64_t from_dim, int64_t rows, int64_t heads)
{
    const size_t bytes = (size_t)(to_dim < from_dim ? to_dim : from_dim) * 2;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < heads; h++) {
            memset(to + row * to_ld + h * to_dim, 0, (size_t)to_dim * 2);
            memcpy(to + row * to_ld + h * to_dim, from + row * from_ld + h * from_dim, bytes);
        }
}

/* The last channel is paired with zero, and not with the next head's first. */
TEST(test_attention__an_odd_head_is_an_even_one_that_ends_with_zero)
{
    static const int64_t dims[] = { 1, 3, 7, 17, 35 };
    for (size_t i = 0; i < ARRAY_LEN(dims) * 3; i += (size_t)every(2)) {
        const int64_t d = dims[i / 3], n = 70, heads = 4;
        sheaf__attention s = attention_of(SHEAF_BF16, 2, n, i % 3 == 2 ? 41 : n, 2, 2, d, 0.3f);
        s.kv_rows = 0;
        s.full = i % 3 == 2;
        s.window = i % 3 == 1 ? 20 : 0;
        s.kv_rows = s.keys;
        problem odd = problem_of(s, 1, i % 3 == 2);
        s.head_dim = d + 1;
        problem even = problem_of(s, 1, i % 3 == 2);
        fill_mask(&odd, i);
        fill_mask(&even, i);
        put_number(&odd, odd.k, 5 * odd.s.ldk + d,
                   INFINITY); /* of the second head, beside the last of the first */
        copy_heads(even.q, even.s.ldq, d + 1, odd.q, odd.s.ldq, d, 2 * n, heads);
        copy_heads(even.d_o, even.s.ldo, d + 1, odd.d_o, odd.s.ldo, d, 2 * n, heads);
        copy_heads(even.k, even.s.ldk, d + 1, odd.k, odd.s.ldk, d, 2 * s.keys, 2);
        copy_heads(even.v, even.s.ldv, d + 1, odd.v, odd.s.ldv, d, 2 * s.keys, 2);
        odd.sums = even.sums = i % 2 ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
        result got = result_of(&odd), want = result_of(&even), narrow = result_of(&odd);
        run_device(&odd, &got, NULL, 2);
        run_device(&even, &want, NULL, 1);
        copy_heads(narrow.o, odd.s.ldo, d, want.o, even.s.ldo, d + 1, 2 * n, heads);
        copy_heads(narrow.dq, odd.s.ldq, d, want.dq, even.s.ldq, d + 1, 2 * n, heads);
        copy_heads(narrow.dk, odd.s.ldk, d, want.dk, even.s.ldk, d + 1, 2 * s.keys, 2);
        copy_heads(narrow.dv, odd.s.ldv, d, want.dv, even.s.ldv, d + 1, 2 * s.keys, 2);
        memcpy(narrow.stats, want.stats, (size_t)odd.nstats * 4);
        same_results("heads of an odd width", &odd, &got, &narrow);
    }
}

/* ---- decoding ---- */

/* The last queries alone, with a cache of all keys, have the bytes of the whole; and what a mask
 * hides is no summand, not even a NaN. */
TEST(test_attention__decoding_gives_the_last_rows)
{
    static const sheaf_sums orders[] = { SHEAF_SUMS_PAIRS, SHEAF_SUMS_PAIRS, SHEAF_SUMS_TILES,
                                         SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA16 };
    /* 12 of float32 and bfloat16 by pairs, 6 of each other order */
    for (int n = 0; n < 30; n += every(3)) {
        const int code = n < 12 ? n : 2 * (n % 6) + 1;
        const sheaf_dtype dtype = code % 2 == 0 ? SHEAF_F32 : n < 24 ? SHEAF_BF16 : SHEAF_F16;
        sheaf__attention s = attention_of(dtype, 2, 530, 530, 2, 3, 20, 0.3f);
        s.kv_rows = 777;
        s.window = code / 2 % 2 ? 100 : 0;
        problem p = problem_of(s, 2, code / 4 == 1);
        p.sums = orders[n / 6];
        for (int64_t j = 0; p.mask != NULL && j < 2 * p.s.mask_ld; j++) /* left padding */
            p.mask[j] = j % p.s.mask_ld >= 37;
        for (int64_t b = 0; p.mask != NULL && b < 2; b++) { /* of NaN */
            memset((char *)p.k + bytes_of(&p, b * 777 * p.s.ldk), 0xff, bytes_of(&p, 37 * p.s.ldk));
            memset((char *)p.v + bytes_of(&p, b * 777 * p.s.ldv), 0xff, bytes_of(&p, 37 * p.s.ldv));
        }
        result all = result_of(&p), few = result_of(&p);
        run_device(&p, &all, NULL, 2);
        const int64_t new = code / 4 == 2 ? 1 : 19;
        problem last = p;
        last.s.queries = new;
        /* the new queries of each sequence stand together */
        const size_t row = bytes_of(&p, p.s.ldq), row_o = bytes_of(&p, p.s.ldo),
                     wide = bytes_of(&p, 2 * 3 * 20);
        char *q = malloc(2 * (size_t) new *row);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t i = 0; i < new; i++)
                memcpy(q + (size_t)(b * new + i) * row,
                       (char *)p.q + (size_t)(b * 530 + 530 - new + i) * row, wide);
        last.q = q;
        run_device(&last, &few, NULL, 1);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t i = 0; i < new; i++)
                CHECK_BYTES("decoded row", (char *)few.o + (size_t)(b * new + i) * row_o,
                            (char *)all.o + (size_t)(b * 530 + 530 - new + i) * row_o, wide);
        for (int64_t c = 0; c < 2 * 3 * 20; c++)
            assert_true(isfinite(sheaf__load(few.o, c, dtype)));
        free(q);
    }
}

/* ---- the device ---- */
TEST(test_attention__nothing_owned_is_nothing_done)
{
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 2, NULL, SMALL_DEVICE));
    const sheaf__attention s = attention_of(SHEAF_BF16, 2, 5, 5, 0, 4, 16, 1);
    sheaf__attention_forward(device, &s, NULL, NULL, NULL, NULL, NULL);
    sheaf__attention_backward(device, &s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    sheaf__attention full = s;
    full.full = true;
    full.queries = 9;
    sheaf__attention_forward(device, &full, NULL, NULL, NULL, NULL, NULL);
    sheaf__attention_backward(device, &full, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    assert_true(device->flops == 0);
    sheaf__device_close(device);
}

TEST(test_attention__dry_counts_visible_pairs_and_touches_nothing)
{
    static const struct {
        int64_t queries, keys, window;
        bool full;
    } table[] = {
        { 7, 7, 0 },       { 7, 7, 3 },       { 3, 7, 0 },       { 3, 7, 2 },
        { 3, 7, 6 },       { 7, 7, 7 },       { 7, 7, 100 },     { 1, 7, 1 },
        { 7, 7, 0, true }, { 3, 7, 2, true }, { 8, 5, 1, true }, { 5, 0, 0, true },
    };
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__dry, 4, NULL, 0));
    for (size_t n = 0; n < ARRAY_LEN(table); n++) {
        sheaf__attention s =
            attention_of(SHEAF_BF16, 3, table[n].queries, table[n].keys, 2, 4, 16, 1);
        s.kv_rows = 9;
        s.window = table[n].window;
        s.full = table[n].full;
        int64_t pairs = 0;
        for (int64_t i = 0; i < s.queries; i++)
            for (int64_t j = 0; j < s.keys; j++)
                pairs += j >= sheaf__attention_first(&s, i) && j <= sheaf__attention_last(&s, i);
        if (s.full)
            assert_true(pairs == s.queries * s.keys);
        const double one = 2.0 * (double)pairs * 3 * 8 * 16;
        device->flops = 0;
        sheaf__attention_forward(device, &s, NULL, NULL, NULL, NULL, NULL);
        CHECK_NEAR("forward", device->flops, 2 * one, 0);
        if (has_backward(&s))
            sheaf__attention_backward(device, &s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                      NULL);
        CHECK_NEAR("both", device->flops, (has_backward(&s) ? 7 : 2) * one, 0);
    }
    sheaf__device_close(device);
}
