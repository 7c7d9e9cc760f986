/* kept.c - see kept.h. */
#include "tape/kept.h"

#include "base/base.h"
#include "ops/tensor/tensor.h"

int64_t sheaf__value_rows(const sheaf__value *value)
{
    const bool known = value->blocks != NULL && value->blocks->known_ahead;
    return known ? sheaf__rows_present(value) : value->rows;
}

/* Scales lie behind the codes of the rows that are there. */
static sheaf__shrunk shrunk_of(const sheaf__value *value)
{
    sheaf__shrunk s;
    const int64_t rows = sheaf__rows_present(value);
    sheaf__shrunk_init(&s, rows, value->cols, value->part, value->parts, value->dtype);
    s.x = value->data;
    s.codes = value->shrunk;
    s.scales = (uint8_t *)value->shrunk + rows * value->cols;
    return s;
}

sheaf_status *sheaf__value_shrink(const sheaf__context *c, sheaf__value *value)
{
    sheaf__shrunk s;
    const size_t bytes = sheaf__shrunk_init(&s, sheaf__value_rows(value), value->cols, value->part,
                                            value->parts, value->dtype);
    sheaf_status *st =
        sheaf_in(sheaf__device_alloc(&value->shrunk, c->device, bytes, SHEAF_MEM_ACTIVATIONS), "%s",
                 value->name);
    if (st != NULL)
        return st;
    s = shrunk_of(value);
    sheaf__op_shrink(c->device, &s);
    return NULL;
}

void sheaf__value_expand(const sheaf__context *c, sheaf__value *value)
{
    const sheaf__shrunk s = shrunk_of(value);
    sheaf__op_expand(c->device, &s);
    sheaf__device_free(c->device, value->shrunk);
    value->shrunk = NULL;
}
