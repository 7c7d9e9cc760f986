/* attention_full_test.c - full attention: queries and keys of different number, every query sees
 * all keys. Its double version is in attention_test.c. */
#include "tests/attention_twin.h"

/* Three queries, two keys of one channel, all seen by all: scores q k = (ln 3, 0), (0, 0) and (-ln
 * 3, 0), so p = (3, 1) / 4, (1, 1) / 2, (1, 3) / 4 and o = 5, 6, 7. With d_o = 1, 0, 2: D = 5, 0,
 * 14; dp = (4, 8), (0, 0), (8, 16); ds = (-3/4, 3/4), 0, (-3/2, 3/2); dq = ds . k; dk and dv sum
 * over the queries. With key 0 hidden all is key 1's: o = 8 everywhere, ds = 0 and dv = (0, 1 + 0 +
 * 2). */
TEST(test_attention__full_worked_by_hand)
{
    const float ln3 = 1.09861229f, q[3] = { 1, 0, -1 }, k[2] = { 1.09861229f, 0 }, v[2] = { 4, 8 };
    const float d_o[3] = { 1, 0, 2 };
    const uint8_t second[2] = { 0, 1 };
    const struct {
        const char *name;
        const uint8_t *mask;
        float o[3], max[3], sum[3], dq[3], dk[2], dv[2];
    } table[] = {
        { "all", NULL, LIST(5, 6, 7), LIST(ln3, 0, 0), LIST(4.0f / 3, 2, 4.0f / 3),
          LIST(-0.75f * ln3, 0, -1.5f * ln3), LIST(0.75f, -0.75f), LIST(1.25f, 1.75f) },
        { "the first key hidden", second, LIST(8, 8, 8), LIST(0, 0, 0), LIST(1, 1, 1),
          LIST(0, 0, 0), LIST(0, 0), LIST(0, 3) },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        float o[3], stats[6], dq[3], dk[2], dv[2];
        sheaf__attention s = attention_of(SHEAF_F32, 1, 3, 2, 1, 1, 1, 1);
        s.window = 1;
        s.full = true;
        s.key_mask = table[i].mask;
        s.mask_ld = 2;
        attention_forward_ref(&s, SHEAF_SUMS_PAIRS, o, stats, q, k, v);
        attention_backward_ref(&s, SHEAF_SUMS_PAIRS, dq, dk, dv, d_o, o, stats, q, k, v);
        for (int t = 0; t < 3; t++) {
            CHECK_NEAR(table[i].name, o[t], table[i].o[t], 2e-6);
            CHECK_NEAR(table[i].name, stats[2 * t], table[i].max[t], 2e-6);
            CHECK_NEAR(table[i].name, stats[2 * t + 1], table[i].sum[t], 2e-6);
            CHECK_NEAR(table[i].name, dq[t], table[i].dq[t], 2e-6);
        }
        for (int j = 0; j < 2; j++) {
            CHECK_NEAR(table[i].name, dk[j], table[i].dk[j], 2e-6);
            CHECK_NEAR(table[i].name, dv[j], table[i].dv[j], 2e-6);
        }
    }
}

/* window is set here and there: full attention ignores it. */
TEST(test_attention__full_equals_reference_at_odd_shapes)
{
    static const int64_t group[] = { 1, 2, 3, 7 };
    const uint64_t halves = (uint64_t)in_soak(120, 60); /* from there on float16 */
    for (uint64_t i = 0; i < halves + 10; i += (uint64_t)every(7)) {
        sheaf__attention s = { .dtype = i >= halves ? SHEAF_F16
                                        : i & 1     ? SHEAF_BF16
                                                    : SHEAF_F32,
                               .full = true,
                               .scale = 0.3f };
        s.batch = 1 + chance(i * 16, 2);
        s.keys = i % 7 == 0 ? 1 : 1 + chance(i * 16 + 1, 70);
        s.queries = i % 5 == 0 ? s.keys : 1 + chance(i * 16 + 2, 90);
        s.kv_heads = 1 + chance(i * 16 + 3, 2);
        s.group = group[chance(i * 16 + 4, ARRAY_LEN(group))];
        s.head_dim = i & 1 ? 2 * (1 + chance(i * 16 + 5, 30)) : 1 + chance(i * 16 + 5, 60);
        s.window = i % 4 == 1 ? 1 + chance(i * 16 + 6, 9) : 0;
        s.kv_rows = s.keys + chance(i * 16 + 7, 5);
        check_shape(s, chance(i * 16 + 8, 3), i / 2 % 2 == 0, i);
    }
}

