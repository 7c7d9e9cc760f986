/* rmsnorm_fast.c - rmsnorm_ref.c on vectors.
 *
 * Sixteen lanes are one chain of fma per row, and each waits for the one before:
 * four rows are summed side by side to fill the wait. */
#include "ops/columns.h"

#include <math.h>

#include "ops/each.h"

SHEAF__INLINE void square_sums(float *out, const void *x, int64_t row, const int rows,
                               int64_t width, sheaf_dtype dtype)
{
    vec sum[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    int64_t c = 0;
    for (; c + 16 <= width; c += 16)
        for (int r = 0; r < rows; r++) {
            const vec v = v_read(x, (row + r) * width + c, 16, dtype);
            sum[r] = v_fma(v, v, sum[r]);
        }
    if (c < width)
        for (int r = 0; r < rows; r++) {
            const vec v = v_read(x, (row + r) * width + c, width - c, dtype);
            sum[r] = v_keep(width - c, v_fma(v, v, sum[r]), sum[r]);
        }
    for (int r = 0; r < rows; r++)
        out[r] = v_join(sum[r]);
}

SHEAF__INLINE void norm_part(void *y, const void *x, const float *w, vec scale, int64_t at,
                             int64_t c, int64_t count, const bool once, sheaf_dtype dtype)
{
    const vec quotient = v_mul(v_read(x, at + c, count, dtype), scale);
    const vec n = once ? quotient : v_rounded(quotient, dtype);
    v_write(y, at + c, v_mul(v_load(w + c, count), n), count, dtype);
}

SHEAF__INLINE void norm_rows(void *y, float *rstd, const void *x, const float *w, int64_t row,
                             const int rows, int64_t width, float eps, const bool once,
                             sheaf_dtype dtype)
{
    float sum[4];
    square_sums(sum, x, row, rows, width, dtype);
    for (int r = 0; r < rows; r++) {
        const float scale = sheaf__one_nan(1.0f / sqrtf(sum[r] / (float)width + eps));
        const vec by = v_set(scale);
        const int64_t at = (row + r) * width;
        V_EACH(c, width, norm_part(y, x, w, by, at, c, count, once, dtype));
        rstd[row + r] = scale;
    }
}

void SHEAF__FAST(rmsnorm)(void *y, float *rstd, const void *x, const float *w, int64_t rows,
                          int64_t width, float eps, bool once, sheaf_dtype dtype)
{
    if (once && dtype != SHEAF_F32) /* of float32 nothing is rounded between */
        V_BY_TYPE(dtype,
                  V_FOURS(row, 0, rows, norm_rows(y, rstd, x, w, row, side, width, eps, true, of)));
    else
        V_BY_TYPE(dtype, V_FOURS(row, 0, rows,
                                 norm_rows(y, rstd, x, w, row, side, width, eps, false, of)));
}

/* One step of `rows` dots: lanes of (w dy) * (x rstd) at columns c .. c + count - 1. */
SHEAF__INLINE void dots_part(vec *sum, const void *dy, const void *x, const float *w,
                             const float *rstd, int64_t row, const int rows, int64_t width,
                             int64_t c, int64_t count, sheaf_dtype dtype)
{
    const vec weight = v_load(w + c, count);
    for (int r = 0; r < rows; r++) {
        const int64_t at = (row + r) * width + c;
        const vec a = v_mul(weight, v_read(dy, at, count, dtype));
        const vec n = v_mul(v_read(x, at, count, dtype), v_set(rstd[row + r]));
        sum[r] = v_keep(count, v_fma(a, n, sum[r]), sum[r]);
    }
}

SHEAF__INLINE void dots(float *out, const void *dy, const void *x, const float *w,
                        const float *rstd, int64_t row, const int rows, int64_t width,
                        sheaf_dtype dtype)
{
    vec sum[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    V_EACH(c, width, dots_part(sum, dy, x, w, rstd, row, rows, width, c, count, dtype));
    for (int r = 0; r < rows; r++)
        out[r] = v_join(sum[r]);
}

SHEAF__INLINE void back_part(void *dx, const void *dy, const void *x, const float *w, vec rstd,
                             vec mean, int64_t at, int64_t c, int64_t count, bool add,
                             sheaf_dtype dtype)
{
    const vec a = v_mul(v_load(w + c, count), v_read(dy, at + c, count, dtype));
    const vec n = v_mul(v_read(x, at + c, count, dtype), rstd);
    vec g = v_mul(rstd, v_sub(a, v_mul(n, mean)));
    if (add)
        g = v_add(v_read(dx, at + c, count, dtype), g);
    v_write(dx, at + c, g, count, dtype);
}

SHEAF__INLINE void back_rows(void *dx, const void *dy, const void *x, const float *w,
                             const float *rstd, int64_t row, const int rows, int64_t width,
                             bool add, sheaf_dtype dtype)
{
    float dot[4];
    dots(dot, dy, x, w, rstd, row, rows, width, dtype);
    for (int r = 0; r < rows; r++) {
        const vec by = v_set(rstd[row + r]), mean = v_set(dot[r] / (float)width);
        const int64_t at = (row + r) * width;
        V_EACH(c, width, back_part(dx, dy, x, w, by, mean, at, c, count, add, dtype));
    }
}

void SHEAF__FAST(rmsnorm_back)(void *dx, const void *dy, const void *x, const float *w,
                               const float *rstd, int64_t rows, int64_t width, bool add,
                               sheaf_dtype dtype)
{
    V_BY_TYPE(dtype,
              V_FOURS(row, 0, rows, back_rows(dx, dy, x, w, rstd, row, side, width, add, of)));
}
