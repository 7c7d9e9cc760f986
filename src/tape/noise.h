/* noise.h - NEFTune: noise on the embedding's rows while a model is trained. The gradient passes
 * unchanged. */
#pragma once

#include "tape/linear.h"

/* What a run reads; pointers are read when the tape runs. */
typedef struct sheaf__noise_in {
    const sheaf__step_info *info; /* of the rows of x: seed, step, sample and position */
    const float *half;            /* [rows] the largest noise of each row */
} sheaf__noise_in;

/* sheaf__record_noise - x [rows, width] = round(x + half[row] * t), t uniform in (-1, 1). */
void sheaf__record_noise(sheaf__tape *tape, sheaf__value *x, const sheaf__noise_in *in);

/* sheaf__noise_half - alpha / sqrt(tokens * width), as the paper has it (Jain et al. 2023); 0 for a
 * row of no tokens. */
float sheaf__noise_half(double alpha, int64_t tokens, int64_t width);
