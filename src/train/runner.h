/* runner.h - micro-batches of a data set on their way through a model: buffers, and compiled tapes
 * for the last few shapes (positions and images) that occurred. */
#pragma once

#include "models/model.h"
#include "data/data.h"
#include "train/row_kinds.h"

typedef struct sheaf__runner_options {
    int64_t rows, seq;    /* of a micro-batch; seq is the most positions of a row */
    bool longest;         /* rows are as long as the longest of their micro-batch; else as seq */
    bool backward, rerun; /* as sheaf__tape_compile() takes them */
    const sheaf__noise_in *noise;   /* may be NULL */
    const sheaf__stages *stages;    /* may be NULL */
    const sheaf_batch_images *each; /* on dry, without data: images of each row; NULL: one, of the
                                       towers' own size */
    const sheaf__kv_cache
        *kv_cache; /* of prompts that are read: where keys and values go; else NULL */
} sheaf__runner_options;

/* One is recorded in less than a thousandth of the time that a step takes; kept are those that come
 * again and again. */
enum { SHEAF__RUNNER_TAPES = 8 };
typedef struct sheaf__runner_tape {
    sheaf_batch_images holds;
    sheaf__tape *tape;
} sheaf__runner_tape;

typedef struct sheaf__runner {
    sheaf__model *model;
    /* on the dry device only asked whether it labels images; may be NULL there */
    const sheaf_data *data;
    sheaf_batch_images holds; /* on the dry device: what a micro-batch holds; whole rows, an image
                                 in every one, unless changed */
    sheaf__runner_options options;
    sheaf_batch_images room; /* images and patches that there is room for */
    sheaf_batch batch; /* on the device, so that the planner sees it; the list of images is not */
    float *pixels[SHEAF__MOST_TOWERS]; /* of its images, by tower */
    sheaf__rows_in in;
    sheaf__images_in images;
    sheaf__step_info info; /* of the tokens; of the caller to fill */
    sheaf__row_kinds kinds;
    sheaf__head_run head;                         /* of the caller, but for the labels */
    sheaf__runner_tape tape[SHEAF__RUNNER_TAPES]; /* the one that ran last comes first */
    int ntapes;
    sheaf__tape *last; /* that one */
    int32_t *known;    /* on the dry device: tokens and labels of the rows that it was given */
    double reading;    /* seconds in which rows and images were read, so far */
    sheaf__bad *watch; /* where a run says what was not finite; NULL: it is not looked for */
} sheaf__runner;

/* sheaf__runner_open - `out` stays where it is: tapes point into it. Release it also after a
 * failure. */
sheaf_status *sheaf__runner_open(sheaf__runner *out, sheaf__model *model, const sheaf_data *data,
                                 const sheaf__runner_options *options);
/* sheaf__runner_holds - what these rows hold as they are run; row NULL on dry: runner->holds. */
sheaf_batch_images sheaf__runner_holds(const sheaf__runner *runner, const int64_t *row);
/* sheaf__runner_run - rows `row[0..rows)` of the data set (-1: padding); row NULL on dry: what a
 * micro-batch holds, its tokens unknown.
 * Collective. */
sheaf_status *sheaf__runner_run(sheaf__runner *runner, const int64_t *row);
void sheaf__runner_release(sheaf__runner *runner);