/* The heads of the towers and of cross-attention; more than one block on either side. */
TEST(test_attention__full_equals_reference_across_blocks)
{
    static const struct {
        sheaf_dtype dtype;
        int64_t batch, queries, keys, kv, group, d;
        bool mask;
    } table[] = {
        { SHEAF_BF16, 1, 257, 257, 1, 1, 112, false }, { SHEAF_F32, 1, 257, 257, 1, 1, 112, false },
        { SHEAF_BF16, 1, 515, 300, 1, 2, 16, false },  { SHEAF_F32, 1, 515, 300, 1, 1, 10, true },
        { SHEAF_BF16, 2, 30, 777, 1, 1, 32, true },    { SHEAF_F32, 2, 30, 777, 1, 1, 32, false },
        { SHEAF_BF16, 1, 1, 3000, 3, 1, 32, false },   { SHEAF_F32, 1, 1, 3000, 3, 1, 32, false },
        { SHEAF_BF16, 1, 1300, 3, 2, 1, 32, false },   { SHEAF_F32, 1, 1300, 2, 2, 1, 6, true },
        { SHEAF_BF16, 1, 256, 512, 1, 1, 4, false },   { SHEAF_F32, 1, 512, 256, 1, 1, 4, false },
        { SHEAF_BF16, 1, 70, 33, 1, 2, 256, false },   { SHEAF_F32, 1, 70, 33, 1, 1, 256, false },
        { SHEAF_BF16, 1, 5, 8300, 1, 1, 64, false },   { SHEAF_F32, 1, 300, 1, 1, 2, 3, false },
        { SHEAF_F16, 1, 257, 300, 1, 1, 112, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i += (size_t)every(7))
        check_shape(full_attention_of(table[i].dtype, table[i].batch, table[i].queries,
                                      table[i].keys, table[i].kv, table[i].group, table[i].d,
                                      0.125f),
                    0, table[i].mask, 2 + i);
}

/* The fast kernels go no slow path here. The mask hides the row with the number, its neighbour, all
 * keys but it, or all keys. */
TEST(test_attention__numbers_out_of_the_ordinary_in_full_attention)
{
    static const float odd[] = { INFINITY, -INFINITY, NAN, -1e-40f, 3e38f };
    for (uint64_t i = 0; i < 2 * 4 * 5 * ARRAY_LEN(odd);
         i += (uint64_t)(every(7) * in_soak(1, 3))) {
        const int64_t row = (int64_t)chance(i, 37), hide = (int64_t)(i / 8 % 5);
        sheaf__attention s =
            attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1, 53, 37, 2, 2, 18, 0.3f);
        s.full = true;
        problem p = problem_of(s, 0, hide != 0);
        for (int64_t j = 0; hide != 0 && j < s.keys; j++)
            p.mask[j] = hide == 1   ? j != row
                        : hide == 2 ? j != (row ^ 1)
                        : hide == 3 ? j == row
                                    : 0;
        put_odd_number(&p, (int)(i / 2 % 4), row, odd[i / 40]);
        char name[80];
        snprintf(name, sizeof name, "%g in operand %d of row %d, hidden %d", (double)odd[i / 40],
                 (int)(i / 2 % 4), (int)row, (int)hide);
        check_twins(&p, name);
    }
}

/* Through the tasks of the device, whether heads are many (each is one task) or one. */
TEST(test_attention__full_on_a_device_is_the_definition)
{
    static const struct {
        int64_t queries, keys, heads;
    } table[] = {
        { 600, 70, 1 },
        { 70, 600, 1 },
        { 300, 40, 4 },
        { 40, 300, 4 },
    };
    for (size_t i = 0; i < ARRAY_LEN(table) * 2; i++) {
        problem p =
            problem_of(full_attention_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 1, table[i / 2].queries,
                                         table[i / 2].keys, table[i / 2].heads, 1, 6, 0.3f),
                       1, false);
        result want = result_of(&p);
        run_ref(&p, &want);
        for (int isa = -1; isa < (int)ARRAY_LEN(columns); isa++) {
            const char *name = isa < 0 ? "ref" : columns[isa];
            if (!on_this_cpu(name))
                continue;
            result got = result_of(&p);
            run_device(&p, &got, name, 2);
            same_results(name, &p, &got, &want);
        }
    }
}

