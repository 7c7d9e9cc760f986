/* layernorm_fast.c - layernorm_ref.c on vectors: LayerNorm and RMSNorm, of which n has no mean.
 *
 * Sixteen lanes are one chain per row, and each step waits for the one before:
 * four rows are summed side by side to fill the wait. */
#include "ops/columns.h"

#include <math.h>

#include "ops/each.h"

SHEAF__INLINE vec normal(const void *x, int64_t i, float mean, float rstd, int64_t count,
                         sheaf_dtype dtype)
{
    return v_mul(v_sub(v_read(x, i, count, dtype), v_set(mean)), v_set(rstd));
}

/* ---- sums of x, of x^2 and of (x - mean)^2, which has `mean` ---- */

SHEAF__INLINE void sums_part(vec *sum, const void *x, int64_t ldx, const float *mean, int64_t row,
                             const int rows, int64_t c, int64_t count, const bool squares,
                             sheaf_dtype dtype)
{
    for (int r = 0; r < rows; r++) {
        vec v = v_read(x, (row + r) * ldx + c, count, dtype);
        if (mean != NULL)
            v = v_sub(v, v_set(mean[row + r]));
        v = squares ? v_fma(v, v, sum[r]) : v_add(sum[r], v);
        sum[r] = v_keep(count, v, sum[r]);
    }
}

SHEAF__INLINE void sums_rows(float *out, const void *x, int64_t ldx, const float *mean, int64_t row,
                             const int rows, int64_t cols, const bool squares, sheaf_dtype dtype)
{
    vec sum[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    V_EACH(c, cols, sums_part(sum, x, ldx, mean, row, rows, c, count, squares, dtype));
    for (int r = 0; r < rows; r++)
        out[r] = v_join(sum[r]);
}

void SHEAF__FAST(layernorm_sum)(float *sum, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                                sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, V_FOURS(row, 0, rows,
                             sums_rows(sum + row, x, ldx, NULL, row, side, cols, false, of)));
}

void SHEAF__FAST(layernorm_squares)(float *sum, const void *x, int64_t ldx, const float *mean,
                                    int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype,
              V_FOURS(row, 0, rows, sums_rows(sum + row, x, ldx, mean, row, side, cols, true, of)));
}

/* ---- the norm: row t of y and residual is at `to`, of x at `at` ---- */

SHEAF__INLINE void norm_part(void *y, int64_t to, const void *x, int64_t at, float mean, float rstd,
                             const float *w, const float *b, const void *residual, int64_t c,
                             int64_t count, sheaf_dtype dtype)
{
    const vec n = normal(x, at + c, mean, rstd, count, dtype);
    vec v = v_add(v_mul(v_load(w + c, count), n), v_load(b + c, count));
    if (residual != NULL)
        v = v_add(v_rounded(v, dtype), v_read(residual, to + c, count, dtype));
    v_write(y, to + c, v, count, dtype);
}

void SHEAF__FAST(layernorm)(void *y, int64_t ldy, const void *x, int64_t ldx, const float *mean,
                            const float *rstd, const float *w, const float *b, const void *residual,
                            int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, for (int64_t t = 0; t < rows; t++)
                         V_EACH(c, cols,
                                norm_part(y, t * ldy, x, t * ldx, mean[t], rstd[t], w, b, residual,
                                          c, count, of)));
}

/* ---- the gradient of x ---- */

/* Sums of a (but `mean` NULL: not) and of dots of a and n, of `rows` rows. */
SHEAF__INLINE void dots_part(vec *sum, vec *dot, const void *dy, int64_t lddy, const void *x,
                             int64_t ldx, const float *mean, const float *rstd, const float *w,
                             int64_t row, const int rows, int64_t c, int64_t count,
                             sheaf_dtype dtype)
{
    const vec weight = v_load(w + c, count);
    for (int r = 0; r < rows; r++) {
        const int64_t t = row + r;
        const vec a = v_mul(weight, v_read(dy, t * lddy + c, count, dtype));
        const vec n = normal(x, t * ldx + c, mean != NULL ? mean[t] : 0, rstd[t], count, dtype);
        if (mean != NULL)
            sum[r] = v_keep(count, v_add(sum[r], a), sum[r]);
        dot[r] = v_keep(count, v_fma(a, n, dot[r]), dot[r]);
    }
}

