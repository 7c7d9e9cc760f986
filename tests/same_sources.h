/* same_sources.h - two views of one model hold the same. */
#pragma once

#include "tests/check.h"

#include "dialects/common/dialects.h"

/* Each tensor of `part` is in `whole`, of the same dtype and shape; its values are as near as
 * `tolerance` (of float32), or the same bytes where that is 0. */
static inline void check_holds(sheaf_source *whole, sheaf_source *part, double tolerance)
{
    for (int64_t i = 0; i < part->count(part); i++) {
        const sheaf_source_entry *e = part->entry(part, i), *f = whole->find(whole, e->name);
        if (f == NULL || f->dtype != e->dtype || f->ndim != e->ndim ||
            memcmp(e->shape, f->shape, (size_t)e->ndim * sizeof *e->shape) != 0)
            fail_msg("%s: is not in both alike", e->name);
        int64_t rows = 1, cols = 1;
        for (int d = 0; d < e->ndim; d++)
            *(d > 0 && d == e->ndim - 1 ? &cols : &rows) *= e->shape[d];
        const size_t bytes = (size_t)(rows * cols) * sheaf_dtype_bytes(e->dtype);
        float *x = malloc(bytes + 4), *y = malloc(bytes + 4);
        CHECK_OK(part->read(part, e->name, 0, rows, 0, cols, x));
        CHECK_OK(whole->read(whole, e->name, 0, rows, 0, cols, y));
        if (tolerance == 0)
            CHECK_BYTES(e->name, x, y, bytes);
        for (int64_t k = 0; tolerance > 0 && k < rows * cols; k++)
            CHECK_NEAR(e->name, x[k], y[k], tolerance);
        free(x);
        free(y);
    }
}

static inline void same_sources(sheaf_source *a, sheaf_source *b, double tolerance)
{
    assert_int_equal(a->count(a), b->count(b));
    check_holds(b, a, tolerance);
}

/* All tensors of a catalog, which is closed with them. */
static inline sheaf_source *all_of(sheaf_catalog *c)
{
    sheaf_source *source = NULL;
    CHECK_OK(sheaf__catalog_source(&source, c, true));
    return source;
}
