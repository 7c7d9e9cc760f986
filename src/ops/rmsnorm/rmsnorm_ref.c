/* rmsnorm_ref.c - y[t,c] = round(w[c] * round(x[t,c] * rstd[t])), or with `once`
 *                round(w[c] * (x[t,c] * rstd[t])),
 *                rstd[t] = 1 / sqrt(mean over c of x[t,c]^2 + eps)
 *
 * x, y: [rows, width] row-major, dense.  w: [width] float32.
 * Source: Zhang and Sennrich 2019, eq. 4; x * rstd is rounded to the activation
 * type before it meets w, as in the Llama reference; in others' (OLMo 2's) it is
 * not. The sum runs in the 16
 * lanes of the numeric contract. With n = x * rstd and a = w * dy the gradients are
 *     g = rstd * (a - n * mean over c of a * n),   dw[c] = sum over t of dy * n;
 * the rounding of n in the forward pass counts as the identity. dw is layernorm_dw without a mean.
 */
#include "ops/columns.h"

#include <math.h>

#include "ops/math/math.h"
#include "ops/math/round.h"

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
