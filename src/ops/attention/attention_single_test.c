/* attention_single_test.c - one query for each sequence, as decoding has it: the fast kernels
 * against the reference, bit for bit. */

#include "tests/attention_twin.h"

static sheaf__attention shape_of(sheaf_dtype dtype, int64_t keys, int64_t group, int64_t d)
{
    return attention_of(dtype, 1, 1, keys, 2, group, d, 0.3f);
}

/* Keys and channels on both sides of whole panels, blocks and chunks; all counts of heads that a
 * tile has, and more. */
TEST(test_single__fast_equals_reference_at_odd_shapes)
{
    static const int64_t keys[] = { 1, 2, 15, 16, 17, 33, 63, 64, 65, 255, 256, 257, 300, 530 },
                         heads[] = { 1, 2, 3, 4, 5, 8, 18 },
                         d[] = { 2, 14, 16, 18, 32, 48, 64, 80, 100, 128, 256 };
    for (uint64_t i = 0; i < 84; i++) {
        sheaf__attention s = shape_of(attention_types[i % 3], keys[i % ARRAY_LEN(keys)],
                                      heads[i / 3 % ARRAY_LEN(heads)], d[i % ARRAY_LEN(d)]);
        s.batch = 1 + chance(i * 16, 2);
        s.window = i % 4 == 1 ? 1 + chance(i * 16 + 1, 300) : 0;
        s.full = i % 7 == 3;
        s.cap = i % 6 == 2 ? 1.5f : 0;
        s.kv_rows += chance(i * 16 + 2, 5);
        s.by_head = chance(i * 16 + 4, 3) > 0;
        check_shape(s, chance(i * 16 + 3, 3), i % 4 > 1, i);
    }
}

TEST(test_single__scores_that_rise_from_part_to_part)
{
    static const int64_t keys[] = { 1023, 1024, 1025, 2049 };
    for (size_t i = 0; i < 3 * ARRAY_LEN(keys); i++) {
        problem p = problem_of(shape_of(attention_types[i % 3], keys[i / 3], 2, 16), 0, false);
        p.s.scale = 0.25f;
        put_rising(&p);
        check_twins(&p, "scores that rise");
    }
}

/* All keys weigh the same and values cancel, but for what the sums on the way lose: what is left
 * shows their order, which the rounding of o would else hide. */
TEST(test_single__order_of_the_sums)
{
    for (int i = 0; i < 9; i++) {
        const sheaf_dtype dtype = attention_types[i % 3];
        const int64_t keys = i < 3 ? 50 : i < 6 ? 64 : 301, wide = 2 * 64;
        problem p = problem_of(shape_of(dtype, keys, 1 + i % 2, 64), 0, false);
        memset(p.k, 0, bytes_of(&p, p.nk));
        for (int64_t at = 0; at < keys * wide; at++) {
            const int64_t j = at / wide, twin = j < keys - 1 - j ? j : keys - 1 - j;
            const uint32_t what = chance((uint64_t)(twin * wide + at % wide), 1u << 20);
            const float x = ldexpf(1 + (float)(what % 128) / 128, (int)(what / 128 % 20) - 10);
            const float sign = what >> 19 ? -1 : 1;
            sheaf__store(p.v, at, j == twin ? x * sign : -x * sign, dtype);
        }
        check_twins(&p, "values that cancel");
    }
}

/* The heads of a row, or one head's rows behind the other: the same. */
TEST(test_single__by_head_is_another_place_of_the_same)
{
    for (int queries = 1; queries < 40; queries += 19) {
        sheaf__attention s = shape_of(SHEAF_BF16, 70, 2, 24);
        s.batch = 2;
        s.queries = queries;
        s.kv_rows = 73;
        problem rows = problem_of(s, 2, false);
        s.by_head = true;
        problem heads = problem_of(s, 1, false);
        const uint16_t *from[] = { rows.k, rows.v };
        uint16_t *to[] = { heads.k, heads.v };
        const int64_t ld[] = { rows.s.ldk, rows.s.ldv }, ldh[] = { heads.s.ldk, heads.s.ldv };
        for (int64_t b = 0; b < 2; b++)
            for (int64_t h = 0; h < 2; h++)
                for (int64_t j = 0; j < 70; j++)
                    for (int x = 0; x < 2; x++)
                        memcpy(to[x] + ((b * 2 + h) * 73 + j) * ldh[x],
                               from[x] + (b * 73 + j) * ld[x] + h * 24, 48);
        for (int64_t i = 0; i < 2 * queries; i++)
            memcpy((uint16_t *)heads.q + i * heads.s.ldq, (uint16_t *)rows.q + i * rows.s.ldq,
                   4 * 48);
        result a = result_of(&rows), b = result_of(&heads);
        run_device(&rows, &a, NULL, 1);
        run_device(&heads, &b, NULL, 1);
        for (int64_t i = 0; i < 2 * queries; i++)
            CHECK_BYTES("o", (uint16_t *)b.o + i * heads.s.ldo, (uint16_t *)a.o + i * rows.s.ldo,
                        4 * 48);
    }
}

/* So many keys and heads that the scores of all heads do not fit in little scratch. */
TEST(test_single__heads_by_parts)
{
    for (int i = 0; i < 3; i++) {
        sheaf__attention s = shape_of(attention_types[i], 4097, 40, 16);
        s.kv_heads = 1;
        check_shape(s, 1, i == 1, 1);
    }
}

/* An inf or NaN counts where the query sees it, and nowhere else. */
TEST(test_single__numbers_out_of_the_ordinary)
{
    static const float odd[] = { INFINITY, -INFINITY, NAN, 1e-40f, 3e38f };
    for (uint64_t i = 0; i < 2 * 3 * 3 * ARRAY_LEN(odd); i++) {
        const uint64_t way = i / 6 % 3;
        sheaf__attention s = shape_of(i & 1 ? SHEAF_BF16 : SHEAF_F32, 90, 2, 18);
        s.window = way == 1 ? 41 : 0;
        /* of k, v or q; keys at the edge of the window, before it and behind */
        const int operand = (int)(i / 2 % 3);
        check_odd_number(s, way == 2, i, operand, operand == 0 ? 0 : 47 + (int64_t)chance(i, 6),
                         odd[i / 18]);
    }
}

TEST(test_single__a_query_that_sees_nothing_gives_zero)
{
    for (int i = 0; i < 2; i++) {
        problem p = problem_of(shape_of(i == 0 ? SHEAF_F32 : SHEAF_BF16, 40, 3, 32), 0, true);
        result got = result_of(&p);
        const float zeros[3 * 32 * 2] = { 0 };
        run_device(&p, &got, NULL, 1);
        CHECK_BYTES("o", got.o, zeros, bytes_of(&p, p.no));
        for (int64_t h = 0; h < p.nstats; h += 2) {
            assert_true(isinf(got.stats[h]) && got.stats[h] < 0);
            assert_true(got.stats[h + 1] == 0);
        }
        check_twins(&p, "nothing seen");
    }
}
