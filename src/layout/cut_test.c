/* cut_test.c - slices tile every part exactly, at every S, whatever the shape. */
#include "tests/check.h"

#include "sheaf/cut.h"

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static int64_t rows_of(const sheaf_cut *cut)
{
    int64_t rows = 0;
    for (int p = 0; p < cut->nparts; p++)
        rows += cut->part[p].units * cut->part[p].rows_per_unit;
    return rows;
}

/* Each part: slices end to end from its first row to its last, whole units only. */
static void check_tiling(const sheaf_cut *cut)
{
    int64_t at = 0, by_slice[SHEAF_MAX_SLICES] = { 0 };
    for (int p = 0; p < cut->nparts; p++)
        for (int s = 0; s < cut->slices; s++) {
            sheaf_range rows;
            CHECK_OK(sheaf_cut_rows(&rows, cut, p, s));
            assert_int_equal(rows.begin, at);
            assert_true(rows.end >= rows.begin);
            assert_int_equal((rows.end - rows.begin) % cut->part[p].rows_per_unit, 0);
            /* no slice is more than one unit larger or smaller than its even share */
            const int64_t units = (rows.end - rows.begin) / cut->part[p].rows_per_unit;
            assert_true(units >= cut->part[p].units / cut->slices);
            assert_true(units <= (cut->part[p].units + cut->slices - 1) / cut->slices);
            by_slice[s] += rows.end - rows.begin;
            at = rows.end;
        }
    assert_int_equal(at, rows_of(cut));
    for (int s = 0; s < cut->slices; s++)
        assert_int_equal(sheaf_cut_slice_rows(cut, s), by_slice[s]);
}

TEST(test_cut__slices_tile_random_shapes)
{
    uint64_t seed = 1;
    for (int trial = 0; trial < 2000; trial++)
        for (int slices = 1; slices <= SHEAF_MAX_SLICES; slices *= 2) {
            sheaf_cut cut = { .axis = trial % 2,
                              .slices = slices,
                              .nparts = 1 + (int)(next(&seed) % SHEAF_MAX_PARTS) };
            for (int p = 0; p < cut.nparts; p++)
                cut.part[p] = (sheaf_part){ (int64_t)(next(&seed) % (trial % 3 == 0 ? 5 : 1000)),
                                            1 + (int64_t)(next(&seed) % 130) };
            CHECK_OK(sheaf_cut_check(&cut, rows_of(&cut)));
            check_tiling(&cut);
        }
}

static const struct {
    const char *name;
    sheaf_cut cut;
    int part, slice;
    int64_t begin, end;
} by_hand[] = {
    { "511 rows, first", { 0, 8, 1, { { 511, 1 } } }, 0, 0, 0, 63 },
    { "511 rows, second", { 0, 8, 1, { { 511, 1 } } }, 0, 1, 63, 127 },
    { "511 rows, last", { 0, 8, 1, { { 511, 1 } } }, 0, 7, 447, 511 },
    { "3 heads of 64, slice 0 empty", { 0, 8, 1, { { 3, 64 } } }, 0, 0, 0, 0 },
    { "3 heads of 64, slice 2", { 0, 8, 1, { { 3, 64 } } }, 0, 2, 0, 64 },
    { "3 heads of 64, slice 7", { 0, 8, 1, { { 3, 64 } } }, 0, 7, 128, 192 },
    { "fused, q of slice 1", { 0, 2, 3, { { 4, 8 }, { 2, 8 }, { 2, 8 } } }, 0, 1, 16, 32 },
    { "fused, k of slice 1", { 0, 2, 3, { { 4, 8 }, { 2, 8 }, { 2, 8 } } }, 1, 1, 40, 48 },
    { "fused, v of slice 0", { 0, 2, 3, { { 4, 8 }, { 2, 8 }, { 2, 8 } } }, 2, 0, 48, 56 },
};

TEST(test_cut__rows_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        sheaf_range rows;
        CHECK_OK(sheaf_cut_rows(&rows, &by_hand[i].cut, by_hand[i].part, by_hand[i].slice));
        if (rows.begin != by_hand[i].begin || rows.end != by_hand[i].end)
            fail_msg("%s: [%lld, %lld)", by_hand[i].name, (long long)rows.begin,
                     (long long)rows.end);
    }
}