SHEAF__INLINE void dots_rows(float *sum_a, float *sum_an, const void *dy, int64_t lddy,
                             const void *x, int64_t ldx, const float *mean, const float *rstd,
                             const float *w, int64_t row, const int rows, int64_t cols,
                             sheaf_dtype dtype)
{
    vec sum[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    vec dot[4] = { v_zero(), v_zero(), v_zero(), v_zero() };
    V_EACH(c, cols,
           dots_part(sum, dot, dy, lddy, x, ldx, mean, rstd, w, row, rows, c, count, dtype));
    for (int r = 0; r < rows; r++) {
        if (mean != NULL)
            sum_a[r] = v_join(sum[r]);
        sum_an[r] = v_join(dot[r]);
    }
}

void SHEAF__FAST(layernorm_back_sums)(float *sum_a, float *sum_an, const void *dy, int64_t lddy,
                                      const void *x, int64_t ldx, const float *mean,
                                      const float *rstd, const float *w, int64_t rows, int64_t cols,
                                      sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, V_FOURS(row, 0, rows,
                             dots_rows(sum_a + row, sum_an + row, dy, lddy, x, ldx, mean, rstd, w,
                                       row, side, cols, of)));
}

/* A row of dx and x begins at `at`, of dy at `from`. */
SHEAF__INLINE void back_part(void *dx, const void *dy, int64_t from, const void *x, int64_t at,
                             float mean, float rstd, const float *w, float mean_a, float mean_an,
                             int64_t c, int64_t count, bool add, sheaf_dtype dtype)
{
    const vec a = v_mul(v_load(w + c, count), v_read(dy, from + c, count, dtype));
    const vec n = normal(x, at + c, mean, rstd, count, dtype);
    vec g = v_sub(v_sub(a, v_set(mean_a)), v_mul(n, v_set(mean_an)));
    g = v_mul(v_set(rstd), g);
    if (add)
        g = v_add(v_read(dx, at + c, count, dtype), g);
    v_write(dx, at + c, g, count, dtype);
}

void SHEAF__FAST(layernorm_back)(void *dx, const void *dy, int64_t lddy, const void *x, int64_t ldx,
                                 const float *mean, const float *rstd, const float *w,
                                 const float *mean_a, const float *mean_an, int64_t rows,
                                 int64_t cols, bool add, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, for (int64_t t = 0; t < rows; t++)
                         V_EACH(c, cols,
                                back_part(dx, dy, t * lddy, x, t * ldx, mean[t], rstd[t], w,
                                          mean_a[t], mean_an[t], c, count, add, of)));
}

/* ---- the gradients of w and b: as column_sums, four rows in one pass over a strip ---- */
#define STRIP 1024

SHEAF__INLINE void dw_part(float *sum, float *plain, const void *dy, int64_t lddy, const void *x,
                           int64_t ldx, const float *mean, const float *rstd, int64_t row,
                           int64_t rows, int64_t c, int64_t count, sheaf_dtype dtype)
{
    vec s = v_load(sum, count), p = plain != NULL ? v_load(plain, count) : v_zero();
    for (int64_t t = row; t < row + rows; t++) {
        const vec d = v_read(dy, t * lddy + c, count, dtype);
        s = v_fma(d, normal(x, t * ldx + c, mean != NULL ? mean[t] : 0, rstd[t], count, dtype), s);
        p = v_add(p, d);
    }
    v_store(sum, s, count);
    if (plain != NULL)
        v_store(plain, p, count);
}

SHEAF__INLINE void dw_strip(float *sum, float *plain, const void *dy, int64_t lddy, const void *x,
                            int64_t ldx, const float *mean, const float *rstd, int64_t row,
                            int64_t rows, int64_t c, int64_t cols, sheaf_dtype dtype)
{
    V_EACH(i, cols,
           dw_part(sum + i, plain != NULL ? plain + i : NULL, dy, lddy, x, ldx, mean, rstd, row,
                   rows, c + i, count, dtype));
}

