/* sums_test.c - which order of bfloat16 sums a run takes; with ranks that are processes, all of
 * them the first one's. */
#include "tests/check.h"

#include "tests/comm_run.h"
#include "models/sums.h"
#include "ops/units.h"

/* Of one process. */
static sheaf_sums chosen(const char *device, sheaf_dtype dtype, sheaf_sums given, sheaf_sums before)
{
    CHECK_OK(sheaf__sums_choose(&given, NULL, device, before, dtype));
    return given;
}

/* The given order, then that of the run, then the fastest. mma8 and mma16 are of float16 too, which
 * has no choice between others; on GPUs what is not named is what tensor cores compute, and `pairs`
 * in float16 is none of theirs. */
TEST(test_sums__of_a_device_and_a_type)
{
    enum { NONE = SHEAF_SUMS_UNNAMED, PAIRS, TILES, MMA8, MMA16 };
    const int fastest = sheaf__units_prefer_tiles() ? TILES : PAIRS;
    const struct {
        const char *device;
        sheaf_dtype dtype;
        int given, before, want;
        const char *name;
    } row[] = {
        { NULL, SHEAF_BF16, PAIRS, TILES, PAIRS, "pairs" },
        { NULL, SHEAF_BF16, NONE, TILES, TILES, "tiles" },
        { NULL, SHEAF_BF16, NONE, NONE, fastest, fastest == TILES ? "tiles" : "pairs" },
        { NULL, SHEAF_BF16, MMA16, PAIRS, MMA16, "mma16" },
        { NULL, SHEAF_BF16, NONE, MMA8, MMA8, "mma8" },
        { NULL, SHEAF_F16, MMA8, NONE, MMA8, "mma8" },
        { NULL, SHEAF_F16, TILES, NONE, NONE, NULL },
        { NULL, SHEAF_F16, PAIRS, TILES, NONE, NULL },
        { NULL, SHEAF_F16, NONE, NONE, NONE, NULL },
        { NULL, SHEAF_F32, NONE, NONE, NONE, NULL },
        { NULL, SHEAF_F32, MMA16, MMA16, NONE, NULL },
        { "cuda", SHEAF_F16, NONE, NONE, MMA16, "mma16" },
        { "cuda", SHEAF_F16, NONE, MMA8, MMA8, "mma8" },
        { "cuda", SHEAF_F16, PAIRS, NONE, NONE, NULL },
        { "cuda", SHEAF_F16, PAIRS, MMA16, NONE, NULL },
        { "cuda", SHEAF_F16, NONE, PAIRS, NONE, NULL },
        { "cuda", SHEAF_F16, MMA8, PAIRS, MMA8, "mma8" },
        { "cuda", SHEAF_BF16, NONE, NONE, MMA16, "mma16" },
        { "cuda", SHEAF_BF16, NONE, PAIRS, PAIRS, "pairs" },
        { "cuda", SHEAF_F32, MMA16, NONE, NONE, NULL },
        { "cpu", SHEAF_F16, PAIRS, NONE, NONE, NULL },
        { "cpu", SHEAF_F16, MMA16, NONE, MMA16, "mma16" },
        { "cpu", SHEAF_F16, PAIRS, MMA16, NONE, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const sheaf_sums got = chosen(row[i].device, row[i].dtype, (sheaf_sums)row[i].given,
                                      (sheaf_sums)row[i].before);
        const char *name = sheaf__sums_name(row[i].dtype, got);
        if ((int)got != row[i].want || (name == NULL) != (row[i].name == NULL) ||
            (name != NULL && strcmp(name, row[i].name) != 0))
            fail_msg("row %zu: %d, %s", i, (int)got, name == NULL ? "no name" : name);
    }
}

/* Processes whose GPUs differ take what the first one's compute. */
TEST(test_sums__of_gpus_of_several_kinds_the_first_decides)
{
    sheaf_sums sums = sheaf__all_first(met.all) ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
    CHECK_OK(sheaf__sums_choose(&sums, met.all, "cuda", SHEAF_SUMS_UNNAMED, SHEAF_BF16));
    assert_int_equal(sums, SHEAF_SUMS_MMA8);
}

/* The first process is on a machine with tiles, the others are not; one process decides for itself.
 */
TEST(test_sums__of_several_processes_the_first_decides)
{
    const bool several = sheaf__all_count(met.all) > 1;
    const sheaf_sums alone = chosen(NULL, SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED);
    CHECK_OK(sheaf__sums_agree(met.all, sheaf__all_first(met.all)));
    assert_int_equal(chosen(NULL, SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED),
                     several ? SHEAF_SUMS_TILES : alone);
    assert_int_equal(chosen(NULL, SHEAF_BF16, SHEAF_SUMS_PAIRS, SHEAF_SUMS_UNNAMED),
                     SHEAF_SUMS_PAIRS);
    CHECK_OK(sheaf__sums_agree(met.all, !sheaf__all_first(met.all))); /* it is decided */
    assert_int_equal(chosen(NULL, SHEAF_BF16, SHEAF_SUMS_UNNAMED, SHEAF_SUMS_UNNAMED),
                     several ? SHEAF_SUMS_TILES : alone);
}

static int begin(void **state)
{
    meet_for_test();
    return 0;
}

FIXTURE(begin, NULL);
