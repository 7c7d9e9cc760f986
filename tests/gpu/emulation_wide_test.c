/* emulation_wide_test.c - wgmma, the copy engine and clusters on the processor, and mistakes with
 * them that show. */
#include "tests/check.h"

#include "tests/gpu/emulation_wide.h"
#include "tests/gpu/emulation_wide_cases.h"
#include "ops/math/round.h"
#include "ops/matmul/mma.h"

enum { M = 200, N = 131, MOST_K = 400 }; /* of 256: the rest of a box is not there */

static uint16_t x[M * MOST_K] __attribute__((aligned(16))),
    w[N * MOST_K] __attribute__((aligned(16)));
static float y[256 * 256];

static void fill(int k, sheaf_dtype dtype)
{
    for (int i = 0; i < M * k; i++)
        sheaf__store(x, i, (float)(i * 31 % 257 - 128) * 0.0137f, dtype);
    for (int i = 0; i < N * k; i++)
        sheaf__store(w, i, (float)(i * 57 % 263 - 131) * 0.0171f, dtype);
    x[3] = w[5] = (uint16_t)(dtype == SHEAF_F16 ? 0x7c00 : 0x7f80); /* infinities */
    memset(y, 0xff, sizeof y);
}

static bool multiply(int k, sheaf_dtype dtype, int group, int mistake, bool turned, char *text)
{
    case_wide a = { .y = y, .k = k, .mistake = mistake };
    assert_true(sheaf__emu_tensor_map(&a.x, x, M, k, k * 2, 128));
    assert_true(sheaf__emu_tensor_map(&a.w, w, N, k, k * 2, 128));
    const sheaf__emu_launch launch = { .kernel = sheaf__emu_find(
                                           dtype == SHEAF_F16 ? "case_wide_f16" : "case_wide_bf16"),
                                       .arguments = &a,
                                       .bytes = sizeof a,
                                       .blocks = { 2, 1, 1 },
                                       .threads = 384,
                                       .shared = WIDE_SHARED,
                                       .group = group,
                                       .turned = turned };
    assert_non_null(launch.kernel);
    fill(k, dtype);
    return sheaf__emulate(&launch, text);
}

/* How many results are not those of the rule. */
static int wrong(int k, sheaf_dtype dtype, int group)
{
    int count = 0;
    const sheaf_sums sums = group == 8 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
    for (int r = 0; r < 256; r++)
        for (int c = 0; c < 256; c++) {
            const uint32_t want =
                r < M && c < N ? sheaf__mma_chain(sums, dtype, 0, x + r * k, w + c * k, k) : 0;
            /* what lies beside an infinity is 0 * inf of what is not there */
            if ((r == 0 && c >= N) || (c == 0 && r >= M))
                continue;
            count += sheaf__bits(y[r * 256 + c]) != want;
        }
    return count;
}

static void test_wide__products_follow_the_rule(void **state)
{
    char text[SHEAF__EMU_TEXT];
    const int depth[] = { 8, 64, 200, MOST_K };
    for (size_t i = 0; i < ARRAY_LEN(depth); i++)
        for (int way = 0; way < 4; way++) {
            const int group = way / 2 ? 8 : 16;
            const sheaf_dtype dtype = i % 2 ? SHEAF_F16 : SHEAF_BF16;
            if (!multiply(depth[i], dtype, group, WIDE_RIGHT, way % 2, text))
                fail_msg("%s", text);
            assert_int_equal(wrong(depth[i], dtype, group), 0);
        }
}

/* why: NULL: other bytes show it. */
static void shows(int mistake, bool turned, const char *why)
{
    char text[SHEAF__EMU_TEXT];
    const bool ran = multiply(MOST_K, SHEAF_BF16, 16, mistake, turned, text);
    if (ran != (why == NULL) || (why != NULL && strstr(text, why) == NULL))
        fail_msg("mistake %d: %s; wanted: %s", mistake, ran ? "runs" : text,
                 why == NULL ? "runs" : why);
    if (ran)
        assert_true(wrong(MOST_K, SHEAF_BF16, 16) > 0);
}

