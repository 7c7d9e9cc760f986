/* quantise_test.c - the columns are one, at all sizes; values by hand; nothing depends on flags or
 * on how a tensor is cut into boxes. The library's own bytes: parity/quantise. */
#include "tests/ops_twin.h"

#include <fenv.h>

#include "ops/quant/codes.h"
#include "ops/quant/quantise.h"

/* The largest first: then all of it is within [-1, 1], as absmax has it. */
static void fill(float *x, int64_t n, const twin *t)
{
    twin_fill(x, n, SHEAF_F32, t->numbers, (uint64_t)n);
}

static void compare_codes(const twin *t, int64_t n, const sheaf__map8 *map)
{
    enum { MOST = 6145 };
    static float *x;
    static uint8_t *want, *got;
    if (x == NULL)
        x = twin_take(MOST * 4), want = twin_take(MOST), got = twin_take(MOST);
    float *in = twin_end(x, MOST * 4, (size_t)n * 4);
    uint8_t *a = twin_end(want, MOST, (size_t)n), *b = twin_end(got, MOST, (size_t)n);
    fill(in, n, t);
    const float largest = t->ref->largest(in, n), fast = t->fast->largest(in, n);
    twin_same(t, "largest", &fast, &largest, 4);
    for (int k = 0; k < 4; k++) {
        const sheaf__codes kind = k & 1 ? SHEAF__NF4 : SHEAF__FP4;
        t->ref->codes4(a, in, n, 3.9f, k & 2, kind);
        t->fast->codes4(b, in, n, 3.9f, k & 2, kind);
        twin_same(t, "codes4", b, a, (size_t)n);
    }
    const float by = t->ref->codes8(a, in, n, map->code),
                too = t->fast->codes8(b, in, n, map->code);
    twin_same(t, "largest of 8 bits", &too, &by, 4);
    twin_same(t, "codes8", b, a, (size_t)n);
    for (int64_t i = 0; i < n; i++) /* what a row's own scale allows */
        in[i] = in[i] == in[i] && fabsf(in[i]) < 4 ? in[i] : 1;
    t->ref->codes_int8(a, in, n, 31.7f);
    t->fast->codes_int8(b, in, n, 31.7f);
    twin_same(t, "codes_int8", b, a, (size_t)n);
}

static void compare_values(const twin *t, int64_t n, const sheaf__map8 *map)
{
    enum { MOST = 6145 };
    static uint8_t *codes;
    static float *want, *got;
    if (codes == NULL)
        want = twin_take(MOST * 4), got = twin_take(MOST * 4), codes = twin_take(MOST);
    uint8_t *in = twin_end(codes, MOST, (size_t)n);
    float *a = twin_end(want, MOST * 4, (size_t)n * 4), *b = twin_end(got, MOST * 4, (size_t)n * 4);
    for (int kind = 0; kind < SHEAF__CODES; kind++) {
        const float scale = twin_number((uint64_t)(n * SHEAF__CODES + kind), t->numbers);
        for (int64_t i = 0; i < n; i++)
            in[i] = (uint8_t)(sheaf__random_tensor_u32(5, 6, (uint64_t)i) &
                              (sheaf__code_bits((sheaf__codes)kind) == 4 ? 15 : 255));
        t->ref->values(a, in, n, (sheaf__codes)kind, scale, (int)(n % 17));
        t->fast->values(b, in, n, (sheaf__codes)kind, scale, (int)(n % 17));
        twin_same(t, "values", b, a, (size_t)n * 4);
        t->ref->values8(a, in, n, scale, map->value);
        t->fast->values8(b, in, n, scale, map->value);
        twin_same(t, "values8", b, a, (size_t)n * 4);
    }
}

static void twins(const twin *t)
{
    static sheaf__map8 map;
    sheaf__map8_init(&map, true);
    if (t->dtype == SHEAF_F32)
        for (size_t s = 0; s < ARRAY_LEN(twin_sizes); s++) {
            compare_codes(t, twin_sizes[s], &map);
            compare_values(t, twin_sizes[s], &map);
        }
}

