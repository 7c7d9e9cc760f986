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
    int64_t micro_batch; /* rows at a time, at least 1 */
    const int64_t *row;  /* [rows] those that are read, in this order; NULL: all */
    int64_t rows;
    bool padded; /* every row has sheaf_data_seq() positions, all of them given to `take`; else the
                    longest of a micro-batch decides, and only positions with a label are computed.
                    All ranks alike */
    /* With `padded`: logits of one position after the other, rows as they are read: [vocab]
     * float32. Called on every rank; may be NULL. */
    sheaf_status *(*take)(void *self, int64_t row, int64_t position, const float *logits);
    void *self;
    const atomic_int *stop;     /* not 0: SHEAF_E_STOPPED; the same on all ranks; may be NULL */
    const sheaf_events *events; /* progress; NULL on all ranks but one */
} sheaf__evaluate_options;

/* sheaf__evaluate - collective. The same numbers on every rank and at any number of ranks. */
sheaf_status *sheaf__evaluate(sheaf__evaluation *out, sheaf__model *model, const sheaf_data *data,
                              const sheaf__evaluate_options *options);
