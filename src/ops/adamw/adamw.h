/* adamw.h - the constants of one AdamW step, each rounded to float32 once. */
#pragma once

#include "ops/kernels.h"

typedef struct sheaf__adamw_constants {
    float scale, decay, toward, stay, beta2, rest2, bias2_sqrt, eps, step;
} sheaf__adamw_constants;

static inline sheaf__adamw_constants sheaf__adamw_prepare(const sheaf__adamw *how)
{
    return (sheaf__adamw_constants){
        .scale = how->grad_scale,
        .decay = (float)(1 - how->lr * how->weight_decay),
        .toward = (float)(1 - how->beta1), /* how far m moves toward g */
        .stay = (float)(1 - (double)(float)(1 - how->beta1)),
        .beta2 = (float)how->beta2,
        .rest2 = (float)(1 - how->beta2),
        .bias2_sqrt = (float)how->bias2_sqrt,
        .eps = (float)how->eps,
        .step = (float)(-how->lr / how->bias1),
    };
}
