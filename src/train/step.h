/* step.h - one optimizer step: micro-batches forward and backward, gradient norm,
 * clipping, AdamW. On the dry device the same code is the memory planner. */
#pragma once

#include "models/model.h"
#include "train/pairs.h"
#include "train/rollouts.h"
#include "train/runner.h"
#include "train/sampler.h"
#include "train/scaler.h"
#include "train/sets.h"

/* Pointers are borrowed. */
typedef struct sheaf__step_options {
    const sheaf_train_options *run;
    int64_t seq;                    /* most positions of a row, */
    int64_t mixed;                  /* and of one with another's answer; 0: there are none */
    const sheaf_batch_images *each; /* as in sheaf__runner_options */
    int accumulators;               /* G of docs/contract.md, section 1.6; groups divide it */
    sheaf__scaler *scaler;          /* NULL: losses are not scaled */
    bool plans;                     /* as in sheaf__runner_options */
    const sheaf__objective *objective;
    const sheaf__sampler
        *sampler;               /* `subset` has prompts, whose completions are sampled; or NULL */
    sheaf__model *const *judge; /* its reward models */
} sheaf__step_options;

typedef struct sheaf__step_result {
    double loss, grad_norm;  /* the norm before clipping */
    int64_t labels, tokens;  /* label tokens; tokens with mask 1 */
    int64_t samples, chosen; /* of pairs: how many, and label tokens of the chosen answers */
    sheaf__pair_sums sums;   /* of pairs: over all of them */
    double scale;            /* of the loss; 0: none */
    bool skipped;            /* its gradients overflowed: only the scale has changed */
} sheaf__step_result;

typedef struct sheaf__stepper sheaf__stepper;

/* sheaf__stepper_new - records the tape and allocates the buffers of a batch. Not collective.
 * subset->data may be NULL for a plan, which reads no rows. */
sheaf_status *sheaf__stepper_new(sheaf__stepper **out, sheaf__model *model,
                                 const sheaf__subset *subset, const sheaf__step_options *options);
void sheaf__stepper_free(sheaf__stepper *stepper);
/* sheaf__stepper_refer - the reference's sums; borrowed. */
void sheaf__stepper_refer(sheaf__stepper *stepper, sheaf__references reference);
/* sheaf__stepper_batch - of an objective that learns from rewards: its completions; else NULL. */
sheaf__batch *sheaf__stepper_batch(sheaf__stepper *stepper);
/* sheaf__stepper_hold - of a plan: sets the content of every micro-batch of later steps. */
void sheaf__stepper_hold(sheaf__stepper *stepper, sheaf_batch_images holds);
/* sheaf__stepper_follow - of a plan: later steps read their rows, like those of a run, so
 * that exchanges are counted exactly. Requires data. */
void sheaf__stepper_follow(sheaf__stepper *stepper);
/* sheaf__stepper_reading - seconds spent reading rows and images so far. */
double sheaf__stepper_reading(const sheaf__stepper *stepper);
/* sheaf__stepper_run - step number `done` (steps done before, from 0) with learning rate lr.
 * Collective. Errors: SHEAF_E_NUMBER when a loss is not finite, or the norm and scaling does not
 * explain it (names the micro-batch and its rows, the layer, op and value where it began, and a
 * weight that is not finite; masters and moments are untouched), SHEAF_E_MEMORY, SHEAF_E_PEER. */
sheaf_status *sheaf__stepper_run(sheaf__step_result *out, sheaf__stepper *stepper, int64_t done,
                                 double lr);