/* `plain`: space for the sums of db, or NULL. */
SHEAF__INLINE void layernorm_dw(float *dw, float *db, float *plain, const void *dy, int64_t lddy,
                                const void *x, int64_t ldx, const float *mean, const float *rstd,
                                int64_t rows, int64_t begin, int64_t end, sheaf_dtype dtype)
{
    float sum[STRIP];
    for (int64_t block = 0; block < rows; block += 256)
        for (int64_t c = begin; c < end; c += STRIP) {
            const int64_t last = rows - block < 256 ? rows : block + 256;
            const int64_t cols = end - c < STRIP ? end - c : STRIP;
            memset(sum, 0, sizeof sum);
            if (plain != NULL)
                memset(plain, 0, sizeof sum);
            V_FOURS(t, block, last,
                    dw_strip(sum, plain, dy, lddy, x, ldx, mean, rstd, t, side, c, cols, dtype));
            SHEAF__FAST(add)(dw + c, dw + c, sum, cols);
            if (plain != NULL)
                SHEAF__FAST(add)(db + c, db + c, plain, cols);
        }
}

void SHEAF__FAST(layernorm_dw)(float *dw, float *db, const void *dy, int64_t lddy, const void *x,
                               int64_t ldx, const float *mean, const float *rstd, int64_t rows,
                               int64_t begin, int64_t end, sheaf_dtype dtype)
{
    float buffer[STRIP], *plain = db != NULL ? buffer : NULL;
    V_BY_TYPE(dtype,
              layernorm_dw(dw, db, plain, dy, lddy, x, ldx, mean, rstd, rows, begin, end, of));
}

/* ---- RMSNorm ---- */

SHEAF__INLINE void rms_part(void *y, const void *x, const float *w, vec scale, int64_t at,
                            int64_t c, int64_t count, const bool once, sheaf_dtype dtype)
{
    const vec quotient = v_mul(v_read(x, at + c, count, dtype), scale);
    const vec n = once ? quotient : v_rounded(quotient, dtype);
    v_write(y, at + c, v_mul(v_load(w + c, count), n), count, dtype);
}

SHEAF__INLINE void rms_rows(void *y, float *rstd, const void *x, const float *w, int64_t row,
                            const int rows, int64_t width, float eps, const bool once,
                            sheaf_dtype dtype)
{
    float sum[4];
    sums_rows(sum, x, width, NULL, row, rows, width, true, dtype);
    for (int r = 0; r < rows; r++) {
        const float scale = sheaf__one_nan(1.0f / sqrtf(sum[r] / (float)width + eps));
        const vec by = v_set(scale);
        const int64_t at = (row + r) * width;
        V_EACH(c, width, rms_part(y, x, w, by, at, c, count, once, dtype));
        rstd[row + r] = scale;
    }
}

void SHEAF__FAST(rmsnorm)(void *y, float *rstd, const void *x, const float *w, int64_t rows,
                          int64_t width, float eps, bool once, sheaf_dtype dtype)
{
    if (once && dtype != SHEAF_F32) /* of float32 nothing is rounded between */
        V_BY_TYPE(dtype,
                  V_FOURS(row, 0, rows, rms_rows(y, rstd, x, w, row, side, width, eps, true, of)));
    else
        V_BY_TYPE(dtype,
                  V_FOURS(row, 0, rows, rms_rows(y, rstd, x, w, row, side, width, eps, false, of)));
}

SHEAF__INLINE void rms_back_rows(void *dx, const void *dy, const void *x, const float *w,
                                 const float *rstd, int64_t row, const int rows, int64_t width,
                                 bool add, sheaf_dtype dtype)
{
    float dot[4];
    dots_rows(NULL, dot, dy, width, x, width, NULL, rstd, w, row, rows, width, dtype);
    for (int r = 0; r < rows; r++) {
        const int64_t at = (row + r) * width;
        V_EACH(c, width,
               back_part(dx, dy, at, x, at, 0, rstd[row + r], w, 0, dot[r] / (float)width, c, count,
                         add, dtype));
    }
}

void SHEAF__FAST(rmsnorm_back)(void *dx, const void *dy, const void *x, const float *w,
                               const float *rstd, int64_t rows, int64_t width, bool add,
                               sheaf_dtype dtype)
{
    V_BY_TYPE(dtype,
              V_FOURS(row, 0, rows, rms_back_rows(dx, dy, x, w, rstd, row, side, width, add, of)));
}
