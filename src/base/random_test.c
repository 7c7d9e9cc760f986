/* random_test.c - Philox against its published vectors; what is built on it keeps its promises. */
#include "tests/check.h"

#include "base/cpu.h"
#include "base/normals.h"
#include "base/normals_of.h"
#include "base/random.h"

/* From the file kat_vectors of Random123, the authors' own: philox4x32, 10 rounds. */
static const struct {
    uint32_t counter[4], key[2], want[4];
} published[] = {
    { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
      { 0xffffffff, 0xffffffff },
      { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
      { 0xa4093822, 0x299f31d0 },
      { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

TEST(test_philox__gives_the_published_vectors)
{
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        uint32_t out[4];
        sheaf__philox(out, published[i].counter, published[i].key);
        CHECK_BYTES("philox", out, published[i].want, sizeof out);
    }
}

TEST(test_random_u32__is_a_word_of_the_row_s_blocks)
{
    uint32_t key[2];
    sheaf__random_row_key(key, 7, 1, 2, 3, 4);
    for (uint64_t d = 0; d < 300; d++) {
        const uint32_t counter[4] = { (uint32_t)(d / 64 * 16 + d % 16), 0, 0, 0 };
        uint32_t word[4];
        sheaf__philox(word, counter, key);
        assert_int_equal(sheaf__random_u32(7, 1, 2, 3, 4, d), word[d / 16 % 4]);
    }
}

/* Frozen with the contract's version: changing one of these changes every run. */
TEST(test_random__frozen_values)
{
    assert_int_equal(sheaf__random_u32(0, 0, 0, 0, 0, 0), 168535653u);
    assert_int_equal(sheaf__random_u32(1234, 5, 6, 7, 8, 99), 3172138264u);
    assert_int_equal(sheaf__name_key("model.norm.weight"), UINT64_C(15480813312422577380));
    assert_int_equal(sheaf__random_tensor_u32(42, sheaf__name_key("a"), 1000000007), 4161130473u);
    CHECK_NEAR("normal", sheaf__random_normal(42, 1, 2), 0x1.17517cp+0, 0);
    assert_int_equal(sheaf__permute(3, 10, 42, 1), 8);
}

TEST(test_random_u32__every_argument_counts)
{
    const uint64_t base[6] = { 11, 22, 33, 44, 55, 66 };
    const uint32_t want = sheaf__random_u32(11, 22, 33, 44, 55, 66);
    for (int i = 0; i < 6; i++)
        for (int bit = 0; bit < 64; bit++) {
            uint64_t v[6];
            memcpy(v, base, sizeof v);
            v[i] ^= UINT64_C(1) << bit;
            assert_int_not_equal(sheaf__random_u32(v[0], v[1], v[2], v[3], v[4], v[5]), want);
        }
}

TEST(test_unit_float__stays_inside_and_is_exact)
{
    CHECK_NEAR("smallest", sheaf__unit_float(0), 0x1p-24, 0);
    CHECK_NEAR("largest", sheaf__unit_float(UINT32_MAX), 1 - 0x1p-24, 0);
    CHECK_NEAR("middle", sheaf__unit_float(0x80000000u), 0.5 + 0x1p-24, 0);
}

/* Every length and beginning of a group, over 2^32, of every column that this machine has. */
TEST(test_random_normals__are_those_of_single_elements)
{
    const uint64_t firsts[] = { 0, 7, UINT64_C(0xffffffff) - 40, UINT64_C(1) << 40 };
    float x[8192];
    for (size_t f = 0; f < ARRAY_LEN(firsts); f++)
        for (int n = 1; n <= 8192; n += n < 70 ? 1 : 2707) {
            sheaf__random_normals(x, 42, 3, firsts[f], n);
            for (int i = 0; i < n; i++) {
                const float want = sheaf__random_normal(42, 3, firsts[f] + (uint64_t)i);
                CHECK_BYTES("normal", &x[i], &want, sizeof want);
            }
#ifndef SHEAF_NO_X86
            float other[8192];
            const int64_t whole = n / SHEAF__NORMALS * SHEAF__NORMALS;
            if (!SHEAF__CPU_HAS("avx2") || !SHEAF__CPU_HAS("fma"))
                continue;
            sheaf__normals_avx2(other, 42 ^ UINT64_C(0x726f736e6574), 3, firsts[f], whole);
            CHECK_BYTES("avx2", other, x, (size_t)whole * sizeof *x);
#endif
        }
}

TEST(test_random_normal__has_the_moments_of_a_normal)
{
    const int n = 200000;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (int i = 0; i < n; i++) {
        const double x = sheaf__random_normal(1, 2, (uint64_t)i);
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
    }
    /* five standard errors: 1, sqrt 2, sqrt 15, sqrt 96 over sqrt n */
    CHECK_NEAR("mean", m1 / n, 0, 5 / sqrt(n));
    CHECK_NEAR("variance", m2 / n, 1, 5 * sqrt(2.0 / n));
    CHECK_NEAR("third", m3 / n, 0, 5 * sqrt(15.0 / n));
    CHECK_NEAR("fourth", m4 / n, 3, 5 * sqrt(96.0 / n));
}

TEST(test_permute__is_a_permutation_at_every_size)
{
    static unsigned char seen[5000];
    for (uint64_t n = 1; n < 5000; n = n < 70 ? n + 1 : n * 3 / 2 + 1)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t at = sheaf__permute(i, n, 42, epoch);
                assert_int_equal(sheaf__permute_back(at, n, 42, epoch), i);
                assert_true(at < n && !seen[at]);
                seen[at] = 1;
            }
        }
    assert_true(sheaf__permute(12345, UINT64_C(1) << 62, 1, 1) < UINT64_C(1) << 62);
}

TEST(test_permute__differs_by_seed_and_epoch_and_moves_things)
{
    int fixed = 0, same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t at = sheaf__permute(i, 1000, 1, 0);
        fixed += at == i;
        same_epoch += at == sheaf__permute(i, 1000, 1, 1);
        same_seed += at == sheaf__permute(i, 1000, 2, 0);
    }
    /* each is about Poisson(1) */
    assert_true(fixed < 10 && same_epoch < 10 && same_seed < 10);
}