TEST(test_cut__refuses_what_is_not_sound)
{
    const sheaf_cut good = { 0, 8, 2, { { 3, 64 }, { 5, 1 } } };
    CHECK_OK(sheaf_cut_check(&good, 197));
    CHECK_FAILS(sheaf_cut_check(&good, 196), SHEAF_E_LAYOUT, "197 rows");
    CHECK_FAILS(sheaf_cut_check(&good, 198), SHEAF_E_LAYOUT, "197 rows");
    CHECK_OK(sheaf_cut_check(&(sheaf_cut){ 0 }, 12345)); /* replicated */
    sheaf_cut bad = good;
    bad.slices = 6;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "slices");
    bad.slices = 0;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "slices");
    bad.slices = 128;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "slices");
    bad = good, bad.axis = -1;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "axis");
    bad = good, bad.nparts = SHEAF_MAX_PARTS + 1;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "parts");
    bad = good, bad.part[1].units = -5;
    CHECK_FAILS(sheaf_cut_check(&bad, 187), SHEAF_E_ARG, "part 1: units");
    bad = good, bad.part[0].units = INT64_MAX / 2;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "part 0: units");
    bad = good, bad.part[0].rows_per_unit = INT64_MAX / 2;
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "part 0: rows per unit");
    bad = good, bad.part[1].rows_per_unit = 0;
    CHECK_FAILS(sheaf_cut_check(&bad, 192), SHEAF_E_ARG, "part 1: rows per unit");
    bad = good, bad.part[0] = (sheaf_part){ 4, INT64_MAX / 4 };
    CHECK_FAILS(sheaf_cut_check(&bad, 197), SHEAF_E_ARG, "63 bits");
    static const struct {
        int64_t units, rows, units1, rows1, all;
    } most[] = { { INT64_MAX / SHEAF_MAX_SLICES, 1, 0, 1, INT64_MAX / SHEAF_MAX_SLICES },
                 { 2, INT64_MAX / 2, 0, 1, INT64_MAX - 1 },
                 { 1, 5, 1, INT64_MAX - 5, INT64_MAX } };
    for (size_t i = 0; i < ARRAY_LEN(most); i++) { /* the most that fits, and one more */
        bad = good;
        bad.part[0] = (sheaf_part){ most[i].units, most[i].rows };
        bad.part[1] = (sheaf_part){ most[i].units1, most[i].rows1 };
        CHECK_OK(sheaf_cut_check(&bad, most[i].all));
        bad.part[i == 0 ? 0 : i - 1].units += i == 0;
        bad.part[i == 0 ? 0 : i - 1].rows_per_unit += i > 0;
        CHECK_FAILS(sheaf_cut_check(&bad, most[i].all), SHEAF_E_ARG, "cut: part");
    }
}

TEST(test_cut__out_of_range_leaves_rows_untouched)
{
    const sheaf_cut cut = { 0, 8, 2, { { 3, 64 }, { 5, 1 } } };
    sheaf_range rows = { 77, 78 };
    CHECK_FAILS(sheaf_cut_rows(&rows, &cut, 2, 0), SHEAF_E_ARG, "part 2, slice 0");
    CHECK_FAILS(sheaf_cut_rows(&rows, &cut, -1, 0), SHEAF_E_ARG, "part -1");
    CHECK_FAILS(sheaf_cut_rows(&rows, &cut, 0, 8), SHEAF_E_ARG, "slice 8");
    CHECK_FAILS(sheaf_cut_rows(&rows, &cut, 0, -1), SHEAF_E_ARG, "slice -1");
    assert_int_equal(rows.begin, 77);
    assert_int_equal(rows.end, 78);
    assert_int_equal(sheaf_cut_slice_rows(&cut, 8), 0);
    const sheaf_cut uneven = { 0, 8, 1, { { 511, 1 } } };
    assert_int_equal(sheaf_cut_slice_rows(&uneven, 8), 0);
    assert_int_equal(sheaf_cut_slice_rows(&uneven, -1), 0);
}