TEST(test_quantise__fast_kernels_give_the_bits_of_the_reference)
{
    twin_each(twins);
}

TEST(test_quantise__thresholds_are_the_middles_of_the_values)
{
    for (int i = 0; i < 15; i++) {
        const float nf4 = (sheaf__code_value(SHEAF__NF4, (uint32_t)i) +
                           sheaf__code_value(SHEAF__NF4, (uint32_t)i + 1)) /
                          2;
        const float fp4 = (sheaf__code_value(SHEAF__FP4, sheaf__fp4_order[i]) +
                           sheaf__code_value(SHEAF__FP4, sheaf__fp4_order[i + 1])) /
                          2;
        CHECK_BYTES("nf4", &sheaf__nf4_thresholds[i], &nf4, 4);
        CHECK_BYTES("fp4", &sheaf__fp4_thresholds[i], &fp4, 4);
    }
}

TEST(test_quantise__a_code_by_hand)
{
    /* absmax 2; y = 0.5, -1, 0, 0.04: behind 0.44 but before 0.5017; the least; 0; tie-free 8 */
    const float x[32] = { 1, -2, 0, 0.08f };
    uint8_t codes[33];
    float absmax[2];
    sheaf__quantise4(codes, absmax, x, SHEAF_F32, 32, 32, SHEAF__NF4);
    CHECK_NEAR("absmax", absmax[0], 2, 0);
    const uint8_t want[5] = { 12, 0, 7, 8, 7 };
    CHECK_BYTES("nf4", codes, want, 5);
    sheaf__quantise4(codes, absmax, x, SHEAF_F32, 32, 32, SHEAF__FP4);
    const uint8_t fp4[5] = { 5, 11, 0, 1, 0 };
    CHECK_BYTES("fp4", codes, fp4, 5);
}

/* Of 32: -3 and 4.5 are the ends, so that a symmetric step is 0.6 and another 0.5. */
TEST(test_quantise__groups_by_hand)
{
    static const struct {
        sheaf__codes kind;
        bool zeros;
        float scale;
        uint8_t zero, want[5];
    } rows[] = {
        { SHEAF__INT4, false, 0x1.334p-1f, 0, { 15, 3, 8, 9, 8 } },
        { SHEAF__INT4, true, 0.5f, 6, { 15, 0, 6, 7, 6 } },
        { SHEAF__INT8, false, 0x1.214p-5f, 0, { 127, 0xab, 0, 16, 0 } },
    };
    float x[96] = { [32] = 4.5f, -3, 0, 0.55f, -0.01f };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t codes[96], zeros[3] = { 0 };
        float scales[3];
        x[64] = INFINITY;
        sheaf__quantise_groups(codes, scales, rows[i].zeros ? zeros : NULL, x, SHEAF_F32, 96, 32,
                               rows[i].kind);
        assert_true(scales[0] == 0x1p-24f &&
                    codes[0] == (rows[i].want[2] == 6 ? 0 : rows[i].want[2]));
        assert_true(scales[1] == rows[i].scale && zeros[1] == rows[i].zero && isinf(scales[2]));
        CHECK_BYTES("codes", codes + 32, rows[i].want, 5);
    }
}

/* The library divides there, and multiplies by a rounded inverse in whole blocks: next to a
 * threshold these are two codes. */
TEST(test_quantise__an_incomplete_block_is_divided)
{
    int apart = 0;
    for (int i = 0; i < 4000; i++) {
        const float absmax = 1 + (float)i / 4096, t = sheaf__nf4_thresholds[8 + i % 7];
        float x[32] = { absmax, nextafterf(t * absmax, 2), t * absmax };
        uint8_t codes[32];
        float found;
        for (int whole = 0; whole < 2; whole++) {
            sheaf__quantise4(codes, &found, x, SHEAF_F32, whole ? 32 : 3, 32, SHEAF__NF4);
            for (int k = 1; k < 3; k++) {
                const float divided = x[k] / absmax, times = x[k] * (1.0f / absmax);
                const bool above = (whole ? times : divided) > t;
                apart += (times > t) != (divided > t);
                assert_int_equal(codes[k], 8 + i % 7 + above);
            }
        }
    }
    assert_true(apart > 100); /* or nothing would be shown */
}

