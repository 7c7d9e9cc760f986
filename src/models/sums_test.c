/* sums_test.c - which order of bfloat16 sums a run takes; with ranks that are processes, all of
 * them the first one's. */
#include "tests/check.h"

#include "tests/comm_run.h"
#include "models/sums.h"
#include "ops/units.h"

static void test_sums__asked_for_then_the_runs_then_the_fastest(void **state)
{
    const sheaf_sums fastest = sheaf__units_prefer_tiles() ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_PAIRS, SHEAF_SUMS_TILES, SHEAF_BF16),
                     SHEAF_SUMS_PAIRS);
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_TILES, SHEAF_BF16),
                     SHEAF_SUMS_TILES);
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_BF16), fastest);
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_F32),
                     SHEAF_SUMS_UNNAMED);
}

/* mma8 and mma16 are of float16 too, which has no choice between others. */
static void test_sums__of_tensor_cores_are_of_both_types(void **state)
{
    static const struct {
        sheaf_dtype dtype;
        sheaf_sums asked, before, want;
        const char *name;
    } row[] = {
        { SHEAF_BF16, SHEAF_SUMS_MMA16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_MMA16, "mma16" },
        { SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA8, "mma8" },
        { SHEAF_F16, SHEAF_SUMS_MMA8, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA8, "mma8" },
        { SHEAF_F16, SHEAF_SUMS_TILES, SHEAF_SUMS_MMA16, SHEAF_SUMS_MMA16, "mma16" },
        { SHEAF_F16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_TILES, SHEAF_SUMS_UNNAMED, NULL },
        { SHEAF_F16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, NULL },
        { SHEAF_F32, SHEAF_SUMS_MMA16, SHEAF_SUMS_MMA16, SHEAF_SUMS_UNNAMED, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const sheaf_sums got = sheaf__sums_of(row[i].asked, row[i].before, row[i].dtype);
        const char *name = sheaf__sums_name(row[i].dtype, got);
        if (got != row[i].want || (name == NULL) != (row[i].name == NULL) ||
            (name != NULL && strcmp(name, row[i].name) != 0))
            fail_msg("row %zu: %d, %s", i, (int)got, name == NULL ? "no name" : name);
    }
}

/* On GPUs what is not named is what tensor cores compute; `pairs` in float16 is none of theirs. */
static void test_sums__on_a_device(void **state)
{
    static const struct {
        const char *device;
        sheaf_dtype dtype;
        sheaf_sums asked, before, want;
    } row[] = {
        { "cuda", SHEAF_F16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA16 },
        { "cuda", SHEAF_F16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA8 },
        { "cuda", SHEAF_F16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED },
        { "cuda", SHEAF_F16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_MMA16, SHEAF_SUMS_UNNAMED },
        { "cuda", SHEAF_F16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_PAIRS, SHEAF_SUMS_UNNAMED },
        { "cuda", SHEAF_F16, SHEAF_SUMS_MMA8, SHEAF_SUMS_PAIRS, SHEAF_SUMS_MMA8 },
        { "cuda", SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA16 },
        { "cuda", SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_PAIRS, SHEAF_SUMS_PAIRS },
        { "cuda", SHEAF_F32, SHEAF_SUMS_MMA16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED },
        { "cpu", SHEAF_F16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED },
        { "cpu", SHEAF_F16, SHEAF_SUMS_MMA16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_MMA16 },
        { "cpu", SHEAF_F16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_MMA16, SHEAF_SUMS_UNNAMED },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const sheaf_sums got =
            sheaf__sums_on(row[i].device, row[i].asked, row[i].before, row[i].dtype);
        if (got != row[i].want)
            fail_msg("row %zu: %d", i, (int)got);
    }
}

/* Processes whose GPUs differ take what the first one's compute. */
static void test_sums__of_gpus_of_several_kinds_the_first_decides(void **state)
{
    sheaf_sums sums = sheaf__all_first(met.all) ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
    CHECK_OK(sheaf__sums_choose(&sums, met.all, "cuda", SHEAF_SUMS_UNNAMED, SHEAF_BF16));
    assert_int_equal(sums, SHEAF_SUMS_MMA8);
}

/* The first process is on a machine with tiles, the others are not; one process decides for itself.
 */
static void test_sums__of_several_processes_the_first_decides(void **state)
{
    const bool several = sheaf__all_count(met.all) > 1;
    const sheaf_sums alone = sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_BF16);
    CHECK_OK(sheaf__sums_agree(met.all, sheaf__all_first(met.all)));
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_BF16),
                     several ? SHEAF_SUMS_TILES : alone);
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_PAIRS, SHEAF_SUMS_UNNAMED, SHEAF_BF16),
                     SHEAF_SUMS_PAIRS);
    CHECK_OK(sheaf__sums_agree(met.all, !sheaf__all_first(met.all))); /* it is decided */
    assert_int_equal(sheaf__sums_of(SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED, SHEAF_BF16),
                     several ? SHEAF_SUMS_TILES : alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums__asked_for_then_the_runs_then_the_fastest),
        cmocka_unit_test(test_sums__of_tensor_cores_are_of_both_types),
        cmocka_unit_test(test_sums__of_gpus_of_several_kinds_the_first_decides),
        cmocka_unit_test(test_sums__on_a_device),
        cmocka_unit_test(test_sums__of_several_processes_the_first_decides),
    };
    meet_for_test();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
