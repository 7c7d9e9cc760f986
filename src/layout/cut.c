/* cut.c - see sheaf/cut.h. */
#include "sheaf/cut.h"

#include <inttypes.h>

/* Units of a part are multiplied by slice numbers up to SHEAF_MAX_SLICES. */
#define MAX_UNITS (INT64_MAX / SHEAF_MAX_SLICES)

static sheaf_status *check_part(const sheaf_part *part, int index)
{
    if (part->units < 0 || part->units > MAX_UNITS) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: part %d: units", index);
        sheaf_expected(st, "0 to %" PRId64, MAX_UNITS);
        return sheaf_found(st, "%" PRId64, part->units);
    }
    if (part->rows_per_unit < 1 ||
        (part->units > 0 && part->rows_per_unit > INT64_MAX / part->units)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: part %d: rows per unit", index);
        sheaf_expected(st, "at least 1, and a count of rows that fits 63 bits");
        return sheaf_found(st, "%" PRId64 " for %" PRId64 " units", part->rows_per_unit,
                           part->units);
    }
    return NULL;
}

static sheaf_status *check_fields(const sheaf_cut *cut)
{
    if (cut->nparts < 0 || cut->nparts > SHEAF_MAX_PARTS) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: parts");
        sheaf_expected(st, "0 (replicated) to %d", SHEAF_MAX_PARTS);
        return sheaf_found(st, "%d", cut->nparts);
    }
    if (cut->nparts == 0)
        return NULL;
    if (cut->axis < 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: axis");
        sheaf_expected(st, "0 or more");
        return sheaf_found(st, "%d", cut->axis);
    }
    if (cut->slices < 1 || cut->slices > SHEAF_MAX_SLICES ||
        (cut->slices & (cut->slices - 1)) != 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: slices");
        sheaf_expected(st, "a power of two from 1 to %d", SHEAF_MAX_SLICES);
        return sheaf_found(st, "%d", cut->slices);
    }
    return NULL;
}

sheaf_status *sheaf_cut_check(const sheaf_cut *cut, int64_t rows)
{
    sheaf_status *st = check_fields(cut);
    if (st != NULL || cut->nparts == 0)
        return st;
    int64_t sum = 0;
    for (int i = 0; i < cut->nparts; i++) {
        st = check_part(&cut->part[i], i);
        if (st != NULL)
            return st;
        const int64_t here = cut->part[i].units * cut->part[i].rows_per_unit;
        if (here > INT64_MAX - sum)
            return sheaf_found(sheaf_fail(SHEAF_E_ARG, "cut: part %d", i),
                               "more rows together than fit 63 bits");
        sum += here;
    }
    if (sum != rows) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "axis %d", cut->axis);
        sheaf_expected(st, "%" PRId64 " rows, the parts of its cut together", sum);
        return sheaf_found(st, "%" PRId64 " rows", rows);
    }
    return NULL;
}

/* Rows of the part, counted from its own first row. */
static sheaf_range rows_inside(const sheaf_cut *cut, int part, int slice)
{
    const int64_t units = cut->part[part].units, width = cut->part[part].rows_per_unit;
    return (sheaf_range){ units * slice / cut->slices * width,
                          units * (slice + 1) / cut->slices * width };
}

sheaf_status *sheaf_cut_rows(sheaf_range *rows, const sheaf_cut *cut, int part, int slice)
{
    if (part < 0 || part >= cut->nparts || slice < 0 || slice >= cut->slices) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "cut: rows of a part and slice");
        sheaf_expected(st, "a part below %d, a slice below %d", cut->nparts, cut->slices);
        return sheaf_found(st, "part %d, slice %d", part, slice);
    }
    int64_t before = 0;
    for (int i = 0; i < part; i++)
        before += cut->part[i].units * cut->part[i].rows_per_unit;
    const sheaf_range inside = rows_inside(cut, part, slice);
    *rows = (sheaf_range){ before + inside.begin, before + inside.end };
    return NULL;
}

int64_t sheaf_cut_slice_rows(const sheaf_cut *cut, int slice)
{
    int64_t sum = 0;
    if (slice < 0 || slice >= cut->slices)
        return 0;
    for (int i = 0; i < cut->nparts; i++) {
        const sheaf_range inside = rows_inside(cut, i, slice);
        sum += inside.end - inside.begin;
    }
    return sum;
}
