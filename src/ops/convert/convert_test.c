/* convert_test.c */
#include "tests/ops_twin.h"

#include "ops/lanes.h"

static const struct {
    const char *name;
    uint32_t f32;
    uint16_t bf16, f16;
} by_hand[] = {
    { "one", 0x3f800000, 0x3f80, 0x3c00 },
    { "minus zero", 0x80000000, 0x8000, 0x8000 },
    { "bf16 tie goes to even, down", 0x3f808000, 0x3f80, 0x3c04 },
    { "bf16 tie goes to even, up", 0x3f818000, 0x3f82, 0x3c0c },
    { "f16 tie goes to even, down", 0x3f801000, 0x3f80, 0x3c00 },
    { "f16 tie goes to even, up", 0x3f803000, 0x3f80, 0x3c02 },
    { "just above the f16 tie", 0x3f801001, 0x3f80, 0x3c01 },
    { "infinity", 0x7f800000, 0x7f80, 0x7c00 },
    { "65504, largest f16", 0x477fe000, 0x4780, 0x7bff },
    { "below 65520 stays finite", 0x477fefff, 0x4780, 0x7bff },
    { "65520 rounds to infinity", 0x477ff000, 0x4780, 0x7c00 },
    { "largest float rounds to infinity", 0x7f7fffff, 0x7f80, 0x7c00 },
    { "smallest normal f16", 0x38800000, 0x3880, 0x0400 },
    { "largest denormal f16", 0x387fc000, 0x3880, 0x03ff },
    { "rounds up into the normals", 0x387fe000, 0x3880, 0x0400 },
    { "smallest f16", 0x33800000, 0x3380, 0x0001 },
    { "half of it ties to zero", 0x33000000, 0x3300, 0x0000 },
    { "above half", 0x33000001, 0x3300, 0x0001 },
    { "1.5 of it ties to two", 0x33c00000, 0x33c0, 0x0002 },
    { "denormal float kept in bf16", 0x00010000, 0x0001, 0x0000 },
    { "denormal float tie", 0x00018000, 0x0002, 0x0000 },
    { "quiet NaN", 0x7fc00000, 0x7fc0, 0x7e00 },
    { "NaN: f16 keeps sign and payload, bf16 has one", 0xffe02000, 0x7fc0, 0xff01 },
    { "signalling NaN becomes quiet", 0x7f802000, 0x7fc0, 0x7e01 },
};

TEST(test_convert__values_worked_by_hand_in_every_column)
{
    static const char *const columns[] = { "ref", "avx2", "avx512" };
    for (size_t k = 0; k < ARRAY_LEN(columns); k++) {
        const sheaf__kernels *kernels = sheaf__kernels_for(columns[k]);
        for (size_t i = 0; kernels != NULL && i < ARRAY_LEN(by_hand); i++) {
            uint16_t half;
            kernels->convert(&half, SHEAF_BF16, &by_hand[i].f32, SHEAF_F32, 1);
            CHECK_BYTES(by_hand[i].name, &half, &by_hand[i].bf16, 2);
            kernels->convert(&half, SHEAF_F16, &by_hand[i].f32, SHEAF_F32, 1);
            CHECK_BYTES(by_hand[i].name, &half, &by_hand[i].f16, 2);
        }
    }
}

static float f16_value(uint16_t half) /* the definition, without bit tricks */
{
    const int exponent = half >> 10 & 31;
    const double size =
        exponent == 0 ? ldexp(half & 0x3ff, -24) : ldexp(1024 + (half & 0x3ff), exponent - 25);
    return (float)(half & 0x8000 ? -size : size);
}

TEST(test_convert__every_16_bit_number_and_back)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        const bool nan16 = (half & 0x7fff) > 0x7c00, nan_b = (half & 0x7fff) > 0x7f80;
        if ((half & 0x7c00) != 0x7c00 && sheaf__from_f16(half) != f16_value(half))
            fail_msg("f16 %04x is %a", half, sheaf__from_f16(half));
        const uint16_t back = sheaf__f16(sheaf__from_f16(half));
        if (back != (nan16 ? half | 0x200 : half))
            fail_msg("f16 %04x came back as %04x", half, back);
        if (sheaf__bf16(sheaf__from_bf16(half)) != (nan_b ? SHEAF__NAN_BF16 : half))
            fail_msg("bf16 %04x", half);
    }
}

#ifdef SHEAF_NO_X86
#define WITH_F16C
#else
#define WITH_F16C __attribute__((target("avx2,f16c")))
#endif

/* Every 16-bit number and many floats, against the hardware's F16C, or AArch64's like. */
WITH_F16C TEST(test_convert__f16_gives_the_bits_of_f16c)
{
    for (uint32_t i = 0; i < 65536; i += 8) {
        uint16_t half[8];
        float want[8];
        for (uint32_t k = 0; k < 8; k++)
            half[k] = (uint16_t)(i + k);
        _mm256_storeu_ps(want, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)half)));
        for (int k = 0; k < 8; k++) {
            const float got = sheaf__from_f16(half[k]);
            CHECK_BYTES("f16 to f32", &got, &want[k], 4);
        }
    }
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 8 * 509) {
        uint32_t raw[8];
        uint16_t want[8];
        for (uint32_t k = 0; k < 8; k++)
            raw[k] = (uint32_t)bits + 509 * k;
        _mm_storeu_si128(
            (__m128i *)want,
            _mm256_cvtps_ph(_mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)raw)),
                            _MM_FROUND_TO_NEAREST_INT));
        for (int k = 0; k < 8; k++) {
            const uint16_t got = sheaf__f16(sheaf__float(raw[k]));
            if (got != want[k])
                fail_msg("%08x: %04x, hardware %04x", raw[k], got, want[k]);
        }
    }
}

TEST(test_finish__rounds_before_the_residual)
{
    /* 2 * 0.5 + 0.01171875 = 1.01171875 ties between 1.0078125 and 1.015625: even, the
     * second. Plus 0.0078125 is 1.0234375, exact. Rounding only at the end would see
     * 1.01953125, a tie that goes to 1.015625. */
    const float sum = 0.5f, bias = 0.01171875f;
    const uint16_t residual = sheaf__bf16(0.0078125f);
    uint16_t y;
    sheaf__kernels_for("ref")->finish(&y, 1, &sum, 1, 2, NULL, &bias, &residual, 1, 1, 1,
                                      SHEAF_BF16);
    CHECK_NEAR("finish", sheaf__from_bf16(y), 1.0234375, 0);
    sheaf__kernels_for("ref")->finish(&y, 1, &sum, 1, 2, NULL, NULL, NULL, 0, 1, 1, SHEAF_BF16);
    CHECK_NEAR("alone", sheaf__from_bf16(y), 1, 0);
}
