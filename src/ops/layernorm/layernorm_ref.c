/* layernorm_ref.c - y[t,c] = round(w[c] * n[t,c] + b[c]), n = (x - mean[t]) * rstd[t]
 *
 * x, y, dy, dx: rows of a slice's columns, `ld` elements apart.  w, b: of these columns, float32.
 * Source: Ba, Kiros and Hinton 2016, eq. 4. A width may be cut, so mean, rstd and the two
 * means of the gradient are worked out by the caller, from the sums of each slice:
 *     mean = sum / width,   rstd = 1 / sqrt(squares / width + eps),   width the logical one.
 * The squares are those of x - mean: the sum of x^2 less width * mean^2 would lose all
 * digits of a row that is far from zero. With a = w * dy the gradients are
 *     dx = rstd * ((a - mean over c of a) - n * mean over c of a * n),
 *     dw[c] = sum over t of dy * n,   db[c] = sum over t of dy. */
#include "ops/columns.h"

#include <math.h>

#include "ops/math/math.h"
#include "ops/math/round.h"

static float normal(const void *x, int64_t i, float mean, float rstd, sheaf_dtype dtype)
{
    return (sheaf__load(x, i, dtype) - mean) * rstd;
}

void sheaf__layernorm_sum_ref(float *sum, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                              sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++) {
        float lane[16] = { 0 };
        for (int64_t c = 0; c < cols; c++)
            lane[c % 16] += sheaf__load(x, t * ldx + c, dtype);
        sum[t] = sheaf__lanes_join(lane);
    }
}

void sheaf__layernorm_squares_ref(float *sum, const void *x, int64_t ldx, const float *mean,
                                  int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++) {
        float lane[16] = { 0 };
        for (int64_t c = 0; c < cols; c++) {
            const float d = sheaf__load(x, t * ldx + c, dtype) - mean[t];
            lane[c % 16] = fmaf(d, d, lane[c % 16]);
        }
        sum[t] = sheaf__lanes_join(lane);
    }
}

void sheaf__layernorm_ref(void *y, int64_t ldy, const void *x, int64_t ldx, const float *mean,
                          const float *rstd, const float *w, const float *b, const void *residual,
                          int64_t rows, int64_t cols, sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < cols; c++) {
            float v = w[c] * normal(x, t * ldx + c, mean[t], rstd[t], dtype) + b[c];
            if (residual != NULL)
                v = sheaf__rounded(v, dtype) + sheaf__load(residual, t * ldy + c, dtype);
            sheaf__store(y, t * ldy + c, v, dtype);
        }
}

void sheaf__layernorm_back_sums_ref(float *sum_a, float *sum_an, const void *dy, int64_t lddy,
                                    const void *x, int64_t ldx, const float *mean,
                                    const float *rstd, const float *w, int64_t rows, int64_t cols,
                                    sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++) {
        float lane[16] = { 0 }, dot[16] = { 0 };
        for (int64_t c = 0; c < cols; c++) {
            const float a = w[c] * sheaf__load(dy, t * lddy + c, dtype);
            const float n = normal(x, t * ldx + c, mean[t], rstd[t], dtype);
            lane[c % 16] += a;
            dot[c % 16] = fmaf(a, n, dot[c % 16]);
        }
        sum_a[t] = sheaf__lanes_join(lane);
        sum_an[t] = sheaf__lanes_join(dot);
    }
}

void sheaf__layernorm_back_ref(void *dx, const void *dy, int64_t lddy, const void *x, int64_t ldx,
                               const float *mean, const float *rstd, const float *w,
                               const float *mean_a, const float *mean_an, int64_t rows,
                               int64_t cols, bool add, sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < cols; c++) {
            const float a = w[c] * sheaf__load(dy, t * lddy + c, dtype);
            const float n = normal(x, t * ldx + c, mean[t], rstd[t], dtype);
            const float g = rstd[t] * ((a - mean_a[t]) - n * mean_an[t]);
            sheaf__store(dx, t * ldx + c, add ? sheaf__load(dx, t * ldx + c, dtype) + g : g, dtype);
        }
}