/* Denormals are numbers here, with DAZ and FTZ set as without; they are as they were behind it. */
TEST(test_quantise__flags_do_not_matter)
{
    enum { N = 200 };
    float x[N], absmax[2][4], back[2][N], mean[2];
    uint8_t codes[2][N], scb_codes[2][N];
    float scb[2][2];
    for (int i = 0; i < N; i++)
        x[i] = sheaf__float((uint32_t)(i * 40503 & 0x3fffff) | (i & 1 ? 0x80000000 : 0));
    const unsigned before = sheaf__mode();
    for (int flush = 0; flush < 2; flush++) {
        sheaf__mode_set(flush ? SHEAF__COMPUTE_MODE : SHEAF__MERGE_MODE);
        fesetround(flush ? FE_UPWARD : FE_TONEAREST);
        const unsigned set = sheaf__mode();
        sheaf__quantise4(codes[flush], absmax[flush], x, SHEAF_F32, N, 64, SHEAF__NF4);
        const sheaf__quant quant = {
            .codes = SHEAF__NF4, .grouping = SHEAF__GROUPS_FLAT, .block = 64, .dtype = SHEAF_F32
        };
        const sheaf__dequantised from = { .quant = &quant,
                                          .box = { .in = N, .rows = 1, .cols = N },
                                          .parts = { .codes = codes[flush],
                                                     .scales = absmax[flush] },
                                          .to = SHEAF_F32 };
        sheaf__dequantise(back[flush], N, &from, 0, 1);
        sheaf__quantise_rows(scb_codes[flush], scb[flush], x, SHEAF_F32, 2, N / 2);
        mean[flush] = sheaf__mean(x, N);
        assert_int_equal(sheaf__mode() & ~0x3fu, set & ~0x3fu);
    }
    fesetround(FE_TONEAREST);
    sheaf__compute_mode_leave(before);
    CHECK_BYTES("codes", codes[1], codes[0], sizeof codes[0]);
    CHECK_BYTES("absmax", absmax[1], absmax[0], sizeof absmax[0]);
    CHECK_BYTES("numbers", back[1], back[0], sizeof back[0]);
    CHECK_BYTES("rows", scb_codes[1], scb_codes[0], sizeof scb_codes[0]);
    CHECK_BYTES("mean", &mean[1], &mean[0], 4);
    assert_true(mean[0] != 0 && back[0][N - 1] != 0);
}

/* A long row is read piece by piece. */
TEST(test_rows__of_int8_may_be_long)
{
    enum { COLS = 2 * 4096 + 100 };
    static float x[2 * COLS];
    static uint8_t codes[2 * COLS];
    float scb[2];
    for (int i = 0; i < 2 * COLS; i++)
        x[i] = (float)(i % 255 - 127);
    sheaf__quantise_rows(codes, scb, x, SHEAF_F32, 2, COLS);
    for (int i = 0; i < 2 * COLS; i++)
        assert_true((int8_t)codes[i] == (int)x[i]);
    assert_true(scb[0] == 127 && scb[1] == 127);
}

/* ---- boxes ---- */

enum { ROWS = 13, COLS = 75, ALL = ROWS * COLS };

typedef struct made {
    sheaf__quant quant;
    uint8_t codes[ALL], scale_codes[ALL], zeros[ALL];
    float scales[ALL], nested[16];
    uint16_t index[COLS];
} made;

