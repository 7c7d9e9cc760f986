/* delta_test.c - the fast product gives the bits of the plain one. */
#include "tests/kept.h"

#include "base/cpu.h"
#include "base/random.h"
#include "lora/delta.h"
#include "ops/kernels.h"
#include "tests/lora_product.h"

static void fill(float *x, int64_t n, uint64_t key, float scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sheaf__random_normal(7, key, (uint64_t)i) * scale;
}

/* rows, cols, rank, block; scale small enough that products are denormal in some */
static const struct {
    int64_t rows, cols, rank, block;
    float scale;
} shapes[] = {
    { 1, 1, 1, 0, 1 },       { 5, 15, 3, 0, 1 },       { 6, 16, 8, 0, 1 },
    { 7, 17, 16, 0, 1 },     { 13, 173, 5, 0, 1 },     { 64, 511, 64, 0, 1 },
    { 12, 48, 200, 100, 1 }, { 12, 33, 384, 192, 1 },  { 12, 33, 255, 127, 1 },
    { 7, 33, 577, 192, 1 },  { 9, 40, 16, 0, 1e-20f }, { 9, 40, 16, 0, 3e-21f },
    { 31, 4096, 16, 0, 1 },
};

TEST(test_delta__fast_equals_plain_bit_for_bit)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        const int64_t rows = shapes[s].rows, cols = shapes[s].cols, rank = shapes[s].rank;
        float *a = room((size_t)(rank * cols) * 4), *b = room((size_t)(rows * rank) * 4);
        float *packed = room((size_t)sheaf__lora_packed_floats(rank, cols) * 4);
        float *want = room((size_t)(rows * cols) * 4), *got = room((size_t)(rows * cols + 1) * 4);
        fill(a, rank * cols, 1, shapes[s].scale);
        fill(b, rows * rank, 2, shapes[s].scale);
        got[rows * cols] = 77; /* must stay */
        lora_product(want, b, a, rows, cols, rank, shapes[s].block);
        memset(packed, 0, (size_t)sheaf__lora_packed_floats(rank, cols) * sizeof *packed);
        for (int64_t k = 0; k < rank; k++)
            sheaf__lora_pack_row(packed, a + k * cols, k, rank, cols);
        sheaf__lora_delta(got, b, packed, rows, cols, rank, shapes[s].block);
        const char *name = textf("shape %zu", s);
        CHECK_BYTES(name, got, want, rows * cols * 4);
        assert_true(got[rows * cols] == 77);
        if (SHEAF__CPU_HAS("avx512f")) {
            memset(got, 0, (size_t)(rows * cols) * 4);
            sheaf__lora_delta_for("avx512")(got, b, packed, rows, cols, rank, shapes[s].block);
            CHECK_BYTES(name, got, want, rows * cols * 4);
            assert_true(got[rows * cols] == 77);
        }
    }
}

TEST(test_delta__by_hand)
{
    /* (1 + 2^-12)^2 - 1 needs the fused form: the square alone would lose 2^-24. */
    const float b[2] = { -1, 1 + 0x1p-12f }, a[2] = { 1 + 0x1p-11f, 1 + 0x1p-12f };
    float d;
    lora_product(&d, b, a, 1, 1, 2, 0);
    assert_true(d == 0x1p-24f);
    lora_product(&d, b, a, 1, 1, 2, 1); /* two chains: each rounded on its own */
    assert_true(d == 0);
    float w[2] = { 1, 2 };
    const float delta[2] = { 3, 5 };
    sheaf__lora_add(w, delta, 0.5f, 2);
    assert_true(w[0] == 2.5f && w[1] == 4.5f);
}

static void widen_one(float *out, const void *x, sheaf_dtype dtype, int64_t i)
{
    const size_t size = sheaf_dtype_bytes(dtype);
    sheaf__kernels_for("ref")->convert(out, SHEAF_F32, (const char *)x + (size_t)i * size, dtype,
                                       1);
}

