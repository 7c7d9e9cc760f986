/* cross_entropy_ref.c - the pieces of softmax cross-entropy that one slice of the
 * vocabulary can do alone: largest logit, sum of exponentials, gradient.
 *
 * The caller joins the slices between the pieces (the maxima with sheaf__max, the
 * sums with the tree) and takes loss = log(sum) - (logit of target - max). */
#include "ops/columns.h"

#include <math.h>

#include "ops/math/math.h"
#include "ops/math/round.h"

void sheaf__row_max_ref(float *max, const float *logits, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        for (int64_t c = 0; c < cols; c++)
            max[r] = sheaf__max(max[r], logits[r * ld + c]);
    }
}

void sheaf__row_sumexp_ref(float *sum, const float *logits, int64_t ld, const float *max,
                           int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        float lane[16] = { 0 };
        for (int64_t c = 0; c < cols; c++)
            lane[c % 16] += sheaf__exp(logits[r * ld + c] - max[r]);
        sum[r] = sheaf__lanes_join(lane);
    }
}

void sheaf__row_dlogits_ref(void *d, int64_t ldd, const float *logits, int64_t ld, const float *max,
                            const float *sum, const int32_t *target,
                            const sheaf__label_weights *how, int64_t rows, int64_t cols,
                            sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float g = 0;
            if (target[r] != SHEAF__IGNORED) {
                const float p = sheaf__exp(logits[r * ld + c] - max[r]) / sum[r];
                g = ((p - (c == target[r] ? how->keep : 0.0f)) - how->even) * how->weight[r];
            }
            sheaf__store(d, r * ldd + c, g, dtype);
        }
}
