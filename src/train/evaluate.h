/* evaluate.h - loss, accuracy and logits of a model on a data set; no gradients. */
#pragma once

#include <stdatomic.h>

#include "models/model.h"
#include "train/runner.h"

typedef struct sheaf__evaluation {
    double loss;     /* mean over label tokens; 0 when there is none */
    int64_t tokens;  /* label tokens */
    int64_t correct; /* of them, those whose first largest logit is the label */
} sheaf__evaluation;

typedef struct sheaf__evaluate_options {
    int64_t micro_batch; /* at least 1 */
    const int64_t *row;  /* [rows] rows to read, in this order; NULL: all */
    int64_t rows;
    const int64_t
        *other;       /* [rows] rows whose answers stand behind the prompts; NULL: each its own */
    bool prompts_too; /* prompts have labels as well */
    bool padded; /* every row has sheaf_data_seq() positions, all passed to `take`; else rows are as
                    long as the longest of their micro-batch, and only positions with a label are
                    computed. The same on all ranks */
    /* With `padded`: gets the logits [vocab] float32 of each position in order. Called on every
     * rank; may be NULL. */
    sheaf_status *(*take)(void *self, int64_t row, int64_t position, const float *logits);
    /* Without it: of each row a number, of what its n positions lose (each[i], where label[i] is
     * 1). Both NULL: none. */
    double (*value)(void *self, int64_t row, const uint8_t *label, const float *each, int64_t n);
    double *values;     /* [rows] */
    double temperature; /* as in sheaf__head_run */
    void *self;
    const atomic_int *stop;     /* not 0: SHEAF_E_STOPPED; the same on all ranks; may be NULL */
    const sheaf_events *events; /* progress; NULL on all ranks but one */
} sheaf__evaluate_options;

/* sheaf__evaluate - collective. Gives the same numbers on every rank and at any number of ranks. */
sheaf_status *sheaf__evaluate(sheaf__evaluation *out, sheaf__model *model, const sheaf_data *data,
                              const sheaf__evaluate_options *options);
/* sheaf__evaluate_scores - the scores that a reward model gives to rows, into out[rows].
 *   data  opened with `scores`
 *   how   row, rows, micro_batch, stop and events are read */
sheaf_status *sheaf__evaluate_scores(double *out, sheaf__model *model, const sheaf_data *data,
                                     const sheaf__evaluate_options *how);
/* sheaf__evaluate_stopped - SHEAF_E_STOPPED where *stop is not 0 on any rank, on all: one of them
 * may see the request first. stop NULL: none. Collective. */
sheaf_status *sheaf__evaluate_stopped(const sheaf__context *context, const atomic_int *stop);
