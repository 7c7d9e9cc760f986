/* stored_rows.c - see stored_rows.h. */
#include "tape/stored_rows.h"

#include <inttypes.h>

#include "base/hash.h"

uint64_t sheaf__row_hash(const void *row, size_t bytes)
{
    return sheaf__hash(row, bytes).low;
}

sheaf_status *sheaf__stored_row(void *x, const sheaf__context *c, const sheaf__stored_rows *t,
                                int64_t row, void *scratch)
{
    sheaf_status *st = t->source->read(t->source, t->name, row, 1, 0, t->width, scratch);
    if (st != NULL)
        return sheaf_in(st, "row %" PRId64 ", which a token needs", row);
    const size_t bytes = (size_t)t->width * sheaf_dtype_bytes(t->dtype);
    if (sheaf__row_hash(scratch, bytes) != t->print[row]) {
        st = sheaf_fail(SHEAF_E_FORMAT, "row %" PRId64 ", which a token needs", row);
        sheaf_expected(st, "the model's files as they were when it was loaded");
        sheaf_found(st, "other bytes: a file of the model was changed, or is read wrongly");
        return sheaf_try_this(st,
                              "run sheaf verify on the model, then go on from the last step saved");
    }
    c->device->kernels->convert(x, c->dtype, scratch, t->dtype, t->width);
    return NULL;
}
