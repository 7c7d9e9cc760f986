/* run.h - shared by the files of a run: train.c has the whole run, run_state.c saves and resumes
 * checkpoints, loop.c takes the steps. */
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

/* Shared by the ranks of one run; only `result` is written, by rank 0. */
typedef struct sheaf__run {
    sheaf_comm *all; /* its processes; NULL: this one is alone */
    const sheaf_train_options *options;
    const sheaf_train_hooks *hooks;
    const char *settings, *recipe; /* of sheaf_train() */
    sheaf__job job;
    const sheaf__opened *opened;
    size_t footprint[SHEAF_MAX_SLICES]; /* of each rank's device; 0: not known, or not reserved */
    sheaf__origin origin;
    char *origin_text; /* set by rank 0 before the others continue */
    sheaf_train_result *result;
    double began;         /* by sheaf__seconds() */
    atomic_int interrupt; /* ends a running evaluation */
    sheaf__out_folder folder;
} sheaf__run;

/* Results of the evaluations so far: the best step, and how long ago it was. The same on every rank
 * and part of a checkpoint, so that a resumed run ends at the same step as an uninterrupted one.
 * All zero: nothing was evaluated yet. */
typedef struct sheaf__eval_state {
    int64_t last; /* step of the last evaluation that was due */
    int64_t best; /* of the lowest loss, the first of equal ones; 0: none was finite */
    double best_loss;
    int64_t worse; /* evaluations, the last included, since one that was clearly better */
} sheaf__eval_state;

/* sheaf__eval_state_add - adds an evaluation after `step`; true if its loss is the lowest so far.
 * Clearly better is lower than the best by more than min_delta, as in transformers'
 * EarlyStoppingCallback; a loss that is not finite is neither. */
bool sheaf__eval_state_add(sheaf__eval_state *evals, int64_t step, double loss, double min_delta);
/* sheaf__eval_state_text - for the progress of a checkpoint: a JSON object. */
void sheaf__eval_state_text(sheaf_text *text, const sheaf__eval_state *evals);
/* sheaf__eval_state_write - OUT/best.json, outside of the checkpoints: {"step": 20,
 * "eval_loss": 1.5, "checkpoint": "checkpoints/step-00000020"}; removed if there is no best step.
 */
sheaf_status *sheaf__eval_state_write(const sheaf__eval_state *evals, const char *out);
/* sheaf__eval_state_read - reads that object; NULL: nothing was evaluated yet. */
void sheaf__eval_state_read(sheaf__eval_state *out, const json_t *object);

/* One rank's view of the state that checkpoints hold. */
typedef struct sheaf__run_state {
    const sheaf__scaler *scaler;       /* the rank's */
    const sheaf__trained_set *trained; /* the rank's */
    sheaf_state state;
    sheaf_state_tensor *tensor;
    char **name; /* owned */
    sheaf__eval_state evals;
    sheaf__usage usage; /* of the rank; not part of a checkpoint */
    sheaf__slow slow;   /* finds a rank that others wait for; on the first rank */
} sheaf__run_state;

/* sheaf__run_state_init - `rank` is borrowed. Release also after a failure. */
sheaf_status *sheaf__run_state_init(sheaf__run_state *saved, const sheaf__rank *rank,
                                    const sheaf_train_options *options);
void sheaf__run_state_release(sheaf__run_state *saved);
/* sheaf__run_state_write - saves a checkpoint after `done` steps. Collective. Errors: those of
 * sheaf_checkpoints_save(); SHEAF_E_NUMBER for weights that are not finite: then nothing is saved
 * or replaced. */
sheaf_status *sheaf__run_state_write(sheaf__run *run, sheaf_checkpoints *store, sheaf_comm *comm,
                                     sheaf__run_state *saved, int64_t done);
/* sheaf__run_state_eval_hash - hash of the data of --eval-data; else NULL. */
const char *sheaf__run_state_eval_hash(const sheaf__run *run);

/* sheaf__resume_from - loads the newest checkpoint, which must be one of this run; *from NULL:
 * there is none yet. Collective. */
sheaf_status *sheaf__resume_from(sheaf_checkpoint **from, sheaf__run *run, sheaf_checkpoints *store,
                                 sheaf_comm *comm, sheaf__rank *rank, sheaf__run_state *saved);
/* sheaf__resume_check_base - if there is no checkpoint to resume from: does the base match
 * OUT/run.json? */
sheaf_status *sheaf__resume_check_base(const sheaf__run *run);

/* sheaf__run_events - the run's sink of events, on the first rank: a request to stop ends the pass
 * over data that reports its progress to it (run->interrupt). */
sheaf_events sheaf__run_events(sheaf__run *run);
/* sheaf__loop - runs the remaining steps and evaluations, and saves a checkpoint at the end.
 * Collective. Errors: SHEAF_E_STOPPED, and those of a step. */
sheaf_status *sheaf__loop(sheaf__run *run, sheaf__rank *rank, sheaf_checkpoints *store,
                          sheaf_comm *comm, sheaf__run_state *saved, int64_t done);