/* The fused rounding writes what the plain conversion of the plain sum writes, and counts right. */
TEST(test_finish__is_the_plain_sum_rounded_once)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    static const int64_t sizes[] = { 1, 7, 8, 9, 4096, 4103, 9001 };
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            for (int with = 0; with < 2; with++) {
                const int64_t n = sizes[s], size = (int64_t)sheaf_dtype_bytes(types[t]);
                float *v = room((size_t)n * 4), *d = room((size_t)n * 4),
                      *sum = room((size_t)n * 4);
                char *was = room((size_t)(n * size)), *want = room((size_t)(n * size)),
                     *got = room((size_t)(n * size + 1));
                fill(v, n, 3, 1);
                fill(d, n, 4, 1e-3f);
                v[0] = 1e-7f; /* a denormal float16 */
                sheaf__kernels_for("ref")->convert(was, types[t], v, SHEAF_F32, n);
                memcpy(sum, v, (size_t)n * 4);
                for (int64_t i = 0; i < n && with; i++) {
                    const float part = d[i] * 2.5f;
                    sum[i] += part;
                }
                sheaf__kernels_for("ref")->convert(want, types[t], sum, SHEAF_F32, n);
                got[n * size] = 77;
                sheaf__lora_change change;
                sheaf__lora_finish(&change, got, types[t], v, with ? d : NULL, 2.5f, was, n);
                CHECK_BYTES("finish", got, want, n * size);
                assert_true(got[n * size] == 77 && change.finite);
                int64_t changed = 0;
                double squares = 0, base = 0;
                for (int64_t i = 0; i < n; i++) {
                    float x, y;
                    changed += memcmp(want + i * size, was + i * size, (size_t)size) != 0;
                    widen_one(&x, want, types[t], i);
                    widen_one(&y, was, types[t], i);
                    squares += ((double)x - (double)y) * ((double)x - (double)y);
                    base += (double)y * (double)y;
                }
                assert_int_equal(change.changed, changed);
                CHECK_NEAR("change", change.change, squares, 1e-5 * squares + 1e-30);
                CHECK_NEAR("base", change.base, base, 1e-5 * base);
                v[n - 1] = 3e38f; /* infinite in the halves, and with d added */
                d[n - 1] = 3e38f;
                sheaf__lora_finish(&change, got, types[t], v, with ? d : NULL, 2.5f, was, n);
                assert_int_equal(change.finite, types[t] != SHEAF_F16 && !with);
            }
}

TEST(test_dot__in_double)
{
    float w[19];
    double x[19], want = 0, want2 = 0, dot = 1, squares = 2;
    for (int i = 0; i < 19; i++) {
        w[i] = (float)(i * i - 30) / 7;
        x[i] = i % 3 - 1.5;
        want += (double)w[i] * x[i];
        want2 += (double)w[i] * (double)w[i];
    }
    sheaf__lora_dot(&dot, &squares, w, x, 19);
    CHECK_NEAR("dot", dot, 1 + want, 1e-12 * fabs(want));
    CHECK_NEAR("squares", squares, 2 + want2, 1e-12 * want2);
}

/* FNV-1a of the bytes of B A, 24 x 40, from PyTorch with 1 and 2 threads: on AMD 2.13, on
 * Intel 2.15, both with MKL 2024.2. kernel: A as that of 10 inputs and a kernel of 2 x 2, in
 * conv2d() with 2 threads (oneDNN 3.13). */
static const struct {
    sheaf_peft_cpu cpu;
    bool kernel;
    int64_t rank;
    uint64_t hash;
} recorded[] = {
    { SHEAF_PEFT_CPU_AMD, false, 16, UINT64_C(0x0e49bf09c04d57c4) },
    { SHEAF_PEFT_CPU_AMD, false, 192, UINT64_C(0xe79d43f7deb96cba) },
    { SHEAF_PEFT_CPU_AMD, false, 193, UINT64_C(0x8f210712352605da) },
    { SHEAF_PEFT_CPU_AMD, false, 255, UINT64_C(0xfed67487054cc9bd) },
    { SHEAF_PEFT_CPU_AMD, false, 257, UINT64_C(0x39916c8efa7a7a67) },
    { SHEAF_PEFT_CPU_AMD, false, 383, UINT64_C(0x71bc27f780eca1c0) },
    { SHEAF_PEFT_CPU_AMD, false, 385, UINT64_C(0xf3adce67d6446b72) },
    { SHEAF_PEFT_CPU_AMD, false, 577, UINT64_C(0x108e81e45e98c049) },
    { SHEAF_PEFT_CPU_AMD, false, 1000, UINT64_C(0xe21da683566b05ae) },
    { SHEAF_PEFT_CPU_INTEL, false, 16, UINT64_C(0x0e49bf09c04d57c4) },
    { SHEAF_PEFT_CPU_INTEL, false, 192, UINT64_C(0xe79d43f7deb96cba) },
    { SHEAF_PEFT_CPU_INTEL, false, 193, UINT64_C(0xf79d270c595aba52) },
    { SHEAF_PEFT_CPU_INTEL, false, 255, UINT64_C(0x8823a33ce63d9c3e) },
    { SHEAF_PEFT_CPU_INTEL, false, 257, UINT64_C(0x2f913fbee213ce84) },
    { SHEAF_PEFT_CPU_INTEL, false, 383, UINT64_C(0xb45453ba586e0f4e) },
    { SHEAF_PEFT_CPU_INTEL, false, 384, UINT64_C(0xc29ae2f06906c513) },
    { SHEAF_PEFT_CPU_INTEL, false, 385, UINT64_C(0xa87fef136c020327) },
    { SHEAF_PEFT_CPU_INTEL, false, 511, UINT64_C(0x6c84fbed481fa3d3) },
    { SHEAF_PEFT_CPU_INTEL, false, 577, UINT64_C(0x969d6493cfa5b9eb) },
    { SHEAF_PEFT_CPU_INTEL, false, 640, UINT64_C(0xbe70d8d79a748b99) },
    { SHEAF_PEFT_CPU_INTEL, false, 768, UINT64_C(0x1048aa833482c5f3) },
    { SHEAF_PEFT_CPU_INTEL, true, 64, UINT64_C(0x1bc4e7df7ce319c0) },
    { SHEAF_PEFT_CPU_INTEL, true, 256, UINT64_C(0x09223ada4c5f6358) },
    { SHEAF_PEFT_CPU_INTEL, true, 257, UINT64_C(0xd6c1e743f4fdd5f1) },
    { SHEAF_PEFT_CPU_INTEL, true, 512, UINT64_C(0xff32e6d13c52ca4d) },
    { SHEAF_PEFT_CPU_INTEL, true, 577, UINT64_C(0xf752fcfaad331c78) },
};

