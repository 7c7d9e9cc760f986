/* kept.c - see kept.h. */
#include "tape/kept.h"

#include "base/base.h"
#include "ops/offload.h"
#include "ops/tensor/tensor.h"

int64_t sheaf__value_rows(const sheaf__value *value)
{
    const bool known = value->blocks != NULL && value->blocks->known_ahead;
    return known ? sheaf__rows_present(value) : value->rows;
}

static size_t bytes_of(const sheaf__value *value, int64_t rows)
{
    sheaf__shrunk s;
    return value->shrinks
               ? sheaf__shrunk_init(&s, rows, value->cols, value->part, value->parts, value->dtype)
               : (size_t)(rows * value->cols) * sheaf_dtype_bytes(value->dtype);
}

size_t sheaf__value_kept_most(const sheaf__value *value)
{
    return bytes_of(value, value->rows);
}

/* Scales lie behind the codes of the rows that are there. */
static sheaf__shrunk shrunk_of(const sheaf__value *value, void *at)
{
    sheaf__shrunk s;
    const int64_t rows = sheaf__rows_present(value);
    sheaf__shrunk_init(&s, rows, value->cols, value->part, value->parts, value->dtype);
    s.x = value->data;
    s.codes = at;
    s.scales = (uint8_t *)at + rows * value->cols;
    return s;
}

static void copy(const sheaf__context *c, const sheaf__value *value, void *to, const void *from)
{
    sheaf__op_convert(c->device, to, value->dtype, from, value->dtype,
                      sheaf__rows_present(value) * value->cols);
}

sheaf_status *sheaf__value_store(const sheaf__context *c, sheaf__value *value)
{
    void *at = NULL;
    sheaf_status *st =
        value->leaves
            ? sheaf__offload_take(&at, c->activations)
            : sheaf__device_alloc(&at, c->device, bytes_of(value, sheaf__value_rows(value)),
                                  SHEAF_MEM_ACTIVATIONS);
    if (st != NULL)
        return sheaf_in(st, "%s", value->name);
    if (value->shrinks) {
        const sheaf__shrunk s = shrunk_of(value, at);
        sheaf__op_shrink(c->device, &s);
    } else {
        copy(c, value, at, value->data);
    }
    if (value->leaves)
        sheaf__offload_give_part(c->activations, bytes_of(value, sheaf__rows_present(value)));
    else
        value->shrunk = at;
    value->stored = true;
    return NULL;
}

sheaf_status *sheaf__value_restore(const sheaf__context *c, sheaf__value *value)
{
    void *at = value->shrunk;
    sheaf_status *st = value->leaves ? sheaf__offload_take(&at, c->activations) : NULL;
    if (st != NULL)
        return sheaf_in(st, "%s", value->name);
    if (value->shrinks) {
        const sheaf__shrunk s = shrunk_of(value, at);
        sheaf__op_expand(c->device, &s);
    } else {
        copy(c, value, value->data, at);
    }
    if (value->leaves)
        sheaf__offload_give(c->activations);
    sheaf__device_free(c->device, value->shrunk);
    value->shrunk = NULL;
    value->stored = false;
    return NULL;
}
