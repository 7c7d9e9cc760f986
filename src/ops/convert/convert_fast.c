/* convert_fast.c - convert_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"

/* As v_write, but a float32 is copied, not computed. */
SHEAF__INLINE void write_as(void *dst, int64_t i, vec x, int64_t count, sheaf_dtype to)
{
    if (to == SHEAF_F16)
        v_store_halves((uint16_t *)dst + i, v_f16(x), count);
    else if (to == SHEAF_BF16)
        v_write(dst, i, x, count, SHEAF_BF16);
    else
        v_store((float *)dst + i, x, count);
}

SHEAF__INLINE void convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    V_EACH(i, n, write_as(dst, i, v_read(src, i, count, from), count, to));
}

void SHEAF__FAST(convert)(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    if (to == from)
        memmove(dst, src, (size_t)n * (to == SHEAF_F32 ? 4 : 2));
    else if (to == SHEAF_F32)
        from == SHEAF_F16 ? convert(dst, SHEAF_F32, src, SHEAF_F16, n)
                          : convert(dst, SHEAF_F32, src, SHEAF_BF16, n);
    else if (to == SHEAF_BF16)
        from == SHEAF_F16 ? convert(dst, SHEAF_BF16, src, SHEAF_F16, n)
                          : convert(dst, SHEAF_BF16, src, SHEAF_F32, n);
    else
        from == SHEAF_BF16 ? convert(dst, SHEAF_F16, src, SHEAF_BF16, n)
                           : convert(dst, SHEAF_F16, src, SHEAF_F32, n);
}

void SHEAF__FAST(round)(void *dst, sheaf_dtype dtype, const float *src, int64_t n)
{
    SHEAF__FAST(convert)(dst, dtype, src, SHEAF_F32, n);
}

void SHEAF__FAST(widen)(float *dst, const void *src, sheaf_dtype dtype, int64_t n)
{
    SHEAF__FAST(convert)(dst, SHEAF_F32, src, dtype, n);
}

void SHEAF__FAST(add)(float *dst, const float *a, const float *b, int64_t n)
{
    V_EACH(i, n,
           v_store(dst + i, v_one_nan(v_add(v_load(a + i, count), v_load(b + i, count))), count));
}

void SHEAF__FAST(scale)(float *x, float by, int64_t n)
{
    const vec factor = v_set(by);
    V_EACH(i, n, v_store(x + i, v_one_nan(v_mul(v_load(x + i, count), factor)), count));
}

SHEAF__INLINE void finish_part(void *y, const float *sum, vec alpha, const float *by,
                               const float *bias, const void *residual, int64_t yi, int64_t ri,
                               int64_t c, int64_t count, sheaf_dtype dtype)
{
    vec value = v_mul(alpha, v_load(sum + c, count));
    if (by != NULL)
        value = v_mul(v_load(by + c, count), value);
    if (bias != NULL)
        value = v_add(value, v_load(bias + c, count));
    if (residual != NULL)
        value = v_add(v_rounded(value, dtype), v_read(residual, ri + c, count, dtype));
    v_write(y, yi + c, value, count, dtype);
}

void SHEAF__FAST(finish)(void *y, int64_t ldy, const float *sum, int64_t lds, float alpha,
                         const float *by, const float *bias, const void *residual, int64_t ldr,
                         int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    const vec scale = v_set(alpha);
    V_BY_TYPE(dtype, for (int64_t r = 0; r < rows; r++)
                         V_EACH(c, cols,
                                finish_part(y, sum + r * lds, scale, by, bias, residual, r * ldy,
                                            r * ldr, c, count, of)));
}

SHEAF__INLINE void accumulate_part(void *dst, const void *src, int64_t i, int64_t count,
                                   sheaf_dtype dtype)
{
    v_write(dst, i, v_add(v_read(dst, i, count, dtype), v_read(src, i, count, dtype)), count,
            dtype);
}

void SHEAF__FAST(accumulate)(void *dst, const void *src, int64_t n, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, V_EACH(i, n, accumulate_part(dst, src, i, count, of)));
}