/* What a source gives of a box: the groups of each row that the box touches. */
static void take_box(sheaf__quant_parts *to, const made *m, const sheaf__quant_box *b)
{
    const sheaf__quant *q = &m->quant;
    const int64_t groups = sheaf__quant_groups(q, b);
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t row = b->row0 + r, phase = sheaf__quant_phase(q, b, r);
        for (int64_t c = 0; c < b->cols; c++) {
            const int64_t col = b->col0 + c;
            int64_t mine = (phase + c) / (q->block > 0 ? q->block : COLS), of = mine;
            if (q->grouping == SHEAF__GROUPS_FLAT)
                of = (row * COLS + col) / q->block;
            else if (q->grouping == SHEAF__GROUPS_INDEXED)
                mine = m->index[col], of = row * q->groups + mine;
            else
                of = row * 8 + (q->block > 0 ? col / q->block : 0);
            to->codes[r * b->cols + c] = m->codes[row * COLS + col];
            to->scales[r * groups + mine] = m->scales[of];
            to->scale_codes[r * groups + mine] = m->scale_codes[of];
            to->zeros[r * groups + mine] = m->zeros[of];
        }
    }
}

static void dequantise_box(float *y, made *m, const sheaf__quant_box *b)
{
    static uint8_t codes[ALL], scale_codes[ALL * 4], zeros[ALL * 4];
    static float scales[ALL * 4];
    sheaf__dequantised from = { .quant = &m->quant,
                                .box = *b,
                                .parts = { codes, scales, scale_codes, zeros },
                                .whole = { m->index, m->nested, 0.25f },
                                .to = SHEAF_F32 };
    take_box(&from.parts, m, b);
    sheaf__dequantise(y, b->cols, &from, 0, 2 < b->rows ? 2 : b->rows);
    if (b->rows > 2)
        sheaf__dequantise(y + 2 * b->cols, b->cols, &from, 2, b->rows - 2);
}

static void make(made *m, const sheaf__quant *quant)
{
    m->quant = *quant;
    for (uint32_t i = 0; i < ALL; i++) {
        const uint32_t u = sheaf__random_tensor_u32(7, 8, i);
        m->codes[i] = (uint8_t)(u & (sheaf__code_bits(quant->codes) == 4 ? 15 : 255));
        m->scales[i] = (float)(u >> 8 & 255) / 64 - 1;
        m->scale_codes[i] = (uint8_t)(u >> 16);
        m->zeros[i] = (uint8_t)((u >> 24) % 17);
    }
    for (uint32_t i = 0; i < 16; i++)
        m->nested[i] = 1 + (float)i / 8;
    for (uint32_t c = 0; c < COLS; c++)
        m->index[c] = (uint16_t)(c * 5 % 7);
}

static float one_value(const made *m, int64_t row, int64_t col)
{
    static float map[256];
    const sheaf__quant *q = &m->quant;
    int64_t of = row * 8 + (q->block > 0 ? col / q->block : 0);
    if (q->grouping == SHEAF__GROUPS_FLAT)
        of = (row * COLS + col) / q->block;
    else if (q->grouping == SHEAF__GROUPS_INDEXED)
        of = row * q->groups + m->index[col];
    sheaf__dynamic_map(map, true);
    const float scale =
        q->doubled ? map[m->scale_codes[of]] * m->nested[of / 256] + 0.25f : m->scales[of];
    const uint32_t code = m->codes[row * COLS + col];
    return (q->zeros ? (float)((int)code - m->zeros[of]) : sheaf__code_value(q->codes, code)) *
           scale;
}