/* Without queries no key has a gradient; without keys a query sees nothing. */
TEST(test_attention__full_without_queries_or_without_keys_is_zero)
{
    for (int code = 0; code < 4 * (1 + (int)ARRAY_LEN(columns)); code++) {
        const char *isa = code / 4 == 0 ? "ref" : columns[code / 4 - 1];
        enum { N = 5, WIDE = 2 * 3 * 4 };
        float x[N * WIDE] = { 0 }, o[N * WIDE], dq[N * WIDE], dk[N * WIDE], dv[N * WIDE],
                    stats[N * 6 * 2] = { 0 };
        const size_t bytes = sizeof o;
        sheaf__attention s = attention_of(code & 1 ? SHEAF_BF16 : SHEAF_F32, 1, code & 2 ? N : 0,
                                          code & 2 ? 0 : N, 2, 3, 4, 1);
        s.kv_rows = N;
        s.full = true;
        const size_t q_bytes = (size_t)(s.queries * WIDE) * twin_bytes(s.dtype),
                     k_bytes = (size_t)(s.keys * 8) * twin_bytes(s.dtype);
        if (!on_this_cpu(isa))
            continue;
        sheaf__device *device;
        CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 2, isa, SMALL_DEVICE));
        float *const out[] = { o, dq, dk, dv };
        for (size_t i = 0; i < ARRAY_LEN(out); i++)
            memset(out[i], 0x55, bytes);
        sheaf__attention_forward(device, &s, o, stats, x, x, x);
        sheaf__attention_backward(device, &s, dq, dk, dv, x, o, stats, x, x, x);
        assert_true(device->flops == 0);
        CHECK_BYTES("o", o, x, q_bytes);
        CHECK_BYTES("dq", dq, x, q_bytes);
        CHECK_BYTES("dk", dk, x, k_bytes);
        CHECK_BYTES("dv", dv, x, k_bytes);
        if (s.queries > 0)
            assert_true(stats[0] == -INFINITY && stats[1] == 0);
        sheaf__device_close(device);
    }
}

/* ---- packed sequences ---- */

/* The problem of one segment: its rows of the operands, alone. */
static problem alone(const problem *p, int64_t first, int64_t rows)
{
    problem one = *p;
    const int64_t b = first / p->s.queries;
    one.s.segment = NULL;
    one.s.batch = 1;
    one.s.queries = one.s.keys = one.s.kv_rows = rows;
    one.s.key_mask =
        p->mask == NULL ? NULL : p->mask + b * p->s.mask_ld + (first - b * p->s.queries);
    one.q = (char *)p->q + bytes_of(p, first * p->s.ldq);
    one.k = (char *)p->k + bytes_of(p, first * p->s.ldk);
    one.v = (char *)p->v + bytes_of(p, first * p->s.ldv);
    one.d_o = (char *)p->d_o + bytes_of(p, first * p->s.ldo);
    return one;
}

static void check_segments(const problem *p, const char *isa, int threads)
{
    char name[120];
    result packed = result_of(p), apart = result_of(p);
    run_device(p, &packed, isa, threads);
    for (int64_t i = 0; i < p->s.segments; i++) {
        const int64_t first = p->s.segment[i];
        const problem one = alone(p, first, p->s.segment[i + 1] - first);
        const result r = { (char *)apart.o + bytes_of(p, first * p->s.ldo),
                           (char *)apart.dq + bytes_of(p, first * p->s.ldq),
                           (char *)apart.dk + bytes_of(p, first * p->s.ldk),
                           (char *)apart.dv + bytes_of(p, first * p->s.ldv),
                           apart.stats + first * p->s.kv_heads * p->s.group * 2 };
        run_device(&one, &r, isa, 1);
    }
    snprintf(name, sizeof name, "packed, dtype %d, sums %d, %s, %d threads", (int)p->s.dtype,
             (int)p->sums, isa == NULL ? "best" : isa, threads);
    same_results(name, p, &packed, &apart);
    if (isa != NULL && strcmp(isa, "ref") == 0) {
        run_ref(p, &apart); /* the definition itself */
        same_results("packed, as it is defined", p, &packed, &apart);
    }
}

