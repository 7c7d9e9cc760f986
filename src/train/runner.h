/* runner.h - micro-batches of a data set on their way through a model: buffers, and a compiled
 * tape for each number of images that occurs in a micro-batch. */
#ifndef SHEAF_TRAIN_RUNNER_H
#define SHEAF_TRAIN_RUNNER_H

#include "models/model.h"
#include "train/data.h"
#include "train/row_kinds.h"

typedef struct sheaf__runner_options {
    int64_t rows, seq;   /* of a micro-batch */
    bool backward, rerun; /* as sheaf__tape_compile() takes them */
    const sheaf__stages *stages; /* may be NULL */
} sheaf__runner_options;

typedef struct sheaf__runner_tape { sheaf_batch_images holds; sheaf__tape *tape; } sheaf__runner_tape;

typedef struct sheaf__runner {
    sheaf__model *model;
    const sheaf_data *data; /* on the dry device only asked whether it labels images; may be NULL there */
    sheaf_batch_images holds; /* on the dry device: what a micro-batch holds; an image in every row, unless changed */
    sheaf__runner_options options;
    sheaf_batch batch;      /* on the device, so that the planner sees it */
    sheaf__rows_in in;
    sheaf__images_in images;
    sheaf__step_info info;  /* of the tokens; of the caller to fill */
    sheaf__row_kinds kinds;
    sheaf__head_run head;   /* of the caller, but for the labels */
    sheaf__runner_tape *tape;
    int ntapes;
    sheaf__tape *last;      /* the one that ran last */
} sheaf__runner;

/* sheaf__runner_open - `out` stays where it is: tapes point into it. Release it also after a failure. */
sheaf_status *sheaf__runner_open(sheaf__runner *out, sheaf__model *model, const sheaf_data *data,
                                 const sheaf__runner_options *options);
/* sheaf__runner_run - rows `row[0..rows)` of the data set (-1: padding); row NULL on dry. Collective. */
sheaf_status *sheaf__runner_run(sheaf__runner *runner, const int64_t *row);
void sheaf__runner_release(sheaf__runner *runner);

#endif
