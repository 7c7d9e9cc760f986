/* runner.h - runs micro-batches of a data set through a model: buffers, and compiled tapes for the
 * last few shapes (positions and images). */
#pragma once

#include "models/model.h"
#include "data/data.h"
#include "train/row_kinds.h"

typedef struct sheaf__runner_options {
    int64_t rows, seq; /* of a micro-batch; seq: most positions of a row */
    bool longest;      /* rows are as long as the longest of their micro-batch; else as seq */
    bool backward;
    sheaf__kept kept;
    bool plans; /* nothing is computed: no pictures are read, and rows only as numbers */
    const sheaf__noise_in *noise; /* may be NULL */
    const sheaf__stages *stages;  /* of all ranks or of none; may be NULL */
    const sheaf_batch_images
        *each; /* of a plan without data: images of each row; NULL: one, at the towers' own size */
    const sheaf__kv_cache *kv_cache; /* cache for keys and values of prompts; else NULL */
} sheaf__runner_options;

/* Recording takes less than a thousandth of a step; the cache is for shapes that recur. */
enum { SHEAF__RUNNER_TAPES = 8 };
/* Parts of a batch on both sides, but its pixels. */
enum {
    SHEAF__RUNNER_TOKENS,
    SHEAF__RUNNER_LABELS,
    SHEAF__RUNNER_POSITIONS,
    SHEAF__RUNNER_MASK,
    SHEAF__RUNNER_SEGMENTS,
    SHEAF__RUNNER_IMAGE_ROWS,
    SHEAF__RUNNER_STREAMS,
    SHEAF__RUNNER_INPUTS = SHEAF__RUNNER_STREAMS + 2
};
typedef struct sheaf__runner_tape {
    sheaf_batch_images holds;
    sheaf__tape *tape;
} sheaf__runner_tape;

typedef struct sheaf__runner {
    sheaf__model *model;
    /* of a plan only its kind of labels is read; may be NULL there */
    const sheaf_data *data;
    sheaf_batch_images holds; /* of a plan: content of a micro-batch; by default whole rows
                                 with an image each */
    sheaf__runner_options options;
    sheaf__picture_counts room; /* that there is room for */
    sheaf_batch batch;          /* the host's sides of its inputs */
    sheaf__mirror input[SHEAF__RUNNER_INPUTS];
    float *pixels[SHEAF__MOST_TOWERS]; /* of its images, by tower; the host's */
    sheaf__rows_in in;
    sheaf__images_in images;
    sheaf__step_info info; /* of the tokens; set by the caller */
    sheaf__row_kinds kinds;
    sheaf__head_run head;                         /* set by the caller, except for labels */
    sheaf__runner_tape tape[SHEAF__RUNNER_TAPES]; /* the one that ran last comes first */
    int ntapes;
    sheaf__tape *last;       /* that one */
    const int64_t *other;    /* as sheaf_batch has it; set by the caller */
    double reading;          /* seconds in which rows and images were read, so far */
    sheaf__nonfinite *watch; /* records numbers that are not finite; NULL: nothing does */
} sheaf__runner;

/* sheaf__runner_open - `out` must not move: tapes point into it. Release it also after a failure.
 */
sheaf_status *sheaf__runner_open(sheaf__runner *out, sheaf__model *model, const sheaf_data *data,
                                 const sheaf__runner_options *options);
/* sheaf__runner_holds - content of the micro-batch of these rows; row NULL, of a plan:
 * runner->holds.
 */
sheaf_batch_images sheaf__runner_holds(const sheaf__runner *runner, const int64_t *row);
/* sheaf__runner_run - rows `row[0..rows)` of the data set (-1: padding); row NULL, of a plan:
 * content runner->holds, tokens unknown. Collective. */
sheaf_status *sheaf__runner_run(sheaf__runner *runner, const int64_t *row);
/* sheaf__runner_prepare - the run of such content, whose space elsewhere (tape/tape.h) is claimed.
 */
sheaf_status *sheaf__runner_prepare(sheaf__runner *runner, sheaf_batch_images holds);
void sheaf__runner_release(sheaf__runner *runner);
