/* reward_model.h - a reward model among the rewards: its scores of prompts with completions, as
 * `sheaf eval` gives them to such records, in the dtype and slices of the run. */
#pragma once

#include "data/rollout.h"
#include "data/text_sources.h"
#include "library/run_model.h"
#include "train/evaluate.h"
#include "train/sampler.h"

typedef struct sheaf__reward_model {
    const char *path; /* borrowed, as given */
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__text_sources texts;
    int64_t most; /* positions of a row */
} sheaf__reward_model;

/* sheaf__reward_model_open - the folder of a model, of an adapter, or of a run, without the
 * weights. Release also after a failure. Errors: SHEAF_E_ARG for one that gives no scores, and
 * those of opening a model. */
sheaf_status *sheaf__reward_model_open(sheaf__reward_model *out, const char *path,
                                       const sheaf_train_options *options, bool plans,
                                       const sheaf_events *events);
/* sheaf__reward_model_read - opens what the prompts need, and takes their lengths.
 *   of     [n] with any completion
 *   most   tokens that a completion has more, as the run counts them */
sheaf_status *sheaf__reward_model_read(sheaf__judge *out, sheaf__reward_model *m,
                                       const sheaf__to_score *of, int64_t n, int64_t most,
                                       const char *date, const sheaf_events *events);
/* sheaf__reward_model_score - out[n]. Collective. Errors: SHEAF_E_DATA for a completion that is too
 * long. */
sheaf_status *sheaf__reward_model_score(double *out, const sheaf__reward_model *m,
                                        sheaf__model *model, const sheaf__to_score *of, int64_t n,
                                        const sheaf__evaluate_options *how);
void sheaf__reward_model_release(sheaf__reward_model *m);
