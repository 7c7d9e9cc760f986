/* mma_test.c - one sum of tensor cores is what was recorded, and what mma.h says by hand. */
#include "tests/mma_recorded.h"

#include "ops/matmul/mma.h"
#include "ops/math/round.h"
#include "tests/golden.h"

/* The order of a record; -1: none of ours. */
static int order_of(const mma_header *h)
{
    if (h->type > 1 || h->result != 23 || h->size != 2)
        return -1;
    if (h->length == 8 && h->kept == 24 && h->least == -132)
        return SHEAF_SUMS_MMA8;
    return h->length == 16 && h->kept == 25 && h->least == -133 ? (int)SHEAF_SUMS_MMA16 : -1;
}

static int64_t compare(const mma_record *r)
{
    const mma_header *h = &r->of;
    const int order = order_of(h);
    for (int64_t i = 0; order >= 0 && i < h->cases; i++) {
        const uint32_t got =
            sheaf__mma_chain((sheaf_sums)order, h->type == 0 ? SHEAF_F16 : SHEAF_BF16, r->c[i],
                             r->a + i * h->k, r->b + i * h->k, h->k);
        if (got != r->want[i])
            fail_msg("%.24s, case %d: %08x, recorded %08x", h->name, (int)i, got, r->want[i]);
    }
    return order >= 0 ? h->cases : 0;
}

TEST(test_mma__gives_what_was_recorded)
{
    mma_compare_recorded(compare);
}

enum { ONE = 0x3f80, MINUS = 0xbf80, INF = 0x7f80, NOT = 0x7fc1, TINY = 0x0001 }; /* bfloat16 */

TEST(test_mma__by_hand)
{
    const struct {
        const char *name;
        uint32_t c;
        uint16_t a[16], b[16];
        uint32_t want8, want16;
    } row[] = {
        { "1 - 2^-25: below the last bit kept, or on it", 0x3f800000, LIST(ONE), LIST(0xb300),
          0x3f800000, 0x3f7fffff },
        { "1 + four times 2^-25", 0x3f800000, LIST(ONE, ONE, ONE, ONE),
          LIST(0x3300, 0x3300, 0x3300, 0x3300), 0x3f800000, 0x3f800001 },
        { "1 + 2^-24 at places 0 and 8: two groups, or one", 0x3f800000, LIST(ONE, [8] = ONE),
          LIST(0x3380, [8] = 0x3380), 0x3f800000, 0x3f800001 },
        { "a denormal is kept", 0, { TINY }, { ONE }, 0x00010000, 0x00010000 },
        { "also in c", 0x00000001, { 0 }, { 0 }, 0x00000001, 0x00000001 },
        { "a zero is +0", 0x80000000, { 0x8000 }, { ONE }, 0, 0 },
        { "so is 1 - 1", 0x3f800000, { MINUS }, { ONE }, 0, 0 },
        { "inf * 0", 0, { INF }, { 0 }, 0x7fffffff, 0x7fffffff },
        { "inf - inf", 0x7f800000, { INF }, { MINUS }, 0x7fffffff, 0x7fffffff },
        { "-inf", 0x3f800000, { INF }, { MINUS }, 0xff800000, 0xff800000 },
        { "inf in c", 0xff800000, { ONE }, { ONE }, 0xff800000, 0xff800000 },
        { "a NaN, whatever else", 0x7f800000, { NOT, INF }, { 0, MINUS }, 0x7fffffff, 0x7fffffff },
        { "a NaN in c", 0x7fc00001, { ONE }, { ONE }, 0x7fffffff, 0x7fffffff },
        { "past the largest", 0x7f7fffff, { 0x7f00 }, { ONE }, 0x7f800000, 0x7f800000 },
        { "products past it cancel", 0, { 0x7f00, 0x7f00, ONE }, { 0x4080, 0xc080, ONE }, 0, 0 },
        { "zeros have no exponent", 0x00000001, { 0, 0x7f00 }, { 0x7f00, 0 }, 1, 1 },
        { "below the floor: 4 (2^-152 + 2^-157) + (2^-150 - 2^-155) = 2^-149", 0,
          LIST(0x1984, 0x1984, 0x1984, 0x1984, 0x19f8),
          LIST(0x1980, 0x1980, 0x1980, 0x1980, 0x1a00), 0, 1 },
        { "toward zero, also below it", 0xbf800000, { ONE }, { 0x3300 }, 0xbf800000, 0xbf7fffff },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const uint32_t got8 = sheaf__mma_chain(SHEAF_SUMS_MMA8, SHEAF_BF16, row[i].c, row[i].a,
                                               row[i].b, 16),
                       got16 = sheaf__mma_chain(SHEAF_SUMS_MMA16, SHEAF_BF16, row[i].c, row[i].a,
                                                row[i].b, 16);
        if (got8 != row[i].want8 || got16 != row[i].want16)
            fail_msg("%s: mma8 %08x, wanted %08x; mma16 %08x, wanted %08x", row[i].name, got8,
                     row[i].want8, got16, row[i].want16);
    }
}

/* 2^-14 * 2^-14 of float16: as a denormal with |s| = 1/2 it has another exponent than as 2^-15. */
TEST(test_mma__denormals_of_float16_have_the_least_exponent)
{
    const uint16_t half = 0x0200, one = 0x3c00; /* 2^-15 */
    const float want = 0x1p-15f + 0x1p-39f;
    /* c = 2^-39: below 2^-14 by 25, so that mma8 drops it beside a denormal of exponent -14 */
    const uint32_t c = sheaf__bits(0x1p-39f);
    assert_int_equal(sheaf__mma_group(SHEAF_SUMS_MMA8, SHEAF_F16, c, &half, &one, 1),
                     sheaf__bits(0x1p-15f));
    assert_int_equal(sheaf__mma_group(SHEAF_SUMS_MMA16, SHEAF_F16, c, &half, &one, 1),
                     sheaf__bits(want));
}

/* Small whole numbers are summed exactly, in groups of any length. */
TEST(test_mma__exact_sums_and_short_groups)
{
    uint16_t a[53], b[53];
    for (int n = 0; n <= 53; n++)
        for (int f16 = 0; f16 < 2; f16++) {
            const sheaf_dtype dtype = f16 ? SHEAF_F16 : SHEAF_BF16;
            float want = 3;
            for (int i = 0; i < n; i++) {
                const float x = (float)(i * 7 % 15 - 7), y = (float)(i * 5 % 13 - 4);
                sheaf__store(a, i, x, dtype);
                sheaf__store(b, i, y, dtype);
                want += x * y;
            }
            for (int order = SHEAF_SUMS_MMA8; order <= SHEAF_SUMS_MMA16; order++)
                assert_int_equal(
                    sheaf__mma_chain((sheaf_sums)order, dtype, sheaf__bits(3), a, b, n),
                    want == 0 ? 0 : sheaf__bits(want));
        }
}
