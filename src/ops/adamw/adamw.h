/* adamw.h - one AdamW step: its constants, each rounded to float32 once, and what becomes of an
 * element. */
#pragma once

#include <math.h>

#include "ops/kernels.h"
#include "ops/math/round.h"

typedef struct sheaf__adamw_constants {
    float scale, decay, toward, stay, beta1, beta2, rest2, bias2_sqrt, eps, step;
} sheaf__adamw_constants;

static inline sheaf__adamw_constants sheaf__adamw_prepare(const sheaf__adamw *how)
{
    return (sheaf__adamw_constants){
        .scale = how->grad_scale,
        .decay = (float)(1 - how->lr * how->weight_decay),
        .toward = (float)(1 - how->beta1), /* how far m moves toward g */
        .stay = (float)(1 - (double)(float)(1 - how->beta1)),
        .beta1 = (float)how->beta1,
        .beta2 = (float)how->beta2,
        .rest2 = (float)(1 - how->beta2),
        .bias2_sqrt = (float)how->bias2_sqrt,
        .eps = (float)how->eps,
        .step = (float)(-how->lr / how->bias1),
    };
}

SHEAF__SHARED_FN void sheaf__adamw_one(float *p, float *m, float *v, float g,
                                       const sheaf__adamw_constants *k)
{
    const float grad = g * k->scale;
    const float decayed = *p * k->decay;
    const float m1 = k->toward < 0.5f ? *m + k->toward * (grad - *m) : grad - (grad - *m) * k->stay;
    const float v1 = *v * k->beta2 + k->rest2 * grad * grad;
    const float denominator = sqrtf(v1) / k->bias2_sqrt + k->eps;
    *m = sheaf__one_nan(m1);
    *v = sheaf__one_nan(v1);
    *p = sheaf__one_nan(decayed + k->step * m1 / denominator);
}

/* The same as bitsandbytes has it beside moments of 8 bits: fused, and m decays by beta1. */
SHEAF__SHARED_FN void sheaf__adamw8_one(float *p, float *m, float *v, float g,
                                        const sheaf__adamw_constants *k)
{
    const float grad = g * k->scale;
    const float decayed = *p * k->decay;
    const float m1 = fmaf(grad, k->toward, *m * k->beta1);
    const float v1 = fmaf(k->rest2 * grad, grad, *v * k->beta2);
    const float denominator = sqrtf(v1) / k->bias2_sqrt + k->eps;
    *m = sheaf__one_nan(m1);
    *v = sheaf__one_nan(v1);
    *p = sheaf__one_nan(decayed + k->step * m1 / denominator);
}

/* Elements of a block of such moments, from the first of a slice on. */
#define SHEAF__ADAMW8_BLOCK 256