void sheaf__layernorm_dw_ref(float *dw, float *db, const void *dy, int64_t lddy, const void *x,
                             int64_t ldx, const float *mean, const float *rstd, int64_t rows,
                             int64_t begin, int64_t end, sheaf_dtype dtype)
{
    for (int64_t block = 0; block < rows; block += 256)
        for (int64_t c = begin; c < end; c++) {
            float sum = 0, plain = 0;
            for (int64_t t = block; t < rows && t < block + 256; t++) {
                const float d = sheaf__load(dy, t * lddy + c, dtype);
                sum = fmaf(d, normal(x, t * ldx + c, mean != NULL ? mean[t] : 0, rstd[t], dtype),
                           sum);
                plain += d;
            }
            dw[c] = sheaf__one_nan(dw[c] + sum);
            if (db != NULL)
                db[c] = sheaf__one_nan(db[c] + plain);
        }
}

/* RMSNorm: y[t,c] = round(w[c] * round(x[t,c] * rstd[t])), or with `once`
 * round(w[c] * (x[t,c] * rstd[t])),
 * rstd[t] = 1 / sqrt(mean over c of x[t,c]^2 + eps)
 *
 * x, y: [rows, width] row-major, dense.  w: [width] float32.
 * Source: Zhang and Sennrich 2019, eq. 4; x * rstd is rounded to the activation
 * type before it meets w, as in the Llama reference; in others' (OLMo 2's) it is
 * not. The sum runs in the 16
 * lanes of the numeric contract. With n = x * rstd and a = w * dy the gradients are
 *     g = rstd * (a - n * mean over c of a * n),   dw[c] = sum over t of dy * n;
 * the rounding of n in the forward pass counts as the identity. dw is layernorm_dw without a mean.
 */
void sheaf__rmsnorm_ref(void *y, float *rstd, const void *x, const float *w, int64_t rows,
                        int64_t width, float eps, bool once, sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++) {
        float lane[16] = { 0 };
        for (int64_t c = 0; c < width; c++) {
            const float v = sheaf__load(x, t * width + c, dtype);
            lane[c % 16] = fmaf(v, v, lane[c % 16]);
        }
        const float mean = sheaf__lanes_join(lane) / (float)width;
        const float scale = sheaf__one_nan(1.0f / sqrtf(mean + eps));
        for (int64_t c = 0; c < width; c++) {
            const float n = sheaf__load(x, t * width + c, dtype) * scale;
            sheaf__store(y, t * width + c, w[c] * (once ? n : sheaf__rounded(n, dtype)), dtype);
        }
        rstd[t] = scale;
    }
}

void sheaf__rmsnorm_back_ref(void *dx, const void *dy, const void *x, const float *w,
                             const float *rstd, int64_t rows, int64_t width, bool add,
                             sheaf_dtype dtype)
{
    for (int64_t t = 0; t < rows; t++) {
        float lane[16] = { 0 };
        for (int64_t c = 0; c < width; c++) {
            const float a = w[c] * sheaf__load(dy, t * width + c, dtype);
            const float n = sheaf__load(x, t * width + c, dtype) * rstd[t];
            lane[c % 16] = fmaf(a, n, lane[c % 16]);
        }
        const float mean = sheaf__lanes_join(lane) / (float)width;
        for (int64_t c = 0; c < width; c++) {
            const float a = w[c] * sheaf__load(dy, t * width + c, dtype);
            const float n = sheaf__load(x, t * width + c, dtype) * rstd[t];
            const float g = rstd[t] * (a - n * mean);
            sheaf__store(dx, t * width + c, add ? sheaf__load(dx, t * width + c, dtype) + g : g,
                         dtype);
        }
    }
}
