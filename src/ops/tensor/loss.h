/* loss.h - arguments of operations on logits, see tensor.h, and what one row loses. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/kernels.h"
#include "ops/math/elementary.h"
#include "sheaf/dtype.h"

/* Dense float32 [rows, cols]: columns [first, first + cols) of the vocabulary. A row's label is a
 * word of the vocabulary, or below 0. */
typedef struct sheaf__logits {
    float *at;
    int64_t rows, cols, first;
} sheaf__logits;

typedef struct sheaf__capped {
    void *x;
    const float *y;
    float cap;
    int64_t rows, cols;
    sheaf_dtype dtype;
} sheaf__capped;

/* By slice and row, [slices, ld]: sums of exp(logit - max), and of the logits themselves, 16 lanes
 * each. Those of slices without columns are left alone. */
typedef struct sheaf__row_sums {
    float *exponentials, *logits; /* logits: or NULL */
    int64_t ld;
    int slices;
    const int64_t *begin, *extent; /* the host's: columns of each */
} sheaf__row_sums;

/* A number of each row. */
typedef struct sheaf__of_rows {
    sheaf__logits l;
    float *out;
    const float *max;
    const int32_t *label;
    sheaf__row_sums sums; /* of ROW_SUMS alone, which writes no `out` */
} sheaf__of_rows;

typedef struct sheaf__row_gradient {
    void *d; /* [rows, cols]; of float32 also the logits' place */
    const float *max, *sum;
    const int32_t *label;
    sheaf__label_weights how;
    sheaf_dtype dtype;
} sheaf__row_gradient;

typedef struct sheaf__gradient_call {
    sheaf__logits l;
    sheaf__row_gradient g;
} sheaf__gradient_call;

/* Adds what each labelled row loses to the host's numbers, rows ascending. */
typedef struct sheaf__losses {
    const float *max, *sum, *target; /* [rows]; sum: of exponentials, target: the label's logit */
    const float *logits;             /* their sum; read where labels are smoothed */
    const float *first;              /* sheaf__op_row_first(), or NULL */
    const int32_t *label;            /* the host's */
    int64_t rows, vocab;
    double smoothing;
    float *each;  /* [rows] the host's: what each row with a label loses; or NULL */
    double *loss; /* the host's, as are these: rows with a label, those whose first is the label */
    int64_t *labels, *correct;
} sheaf__losses;

/* Row i. */
SHEAF__SHARED_FN float sheaf__losses_row(const sheaf__losses *a, int64_t i)
{
    const float whole = sheaf__log_of(a->sum[i]) + a->max[i];
    float loss = whole - a->target[i];
    if (a->smoothing > 0) {
        const float even = whole - a->logits[i] / (float)a->vocab;
        loss = (float)(1 - a->smoothing) * loss + (float)a->smoothing * even;
    }
    return sheaf__one_nan(loss);
}

/* Adds row i to the host's numbers, which has a label: what it loses, and minus the word whose
 * logit is first. */
static inline void sheaf__losses_add(const sheaf__losses *a, int64_t i, float loss, float first)
{
    if (a->each != NULL)
        a->each[i] = loss;
    *a->loss += (double)loss;
    *a->labels += 1;
    *a->correct += a->first != NULL && first == -(float)a->label[i];
}