static void fill_recorded(float *x, int64_t rows, int64_t cols, int64_t p, int64_t q)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            x[i * cols + k] = (float)((i * p + k * q) % 2003 - 1001) / 997.0f;
}

TEST(test_delta__as_pytorch_by_processor_and_rank)
{
    for (size_t n = 0; n < ARRAY_LEN(recorded); n++) {
        const int64_t rank = recorded[n].rank;
        float *a = room((size_t)(rank * 40) * 4), *b = room((size_t)(24 * rank) * 4), d[24 * 40];
        fill_recorded(b, 24, rank, 7919, 104729);
        fill_recorded(a, rank, 40, 15485, 32452);
        lora_product(d, b, a, 24, 40, rank,
                     sheaf__peft_block(recorded[n].cpu, rank, recorded[n].kernel));
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < sizeof d; i++)
            hash = (hash ^ ((const unsigned char *)d)[i]) * UINT64_C(0x100000001b3);
        if (hash != recorded[n].hash)
            fail_msg("%s, rank %d%s", sheaf__peft_cpu_name(recorded[n].cpu), (int)rank,
                     recorded[n].kernel ? ", a kernel" : "");
    }
}

/* Measured cases are promised, and nothing else. */
TEST(test_known__by_processor_rank_and_size)
{
    static const struct {
        sheaf_peft_cpu cpu;
        int64_t rank, out, in, channels;
        bool want;
    } rows[] = {
        { SHEAF_PEFT_CPU_INTEL, 383, 4, 12, 0, true },
        { SHEAF_PEFT_CPU_INTEL, 8, 3, 12, 0, false },
        { SHEAF_PEFT_CPU_INTEL, 8, 4, 11, 0, false },
        { SHEAF_PEFT_CPU_INTEL, 384, 128, 128, 0, false },
        { SHEAF_PEFT_CPU_INTEL, 768, 256, 688, 0, true },
        { SHEAF_PEFT_CPU_INTEL, 769, 256, 688, 0, false },
        { SHEAF_PEFT_CPU_INTEL, 1000, 512, 512, 0, true },
        { SHEAF_PEFT_CPU_INTEL, 2049, 4096, 4096, 0, false },
        { SHEAF_PEFT_CPU_INTEL, 127, 16, 144, 16, true },
        { SHEAF_PEFT_CPU_INTEL, 128, 16, 144, 16, false },
        { SHEAF_PEFT_CPU_AMD, 1000, 24, 40, 0, true },
        { SHEAF_PEFT_CPU_AMD, 193, 24, 80, 16, false },
        { SHEAF_PEFT_CPU_AMD, 192, 24, 80, 16, true },
        { SHEAF_PEFT_CPU_AMD, 2, 768, 588, 3, false },
        { SHEAF_PEFT_CPU_AMD, 1, 768, 588, 3, true },
        { SHEAF_PEFT_CPU_OTHER, 1, 4096, 4096, 0, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (sheaf__peft_known(rows[i].cpu, rows[i].rank, rows[i].out, rows[i].in,
                              rows[i].channels) != rows[i].want)
            fail_msg("row %zu", i);
    assert_true(sheaf__peft_cpu(SHEAF_PEFT_CPU_THIS) != SHEAF_PEFT_CPU_THIS &&
                sheaf__peft_cpu(SHEAF_PEFT_CPU_AMD) == SHEAF_PEFT_CPU_AMD);
}
