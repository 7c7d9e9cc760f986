/* elements_test.c - operations on n elements have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/math/round.h"
#include "ops/tensor/tensor.h"

static const int64_t counts[] = { 0, 1, 17, 300, 33, (1 << 15) + 1, 70001 };

SAME_NUMBERS(test_elements__add)
{
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i];
        float *dst = same_take(n, SHEAF_F32), *src = same_take(n, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_add(device, SAME(dst), SAME(src), n);
        same.ref->add(dst, dst, src, n);
        same_check("add");
    }
}

/* Sums of a tree: 4 of 0 to 4, then their sums, one of which is added to another array, too. */
SAME_NUMBERS(test_elements__add_list)
{
    static const int to[] = { 0, 2, 0, 4, 0 }, from[] = { 1, 3, 2, 0, 4 };
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i];
        float *x[5];
        sheaf__addition there[5];
        for (int k = 0; k < 5; k++)
            x[k] = same_take(n, SHEAF_F32);
        SAME_EACH (device) {
            for (int k = 0; k < 5; k++)
                there[k] = (sheaf__addition){ SAME(x[to[k]]), SAME(x[from[k]]) };
            sheaf__op_add_list(device, there, 5, n);
            sheaf__op_add_list(device, there, 0, n);
        }
        for (int k = 0; k < 5; k++)
            same.ref->add(x[to[k]], x[to[k]], x[from[k]], n);
        same_check("add a list");
    }
}

SAME_TYPES(test_elements__accumulate, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i];
        void *dst = same_take(n, dtype), *src = same_take(n, dtype);
        SAME_EACH (device)
            sheaf__op_accumulate(device, SAME(dst), SAME(src), n, dtype);
        same.ref->accumulate(dst, src, n, dtype);
        same_check("accumulate");
    }
}

SAME_TYPES(test_elements__convert, from)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t i = 0; i < 3 * ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i / 3];
        const sheaf_dtype to = types[i % 3];
        void *dst = same_blank(n, to), *src = same_take(n, from);
        SAME_EACH (device) {
            sheaf__op_convert(device, SAME(dst), to, SAME(src), from, n);
            sheaf__op_convert(device, SAME(src), from, SAME(src), from, n); /* in place */
        }
        same.ref->convert(dst, to, src, from, n);
        same_check("convert");
    }
}

SAME_TYPES(test_elements__convert_list, from)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    enum { MANY = SHEAF__CONVERSIONS + 3 };
    for (size_t i = 0; i < 6; i++) {
        const sheaf_dtype to = types[i / 2];
        const int64_t count = i % 2 == 0 ? 5 : MANY;
        sheaf__conversion list[MANY], there[MANY];
        for (int64_t k = 0; k < count; k++) {
            list[k].n = count == MANY ? k : counts[k];
            list[k].dst = same_blank(list[k].n, to);
            list[k].src = same_take(list[k].n, from);
        }
        SAME_EACH (device) {
            for (int64_t k = 0; k < count; k++)
                there[k] = (sheaf__conversion){ SAME(list[k].dst), SAME(list[k].src), list[k].n };
            sheaf__op_convert_list(device, to, from, there, count);
        }
        for (int64_t k = 0; k < count; k++)
            same.ref->convert(list[k].dst, to, list[k].src, from, list[k].n);
        same_check("convert a list");
    }
}

SAME_TYPES(test_elements__zero, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        void *x = same_take(counts[i], dtype);
        SAME_EACH (device)
            sheaf__op_zero(device, SAME(x), counts[i], dtype);
        memset(x, 0, (size_t)counts[i] * sheaf_dtype_bytes(dtype));
        same_check("zero");
    }
}

SAME_TYPES(test_elements__refresh, dtype)
{
    for (size_t i = 0; i < 4 * ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i / 4];
        const bool one = i & 1, in_place = i & 2;
        float *src = same_take(n, SHEAF_F32), *dst = in_place ? src : same_blank(n, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_refresh(device, SAME(dst), SAME(src), n, one, dtype);
        for (int64_t e = 0; e < n; e++) {
            uint16_t half = 0;
            if (dtype == SHEAF_F32)
                memmove(&dst[e], &src[e], sizeof *dst);
            else
                same.ref->round(&half, dtype, &src[e], 1);
            if (dtype != SHEAF_F32)
                same.ref->widen(&dst[e], &half, dtype, 1);
            if (one)
                dst[e] = sheaf__one_nan(1.0f + dst[e]);
        }
        same_check("refresh");
    }
}

SAME_TYPES(test_elements__widen, dtype)
{
    if (dtype == SHEAF_F32)
        return;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i];
        float *x = same_blank(n, SHEAF_F32);
        uint16_t *narrow = (uint16_t *)x + n, *copy = malloc((size_t)n * 2 + 1);
        twin_fill(narrow, n, dtype, same.numbers, 7);
        SAME_EACH (device)
            sheaf__op_widen(device, SAME(x), n, dtype);
        memcpy(copy, narrow, (size_t)n * 2);
        same.ref->widen(x, copy, dtype, n);
        same_check("widen");
        free(copy);
    }
}

FIXTURE(same_open, same_close);
