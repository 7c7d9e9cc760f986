/* sampler.h - who answers the prompts of a run that learns from rewards, and judges the answers:
 * train knows neither the engine of infer nor programs that give rewards. */
#pragma once

#include "data/data.h"
#include "models/model.h"
#include "models/open.h"
#include "train/options.h"

/* Completions that each group of ranks makes together, at most; reward models of a run. */
enum { SHEAF__SAMPLED_TOGETHER = 64, SHEAF__MOST_JUDGES = 8 };

/* A reward model, which each rank loads beside the run's. */
typedef struct sheaf__judge {
    const sheaf__opened *opened;
    int64_t seq, positions; /* of a row: as the run counts tokens; at most. 0: not known */
} sheaf__judge;

/* The completions of a batch: `count` prompts, `each` times. */
typedef struct sheaf__sampler_batch {
    int set;               /* of those that were opened: 1: that of evaluations */
    bool greedy;           /* the most probable tokens, in place of drawn ones */
    const int64_t *prompt; /* [count] their rows */
    int64_t count, each;
    int64_t first;              /* number of the first completion in the run */
    int64_t group;              /* number of the first prompt in the run */
    int64_t step;               /* the first that learns from them, from 1 */
    sheaf__model *const *judge; /* [judges] reward models */
} sheaf__sampler_batch;

typedef struct sheaf__sampler {
    void *self;
    int judges;
    sheaf__judge judge[SHEAF__MOST_JUDGES]; /* once it is open */
    /* Reads the prompts, as rows without labels: those to train on, and those of `eval-data`;
     * *bytes: memory that the sampler holds beside them. Of what is not given, in a plan also of
     * the first, out[] stays as it is. It may be opened again. */
    sheaf_status *(*open)(void *self, sheaf_data *out[2], int64_t *bytes,
                          const sheaf_train_options *options, const sheaf_config *config,
                          const sheaf_events *events);
    /* Collective, by all ranks of all groups; the first has *text (malloc'd), a line for each
     * completion as rollout_log.h has it, for others it is NULL. */
    sheaf_status *(*sample)(void *self, char **text, sheaf__model *model,
                            const sheaf__sampler_batch *batch);
} sheaf__sampler;