/* Each of them has the bits that it has alone, wherever it lies and whatever stands beside it. */
TEST(test_attention__packed_sequences_are_as_each_alone)
{
    static const int64_t segment[] = { 0, 1, 18, 280, 280 + 270, 560 };
    static const char *const isa[] = { "ref", "avx2", "avx512", NULL };
    for (int n = 0; n < 6; n++) {
        sheaf__attention s = attention_of(attention_types[n % 3], 2, 280, 280, 1, 2, 6, 0.3f);
        s.window = n >= 3 ? 40 : 0;
        s.segment = segment;
        s.segments = 5;
        problem p = problem_of(s, 2, n >= 3);
        fill_mask(&p, (uint64_t)n);
        for (size_t i = n == 4 ? 0 : 1; i < ARRAY_LEN(isa); i++) /* the reference takes its time */
            for (int tiles = 0; tiles < 2; tiles++) {
                p.sums = tiles ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
                if ((isa[i] == NULL || on_this_cpu(isa[i])) && (!tiles || n % 3 == 1))
                    check_segments(&p, isa[i], 1 + (int)i);
            }
    }
}

/* More of them than the search for a task has marks, all of other lengths than their neighbours. */
TEST(test_attention__hundreds_of_packed_sequences)
{
    enum { SEGMENTS = 601, ROWS = 3 * SEGMENTS };
    int64_t segment[SEGMENTS + 1] = { 0 };
    for (int i = 0; i < SEGMENTS; i++)
        segment[i + 1] = i + 1 == SEGMENTS ? ROWS : segment[i] + 1 + (i * 7 + i / 256) % 5;
    sheaf__attention s = attention_of(SHEAF_F32, 1, ROWS, ROWS, 2, 1, 2, 0.3f);
    s.segment = segment;
    s.segments = SEGMENTS;
    problem p = problem_of(s, 2, false);
    check_segments(&p, NULL, 2);
}

TEST(test_attention__packed_work_is_counted_by_sequence)
{
    static const int64_t segment[] = { 0, 3, 7, 14 };
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__dry, 4, NULL, 0));
    sheaf__attention s = attention_of(SHEAF_F32, 2, 7, 7, 1, 1, 4, 1);
    s.segment = segment;
    s.segments = 3;
    sheaf__attention_forward(device, &s, NULL, NULL, NULL, NULL, NULL);
    assert_true(device->flops == 2.0 * 2 * 4 * (6 + 10 + 28));
    sheaf__device_close(device);
}

/* Peak of a backward pass with so many threads, as a plan counts it. */
static size_t peak_of(int64_t keys, const int64_t *segment, int64_t segments, int threads)
{
    sheaf__device *device;
    sheaf__attention s = attention_of(SHEAF_BF16, 1, keys, keys, 1, 4, 128, 1);
    s.segment = segment;
    s.segments = segments;
    CHECK_OK(sheaf__device_open(&device, &sheaf__dry, threads, NULL, 0));
    sheaf__attention_backward(device, &s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    const size_t peak = device->peak;
    sheaf__device_close(device);
    return peak;
}

/* A plan knows how long a row is, not which sequences are in it. */
TEST(test_attention__packed_sequences_take_no_more_memory_than_was_planned)
{
    static const int64_t rows[] = { 5120, 10240, 30720 }; /* of the last no task has room */
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int threads = 1; threads <= 16; threads++) {
            const int64_t n = rows[i], one[] = { 0, n }, halves[] = { 0, n / 2, n },
                          uneven[] = { 0, n / 2, n / 2 + 40, n / 2 + 300, n };
            const size_t whole = peak_of(n, NULL, 0, threads);
            assert_true(peak_of(n, one, 1, threads) == whole);
            assert_true(peak_of(n, halves, 2, threads) <= whole);
            assert_true(peak_of(n, uneven, 4, threads) <= whole);
        }
    assert_true(peak_of(rows[1], NULL, 0, 1) > peak_of(rows[0] / 2, NULL, 0, 1));
}