static void test_wide__mistakes_show(void **state)
{
    shows(WIDE_GIVEN_BACK_TOO_SOON, false, NULL);
    shows(WIDE_SUMS_TOO_SOON, false, NULL);
    shows(WIDE_NO_LAST_WAIT, false, "ends without a wait for its wgmma");
    shows(WIDE_NOT_MADE, false, "no mbarrier was made there");
    for (int turned = 0; turned < 2; turned++) {
        shows(WIDE_TOO_MANY_BYTES, turned, "waits at an mbarrier for phase 0, which is never over");
        shows(WIDE_WRONG_PARITY, turned, "waits at an mbarrier for phase 0, which is never over");
        shows(WIDE_OTHER_OPERANDS, turned, "wgmma: lanes name different operands");
        shows(WIDE_WARPS_PART, turned, "warps of a warpgroup part at wgmma");
        shows(WIDE_UNALIGNED, turned, "copy_box: not at a multiple of 1024");
    }
}

/* By other bytes, or as an mbarrier to which nobody comes. */
static void test_wide__stages_that_are_not_waited_for_show(void **state)
{
    char text[SHEAF__EMU_TEXT];
    const int mistake[] = { WIDE_TOO_FEW_BYTES, WIDE_NO_WAIT_FOR_STAGE };
    for (size_t i = 0; i < ARRAY_LEN(mistake); i++)
        for (int k = 64; k <= MOST_K; k += 112)
            if (multiply(k, SHEAF_BF16, 16, mistake[i], false, text))
                assert_true(wrong(k, SHEAF_BF16, 16) > 0);
            else
                assert_non_null(strstr(text, "mbarrier"));
}

/* 16 bytes c of a row r lie at c ^ r % 8. */
static void test_wide__boxes_lie_as_the_swizzle_has_them(void **state)
{
    enum { K = 128 };
    const int place[][2] = { { 0, 0 }, { 40, 3 }, { 100, 190 }, { -8, -5 } };
    char text[SHEAF__EMU_TEXT];
    uint16_t got[16 * 64];
    for (int i = 0; i < M * K; i++)
        x[i] = (uint16_t)(i + 1);
    for (size_t p = 0; p < 2 * ARRAY_LEN(place); p++) {
        case_box a = { .to = got, .column = place[p / 2][0], .row = place[p / 2][1] };
        assert_true(sheaf__emu_tensor_map(&a.map, x, M, K, K * 2, 16));
        const sheaf__emu_launch launch = { .kernel = sheaf__emu_find("case_boxes"),
                                           .arguments = &a,
                                           .bytes = sizeof a,
                                           .blocks = { 1, 1, 1 },
                                           .threads = 128,
                                           .shared = 2056,
                                           .group = 16,
                                           .turned = p % 2 };
        if (!sheaf__emulate(&launch, text))
            fail_msg("%s", text);
        for (int i = 0; i < 16 * 64; i++) {
            const int r = i / 64, at = r * 64 + (i % 64 / 8 ^ r % 8) * 8 + i % 8, row = a.row + r,
                      column = a.column + i % 64;
            assert_int_equal(got[at], row < 0 || row >= M || column < 0 || column >= K
                                          ? 0
                                          : x[row * K + column]);
        }
    }
}

static void test_wide__maps_that_the_driver_would_not_make(void **state)
{
    sheaf__tensor_map map;
    assert_false(sheaf__emu_tensor_map(&map, x + 1, M, 64, 128, 128));
    assert_false(sheaf__emu_tensor_map(&map, x, M, 60, 120, 128));
    assert_false(sheaf__emu_tensor_map(&map, x, M, 64, 112, 128));
    assert_false(sheaf__emu_tensor_map(&map, x, M, 64, 128, 257));
    assert_false(sheaf__emu_tensor_map(&map, x, 0, 64, 128, 128));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide__products_follow_the_rule),
        cmocka_unit_test(test_wide__mistakes_show),
        cmocka_unit_test(test_wide__stages_that_are_not_waited_for_show),
        cmocka_unit_test(test_wide__boxes_lie_as_the_swizzle_has_them),
        cmocka_unit_test(test_wide__maps_that_the_driver_would_not_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