TEST(test_quantise__a_box_has_the_values_of_the_whole)
{
    static const sheaf__quant forms[] = {
        { .codes = SHEAF__NF4, .grouping = SHEAF__GROUPS_FLAT, .block = 32 },
        { .codes = SHEAF__FP4, .grouping = SHEAF__GROUPS_FLAT, .block = 64 },
        { .codes = SHEAF__NF4, .grouping = SHEAF__GROUPS_FLAT, .block = 3, .doubled = true },
        { .codes = SHEAF__INT4, .block = 16, .zeros = true },
        { .codes = SHEAF__INT4, .block = 0 },
        { .codes = SHEAF__E2M1, .block = 32 },
        { .codes = SHEAF__INT4, .grouping = SHEAF__GROUPS_INDEXED, .groups = 7, .zeros = true },
        { .codes = SHEAF__INT8, .block = 0 },
        { .codes = SHEAF__F8_E4M3, .block = 24 },
    };
    static const sheaf__quant_box boxes[] = {
        { COLS, 0, ROWS, 0, COLS }, { COLS, 3, 5, 0, COLS }, { COLS, 0, ROWS, 20, 31 },
        { COLS, 12, 1, 74, 1 },     { COLS, 2, 3, 33, 40 },
    };
    static made m;
    static float y[ALL];
    for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
        sheaf__quant form = forms[f];
        form.dtype = SHEAF_F32;
        make(&m, &form);
        for (size_t b = 0; b < ARRAY_LEN(boxes); b++) {
            dequantise_box(y, &m, &boxes[b]);
            for (int64_t i = 0; i < boxes[b].rows * boxes[b].cols; i++) {
                const float want = one_value(&m, boxes[b].row0 + i / boxes[b].cols,
                                             boxes[b].col0 + i % boxes[b].cols);
                if (y[i] != want && !(y[i] != y[i] && want != want))
                    fail_msg("form %zu, box %zu, element %lld: %a, wanted %a", f, b, (long long)i,
                             y[i], want);
            }
        }
    }
}

/* 1 + 2^-9 is rounded down to bfloat16's 1; float16 keeps it. */
TEST(test_quantise__values_are_rounded_for_what_they_are_for)
{
    uint8_t code = 9, one = 1;
    float scale = 1 + 0x1p-9f, y;
    uint16_t half;
    sheaf__quant quant = { .codes = SHEAF__INT4, .dtype = SHEAF_BF16 };
    sheaf__dequantised from = { .quant = &quant,
                                .box = { .in = 1, .rows = 1, .cols = 1 },
                                .parts = { .codes = &code, .scales = &scale },
                                .to = SHEAF_F32 };
    sheaf__dequantise(&y, 1, &from, 0, 1);
    CHECK_NEAR("forward", y, 1 + 0x1p-9, 0);
    from.what = SHEAF__VALUES_BACK;
    sheaf__dequantise(&y, 1, &from, 0, 1);
    CHECK_NEAR("back", y, 1, 0);
    from.what = SHEAF__VALUES_PROGRAM, from.to = SHEAF_F16;
    sheaf__dequantise(&half, 1, &from, 0, 1);
    CHECK_NEAR("program", sheaf__from_f16(half), 1, 0);
    from.what = SHEAF__VALUES_FORWARD;
    sheaf__dequantise(&half, 1, &from, 0, 1);
    CHECK_NEAR("forward in float16", sheaf__from_f16(half), 1 + 0x1p-9, 0);
    quant.codes = SHEAF__INT8, from.parts.codes = &one, from.what = SHEAF__VALUES_BACK;
    sheaf__dequantise(&half, 1, &from, 0, 1);
    CHECK_NEAR("int8 has no way back of its own", sheaf__from_f16(half), 1 + 0x1p-9, 0);
}

/* torch 2.13, one thread: torch.tensor([...]).mean() of float32((i * 2654435761 mod 2^32) / 2^32)
 */
TEST(test_quantise__the_mean_is_that_of_torch)
{
    static const struct {
        int64_t n;
        uint32_t bits;
    } known[] = { { 1, 0x00000000 },     { 7, 0x3ed9df23 },     { 8, 0x3ed38455 },
                  { 33, 0x3efd3cca },    { 512, 0x3effbbe9 },   { 1000, 0x3efffce7 },
                  { 5000, 0x3efff96f },  { 65536, 0x3effff86 }, { 100003, 0x3effff9f },
                  { 300000, 0x3effffd6 }

    };
    enum { MOST = 300000 };
    float *x = malloc(MOST * sizeof *x);
    assert_non_null(x);
    for (uint32_t i = 0; i < MOST; i++)
        x[i] = (float)((double)(i * 2654435761u) / 4294967296.0);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const float mean = sheaf__mean(x, known[i].n);
        if (sheaf__bits(mean) != known[i].bits)
            fail_msg("of %lld: %08x, wanted %08x", (long long)known[i].n, sheaf__bits(mean),
                     known[i].bits);
    }
    free(x);
}
