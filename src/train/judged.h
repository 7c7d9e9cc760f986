/* judged.h - what the evaluations of a run have said so far: which step was best, and how long ago.
 * It is the same on every rank and part of a checkpoint, so that a run which goes on stops where
 * one that was never stopped does. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* All zero: nothing was evaluated yet. */
typedef struct sheaf__judged {
    int64_t last; /* step of the last evaluation that was due */
    int64_t best; /* of the lowest loss, the first of equal ones; 0: none was finite */
    double best_loss;
    int64_t worse; /* evaluations, the last included, since one that was clearly better */
} sheaf__judged;

/* sheaf__judged_add - an evaluation after `step`; true where its loss is the lowest so far. Clearly
 * better is lower than the best by more than min_delta, as in transformers' EarlyStoppingCallback;
 * a loss that is not finite is neither. */
bool sheaf__judged_add(sheaf__judged *judged, int64_t step, double loss, double min_delta);
/* sheaf__judged_text - for the progress of a checkpoint: a JSON object. */
void sheaf__judged_text(sheaf_text *text, const sheaf__judged *judged);
/* sheaf__judged_write - OUT/best.json, outside of the checkpoints: {"step": 20, "eval_loss": 1.5,
 * "checkpoint": "checkpoints/step-00000020"}; without a best step none is there afterwards. */
sheaf_status *sheaf__judged_write(const sheaf__judged *judged, const char *out);
/* sheaf__judged_read - of that object; NULL: nothing was evaluated yet. */
void sheaf__judged_read(sheaf__judged *out, const json_t *object);
