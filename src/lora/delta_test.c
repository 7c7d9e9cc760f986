/* delta_test.c - the fast product gives the bits of the plain one. */
#include "tests/check.h"

#include "base/random.h"
#include "lora/delta.h"

static void fill(float *x, int64_t n, uint64_t key, float scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sheaf__random_normal(7, key, (uint64_t)i) * scale;
}

/* rows, cols, rank, block; scale small enough that products are denormal in some */
static const struct { int64_t rows, cols, rank, block; float scale; } shapes[] = {
    { 1, 1, 1, 0, 1 },      { 5, 15, 3, 0, 1 },      { 6, 16, 8, 0, 1 },       { 7, 17, 16, 0, 1 },
    { 13, 173, 5, 0, 1 },   { 64, 511, 64, 0, 1 },   { 12, 48, 200, 100, 1 },  { 12, 33, 384, 192, 1 },
    { 12, 33, 255, 127, 1 }, { 7, 33, 577, 192, 1 }, { 9, 40, 16, 0, 1e-20f }, { 9, 40, 16, 0, 3e-21f }, { 31, 4096, 16, 0, 1 },
};

static void test_delta__fast_equals_plain_bit_for_bit(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        const int64_t rows = shapes[s].rows, cols = shapes[s].cols, rank = shapes[s].rank;
        float *a = malloc((size_t)(rank * cols) * 4), *b = malloc((size_t)(rows * rank) * 4);
        float *packed = malloc((size_t)sheaf__lora_packed_floats(rank, cols) * 4);
        float *want = malloc((size_t)(rows * cols) * 4), *got = malloc((size_t)(rows * cols + 1) * 4);
        fill(a, rank * cols, 1, shapes[s].scale);
        fill(b, rows * rank, 2, shapes[s].scale);
        got[rows * cols] = 77; /* must stay */
        sheaf__lora_delta_ref(want, b, a, rows, cols, rank, shapes[s].block);
        sheaf__lora_pack(packed, a, rank, cols);
        sheaf__lora_delta(got, b, packed, rows, cols, rank, shapes[s].block);
        char name[64];
        snprintf(name, sizeof name, "shape %zu", s);
        CHECK_BYTES(name, got, want, rows * cols * 4);
        assert_true(got[rows * cols] == 77);
        free(a), free(b), free(packed), free(want), free(got);
    }
}

static void test_delta__by_hand(void **state)
{
    /* (1 + 2^-12)^2 - 1 needs the fused form: the square alone would lose 2^-24. */
    const float b[2] = { -1, 1 + 0x1p-12f }, a[2] = { 1 + 0x1p-11f, 1 + 0x1p-12f };
    float d;
    sheaf__lora_delta_ref(&d, b, a, 1, 1, 2, 0);
    assert_true(d == 0x1p-24f);
    sheaf__lora_delta_ref(&d, b, a, 1, 1, 2, 1); /* two chains: each rounded on its own */
    assert_true(d == 0);
    float w[2] = { 1, 2 };
    const float delta[2] = { 3, 5 };
    sheaf__lora_add(w, delta, 0.5f, 2);
    assert_true(w[0] == 2.5f && w[1] == 4.5f);
}

/* FNV-1a of the bytes of B A from PyTorch 2.13 (MKL, 1 and 2 threads), 24 x 40. */
static const struct { int64_t rank; uint64_t hash; } recorded[] = {
    { 16, UINT64_C(0x0e49bf09c04d57c4) },  { 192, UINT64_C(0xe79d43f7deb96cba) }, { 193, UINT64_C(0x8f210712352605da) },
    { 255, UINT64_C(0xfed67487054cc9bd) }, { 257, UINT64_C(0x39916c8efa7a7a67) }, { 383, UINT64_C(0x71bc27f780eca1c0) },
    { 385, UINT64_C(0xf3adce67d6446b72) }, { 577, UINT64_C(0x108e81e45e98c049) }, { 1000, UINT64_C(0xe21da683566b05ae) },
};

static void fill_recorded(float *x, int64_t rows, int64_t cols, int64_t p, int64_t q)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            x[i * cols + k] = (float)((i * p + k * q) % 2003 - 1001) / 997.0f;
}

static void test_delta__as_pytorch_at_any_rank(void **state)
{
    for (size_t n = 0; n < ARRAY_LEN(recorded); n++) {
        const int64_t rank = recorded[n].rank;
        float *a = malloc((size_t)(rank * 40) * 4), *b = malloc((size_t)(24 * rank) * 4), d[24 * 40];
        fill_recorded(b, 24, rank, 7919, 104729);
        fill_recorded(a, rank, 40, 15485, 32452);
        sheaf__lora_delta_ref(d, b, a, 24, 40, rank, sheaf__lora_mkl_block(rank));
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < sizeof d; i++)
            hash = (hash ^ ((const unsigned char *)d)[i]) * UINT64_C(0x100000001b3);
        if (hash != recorded[n].hash)
            fail_msg("rank %d", (int)rank);
        free(a), free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta__fast_equals_plain_bit_for_bit),
        cmocka_unit_test(test_delta__by_hand),
        cmocka_unit_test(test_delta__as_pytorch_at_any_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
