/* elements.c - kernels of operations on n elements (ops/tensor/elements.h). */
#include "ops/tensor/elements.h"
#include "ops/devices/gpu/kernels/vectors.h"

DEVICE void add_some(void *dst, const void *src, int64_t i, int64_t n, sheaf_dtype dtype)
{
    const int per = PER(dtype);
    float to[MOST], from[MOST];
    if (i >= n)
        return;
    load_some(to, dst, i, n, dtype, per);
    load_some(from, src, i, n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        to[e] += from[e];
    store_some(dst, i, n, to, dtype, per);
}

KERNELS(accumulate, sheaf__pair, 256)
{
    add_some(a->dst, a->src, own_index() * PER(dtype), a->n, dtype);
}

/* A thread goes through the whole list with its own elements. */
KERNEL(add_list, sheaf__additions, 256)
{
    for (int32_t k = 0; k < a->count; k++)
        add_some(a->each[k].dst, a->each[k].src, own_index() * 4, a->n, SHEAF_F32);
}

DEVICE void convert_from(const sheaf__pair *a, sheaf_dtype to, sheaf_dtype from)
{
    const int per = to == SHEAF_F32 ? PER(from) : MOST;
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    if (to == from) {
        copy_some(a->dst, i, a->src, i, a->n - i, to);
        return;
    }
    float v[MOST];
    load_some(v, a->src, i, a->n, from, per);
    move_some(a->dst, i, a->n, v, to, per);
}

DEVICE void convert_to(const sheaf__pair *a, sheaf_dtype to)
{
    if (a->from == SHEAF_F32)
        convert_from(a, to, SHEAF_F32);
    else if (a->from == SHEAF_BF16)
        convert_from(a, to, SHEAF_BF16);
    else
        convert_from(a, to, SHEAF_F16);
}

KERNELS(convert, sheaf__pair, 256)
{
    convert_to(a, dtype);
}

/* blockIdx.y: which. */
KERNELS(convert_list, sheaf__conversions, 256)
{
    const sheaf__conversion *one = &a->each[blockIdx.y];
    const sheaf__pair pair = { one->dst, one->src, dtype, a->from, false, one->n };
    convert_to(&pair, dtype);
}

KERNELS(zero, sheaf__pair, 256)
{
    const float none[MOST] = { 0 };
    const int64_t i = own_index() * PER(dtype);
    if (i < a->n)
        move_some(a->dst, i, a->n, none, dtype, PER(dtype));
}

/* All of float32; `dtype` is what the numbers are rounded to. */
KERNELS(refresh, sheaf__pair, 256)
{
    const int64_t i = own_index() * 4;
    if (i >= a->n)
        return;
    float v[4];
    load_some(v, a->src, i, a->n, SHEAF_F32, 4);
    UNROLL
    for (int e = 0; e < 4; e++) {
        v[e] = rounded_one(v[e], dtype);
        v[e] = a->one ? sheaf__one_nan(1.0f + v[e]) : v[e];
    }
    move_some(a->dst, i, a->n, v, SHEAF_F32, 4);
}
