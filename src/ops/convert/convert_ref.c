/* convert_ref.c - between types, sums, and the end of a product.
 *
 * round, widen and convert move bits: a float32 copied to float32 keeps even a
 * NaN's payload. finish is the contract's "then the bias, then one rounding";
 * the residual meets the rounded value, as x + f(x) does in the original. */
#include "ops/columns.h"

#include <string.h>

#include "ops/math/round.h"

void sheaf__round_ref(void *dst, sheaf_dtype dtype, const float *src, int64_t n)
{
    sheaf__convert_ref(dst, dtype, src, SHEAF_F32, n);
}

void sheaf__widen_ref(float *dst, const void *src, sheaf_dtype dtype, int64_t n)
{
    sheaf__convert_ref(dst, SHEAF_F32, src, dtype, n);
}

void sheaf__convert_ref(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    if (to == from) {
        memmove(dst, src, (size_t)n * (to == SHEAF_F32 ? 4 : 2));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float x = sheaf__load(src, i, from);
        if (to == SHEAF_F16)
            ((uint16_t *)dst)[i] = sheaf__f16(x);
        else if (to == SHEAF_BF16)
            ((uint16_t *)dst)[i] = sheaf__bf16(x);
        else
            ((float *)dst)[i] = x;
    }
}

void sheaf__add_ref(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = sheaf__one_nan(a[i] + b[i]);
}

void sheaf__scale_ref(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sheaf__one_nan(x[i] * by);
}

void sheaf__finish_ref(void *y, int64_t ldy, const float *sum, int64_t lds, float alpha,
                       const float *by, const float *bias, const void *residual, int64_t ldr,
                       int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float value = alpha * sum[r * lds + c];
            if (by != NULL)
                value = by[c] * value;
            if (bias != NULL)
                value += bias[c];
            if (residual != NULL)
                value = sheaf__rounded(value, dtype) + sheaf__load(residual, r * ldr + c, dtype);
            sheaf__store(y, r * ldy + c, value, dtype);
        }
}

void sheaf__accumulate_ref(void *dst, const void *src, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        sheaf__store(dst, i, sheaf__load(dst, i, dtype) + sheaf__load(src, i, dtype), dtype);
}
