/* pickle_numpy.c - numbers, also those that numpy wrote; see pickle.h.
 *
 *   array    numpy.core.multiarray._reconstruct(ndarray, (0,), b"b"), state (1, shape, dtype,
 *            fortran, bytes)
 *            numpy.core.numeric._frombuffer(bytes, dtype, shape, order), protocol 5
 *   scalar   numpy.core.multiarray.scalar(dtype, bytes)
 *   dtype    numpy.dtype("f4", ...), state (version, byte order, ...) */
#include <string.h>

#include "pickle_inner.h"

static const struct {
    const char *name;
    sheaf_dtype dtype;
} names[] = {
    { "b1", SHEAF_BOOL }, { "i1", SHEAF_I8 },  { "u1", SHEAF_U8 },  { "i2", SHEAF_I16 },
    { "u2", SHEAF_U16 },  { "i4", SHEAF_I32 }, { "u4", SHEAF_U32 }, { "i8", SHEAF_I64 },
    { "u8", SHEAF_U64 },  { "f2", SHEAF_F16 }, { "f4", SHEAF_F32 }, { "f8", SHEAF_F64 },
    { "c8", SHEAF_C64 },
};

static bool numpy_dtype(sheaf_dtype *dtype, const sheaf_pickle *value)
{
    if (!sheaf__pickle_is_object(value, "numpy", "dtype"))
        return false;
    const char *name = sheaf__pickle_text(sheaf__pickle_item(value->as.object->args, 0));
    const char *order = sheaf__pickle_text(sheaf__pickle_item(value->as.object->state, 1));
    if (name == NULL || (order != NULL && *order == '>'))
        return false;
    name += *name == '<' || *name == '|';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *dtype = names[i].dtype;
            return true;
        }
    return false;
}

static bool is_numpys(const sheaf_pickle *value, const char *module, const char *name)
{
    return sheaf__pickle_is_object(value, NULL, name) &&
           strncmp(value->as.object->class->as.global.module, "numpy.", 6) == 0 &&
           strstr(value->as.object->class->as.global.module, module) != NULL;
}

bool sheaf__pickle_array(sheaf_pickle_array *out, const sheaf_pickle *value)
{
    sheaf_pickle_array a = { 0 };
    const sheaf_pickle *dtype = NULL, *shape = NULL, *data = NULL;
    if (is_numpys(value, "core.multiarray", "_reconstruct")) {
        const sheaf_pickle *state = value->as.object->state;
        shape = sheaf__pickle_item(state, 1), dtype = sheaf__pickle_item(state, 2),
        data = sheaf__pickle_item(state, 4);
        int64_t fortran = 0;
        a.fortran = sheaf__pickle_is(sheaf__pickle_item(state, 3), SHEAF_PICKLE_BOOL) &&
                    sheaf__pickle_int(&fortran, sheaf__pickle_item(state, 3)) && fortran != 0;
    } else if (is_numpys(value, "core.numeric", "_frombuffer")) {
        const sheaf_pickle *args = value->as.object->args;
        const char *order = sheaf__pickle_text(sheaf__pickle_item(args, 3));
        data = sheaf__pickle_item(args, 0), dtype = sheaf__pickle_item(args, 1),
        shape = sheaf__pickle_item(args, 2);
        a.fortran = order != NULL && *order == 'F';
    } else if (is_numpys(value, "core.multiarray", "scalar")) {
        dtype = sheaf__pickle_item(value->as.object->args, 0),
        data = sheaf__pickle_item(value->as.object->args, 1);
    } else {
        return false;
    }
    if (!numpy_dtype(&a.dtype, dtype) || !sheaf__pickle_is(data, SHEAF_PICKLE_BYTES) ||
        (shape != NULL && !sheaf__pickle_shape(&a.ndim, a.shape, shape)))
        return false;
    int64_t bytes = (int64_t)sheaf_dtype_bytes(a.dtype);
    for (int d = 0; d < a.ndim; d++)
        if (__builtin_mul_overflow(bytes, a.shape[d], &bytes))
            return false;
    if ((uint64_t)bytes != data->as.text.size)
        return false;
    a.data = data->as.text.at;
    a.bytes = (size_t)bytes;
    *out = a;
    return true;
}

/* A number of numpy's: its bytes, which need not lie aligned. */
static bool numpy_int(int64_t *out, const sheaf_pickle_array *a)
{
    const bool sign = a->dtype == SHEAF_I8 || a->dtype == SHEAF_I16 || a->dtype == SHEAF_I32 ||
                      a->dtype == SHEAF_I64;
    if (a->ndim != 0 || !(sign || a->dtype == SHEAF_BOOL || a->dtype == SHEAF_U8 ||
                          a->dtype == SHEAF_U16 || a->dtype == SHEAF_U32 || a->dtype == SHEAF_U64))
        return false;
    const unsigned char *p = a->data;
    uint64_t n = sign && p[a->bytes - 1] >= 0x80 ? ~(uint64_t)0 : 0;
    for (size_t i = a->bytes; i-- > 0;)
        n = n << 8 | p[i];
    if (a->dtype == SHEAF_U64 && n > INT64_MAX)
        return false;
    *out = (int64_t)n;
    return true;
}

bool sheaf__pickle_int(int64_t *out, const sheaf_pickle *value)
{
    sheaf_pickle_array a;
    if (!sheaf__pickle_is(value, SHEAF_PICKLE_INT) && !sheaf__pickle_is(value, SHEAF_PICKLE_BOOL))
        return sheaf__pickle_array(&a, value) && numpy_int(out, &a);
    *out = value->as.number;
    return true;
}

bool sheaf__pickle_float(double *out, const sheaf_pickle *value)
{
    sheaf_pickle_array a;
    int64_t number;
    float narrow;
    if (sheaf__pickle_is(value, SHEAF_PICKLE_FLOAT)) {
        *out = value->as.real;
        return true;
    }
    if (sheaf__pickle_int(&number, value)) {
        *out = (double)number;
        return true;
    }
    if (!sheaf__pickle_array(&a, value) || a.ndim != 0 ||
        (a.dtype != SHEAF_F32 && a.dtype != SHEAF_F64))
        return false;
    if (a.dtype == SHEAF_F64) {
        memcpy(out, a.data, sizeof *out);
    } else {
        memcpy(&narrow, a.data, sizeof narrow);
        *out = narrow;
    }
    return true;
}

bool sheaf__pickle_shape(int *ndim, int64_t shape[SHEAF_PICKLE_MAX_DIMS], const sheaf_pickle *value)
{
    const bool row =
        sheaf__pickle_is(value, SHEAF_PICKLE_TUPLE) || sheaf__pickle_is(value, SHEAF_PICKLE_LIST);
    int64_t got[SHEAF_PICKLE_MAX_DIMS];
    if (!row || value->as.items.count > SHEAF_PICKLE_MAX_DIMS)
        return false;
    for (int64_t i = 0; i < value->as.items.count; i++)
        if (!sheaf__pickle_int(&got[i], value->as.items.at[i]) || got[i] < 0)
            return false;
    *ndim = (int)value->as.items.count;
    memcpy(shape, got, (size_t)*ndim * sizeof *got);
    return true;
}
