/* run.h - what the files of a run share: train.c is the whole of it, run_state.c is what its
 * checkpoints hold and how a run goes on from one, loop.c takes the steps. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>

#include "checkpoint/store/checkpoint.h"
#include "models/open.h"
#include "train/origin.h"
#include "train/out_folder.h"
#include "train/rank.h"
#include "train/usage.h"
#include "train/train.h"

/* What the ranks of one run share; only `result` is written, by rank 0. */
typedef struct sheaf__run {
    sheaf_comm *all; /* its processes; NULL: this one is alone */
    const sheaf_train_options *options;
    const sheaf_train_hooks *hooks;
    const char *settings;
    sheaf__job job;
    int contract;
    const sheaf__opened *opened;
    size_t footprint[SHEAF_MAX_SLICES]; /* of each rank's device; 0: not known, or not to be held */
    sheaf__origin origin;
    char *origin_text; /* by rank 0, before the others go on */
    sheaf_train_result *result;
    double began;         /* by sheaf__seconds() */
    atomic_int interrupt; /* an evaluation that is under way ends */
    sheaf__out_folder folder;
} sheaf__run;

/* What the evaluations of a run have said so far: which step was best, and how long ago.
 * It is the same on every rank and part of a checkpoint, so that a run which goes on stops where
 * one that was never stopped does. All zero: nothing was evaluated yet. */
typedef struct sheaf__eval_state {
    int64_t last; /* step of the last evaluation that was due */
    int64_t best; /* of the lowest loss, the first of equal ones; 0: none was finite */
    double best_loss;
    int64_t worse; /* evaluations, the last included, since one that was clearly better */
} sheaf__eval_state;

/* sheaf__eval_state_add - an evaluation after `step`; true where its loss is the lowest so far.
 * Clearly better is lower than the best by more than min_delta, as in transformers'
 * EarlyStoppingCallback; a loss that is not finite is neither. */
bool sheaf__eval_state_add(sheaf__eval_state *evals, int64_t step, double loss, double min_delta);
/* sheaf__eval_state_text - for the progress of a checkpoint: a JSON object. */
void sheaf__eval_state_text(sheaf_text *text, const sheaf__eval_state *evals);
/* sheaf__eval_state_write - OUT/best.json, outside of the checkpoints: {"step": 20,
 * "eval_loss": 1.5, "checkpoint": "checkpoints/step-00000020"}; without a best step none is there
 * afterwards. */
sheaf_status *sheaf__eval_state_write(const sheaf__eval_state *evals, const char *out);
/* sheaf__eval_state_read - of that object; NULL: nothing was evaluated yet. */
void sheaf__eval_state_read(sheaf__eval_state *out, const json_t *object);

/* One rank's view of the state that checkpoints hold. */
typedef struct sheaf__run_state {
    const sheaf__scaler *scaler;       /* the rank's */
    const sheaf__trained_set *trained; /* the rank's */
    sheaf_state state;
    sheaf_state_tensor *tensor;
    char **name; /* owned */
    sheaf__eval_state evals;
    sheaf__usage usage; /* what the rank has spent; no part of a checkpoint */
    sheaf__slow slow;   /* which rank the others wait for: the first rank's */
} sheaf__run_state;

/* sheaf__run_state_init - `rank` is borrowed. Release also after a failure. */
sheaf_status *sheaf__run_state_init(sheaf__run_state *saved, const sheaf__rank *rank,
                                    const sheaf_train_options *options, int contract);
void sheaf__run_state_release(sheaf__run_state *saved);
/* sheaf__run_state_write - a checkpoint after `done` steps. Collective. Errors: those of
 * sheaf_checkpoints_save(); SHEAF_E_NUMBER for weights that are not finite, of which none is saved
 * or takes the place of others. */
sheaf_status *sheaf__run_state_write(sheaf__run *run, sheaf_checkpoints *store, sheaf_comm *comm,
                                     sheaf__run_state *saved, int64_t done);
/* sheaf__run_state_eval_hash - of data for evaluations that have a file of their own; else NULL. */
const char *sheaf__run_state_eval_hash(const sheaf__run *run);

/* sheaf__resume_from - loads the newest checkpoint, which must be one of this run; *from NULL:
 * there is none yet. Collective. */
sheaf_status *sheaf__resume_from(sheaf_checkpoint **from, sheaf__run *run, sheaf_checkpoints *store,
                                 sheaf_comm *comm, sheaf__rank *rank, sheaf__run_state *saved);
/* sheaf__resume_check_base - where there is no checkpoint to go on from: is the base the one that
 * OUT's run.json remembers? */
sheaf_status *sheaf__resume_check_base(const sheaf__run *run);

/* sheaf__loop - the steps that are left, evaluations, and a checkpoint at the end. Collective.
 * Errors: SHEAF_E_STOPPED, and those of a step. */
sheaf_status *sheaf__loop(sheaf__run *run, sheaf__rank *rank, sheaf_checkpoints *store,
                          sheaf_comm *comm, sheaf__run_state *saved, int64_t done);
