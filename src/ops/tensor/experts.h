/* experts.h - arguments of the operations of a mixture of experts, see tensor.h, and what one
 * weight goes through. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/exp_d.h"
#include "ops/math/round.h"
#include "sheaf/dtype.h"

typedef struct sheaf__choice {
    void *logits; /* [rows, experts]; backward: their gradient, written */
    float *weights;
    float *all;  /* [rows, experts] p of all experts; NULL: not wanted. Backward: read with of_all
                    and with `add` */
    bool of_all; /* weights are p itself, not shares of those that were chosen */
    float *grad; /* backward: of the weights; is changed */
    /* Backward: [experts] gradient of p in each row with mask[row / queries * mask_ld + row %
     * queries] 1, mask NULL: in each; NULL: none. */
    const float *add;
    const uint8_t *mask;
    int64_t queries, mask_ld;
    int64_t rows, experts, top_k;
    sheaf_dtype dtype;
} sheaf__choice;

/* An expert's output for `rows` rows, row i of which is row which[i] of `wide` (NULL: i). */
typedef struct sheaf__share {
    void *sum;     /* [wide, cols]; backward: its gradient, which is read */
    const void *y; /* [rows, cols]; backward: may be NULL without dweights */
    const int32_t *which;
    const float *weights; /* [wide, experts] */
    int64_t rows, wide, cols, experts, expert;
    sheaf_dtype dtype;
    void *dy;        /* backward, written; NULL: not wanted */
    float *dweights; /* backward, of its own column what these rows give; NULL: not wanted */
} sheaf__share;

/* To float32, where a denormal result is zero. */
SHEAF__SHARED_FN float sheaf__narrow(double x)
{
    const double size = x < 0 ? -x : x;
    if (size < 0x1.ffffffp-127) /* larger ones round to 2^-126 */
        return x < 0 ? -0.0f : 0.0f;
    if (size < 0x1p-126)
        return x < 0 ? -0x1p-126f : 0x1p-126f;
    return sheaf__one_nan((float)x);
}

/* The summand of a softmax whose largest logit is `most`; NaN stays NaN. */
SHEAF__SHARED_FN float sheaf__choice_exp(float x, float most)
{
    return sheaf__narrow(sheaf__exp_d_of((double)(x - most)));
}

/* Marks the `top_k` largest of w, whose signs are clear, by a minus sign, gives their sum. */
SHEAF__SHARED_FN float sheaf__choice_mark(float *w, int64_t n, int64_t top_k)
{
    float sum = 0;
    for (int64_t k = 0; k < top_k; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (sheaf__bits(w[i]) >> 31 == 0 && (best < 0 || w[i] > w[best]))
                best = i;
        sum += w[best];
        w[best] = sheaf__float(sheaf__bits(w[best]) | UINT32_C(1) << 31);
    }
    return sum;
}

/* The weight of an expert that is marked or not. */
SHEAF__SHARED_FN float sheaf__choice_weight(float w, float sum)
{
    const uint32_t bits = sheaf__bits(w);
    return bits >> 31 == 0 ? 0 : sheaf__one_nan(sheaf__float(bits & 0x7fffffff) / sum);
}

/* Has row r a gradient that comes from `add`? */
SHEAF__SHARED_FN bool sheaf__choice_adds(const sheaf__choice *p, int64_t r)
{
    return p->add != NULL &&
           (p->mask == NULL || p->mask[r / p->queries * p->mask_ld + r % p->queries] != 0);
}

/* The row of the sum that is row i of y. */
SHEAF__SHARED_FN int64_t sheaf__share_row(const sheaf__share *s, int64_t i)
{
    return s->which == NULL ? i : s->which[i];
}
