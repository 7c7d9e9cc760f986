/* sampler.h - the engine of infer and the rewards as a run's sampler (train/sampler.h). */
#pragma once

#include "infer/prompts.h"
#include "library/reward.h"
#include "library/reward_model.h"

typedef struct sheaf__run_sampler {
    sheaf__sampler sampler; /* of train, whose self is this */
    sheaf__codec codec;
    sheaf__prompts prompts[2]; /* to train on, of evaluations */
    sheaf__rewards rewards;
    sheaf__reward_model *judge; /* [sampler.judges] */
    bool plans;
    const sheaf_train_options *options;
    const atomic_int *stop[2]; /* as of its rewards */
} sheaf__run_sampler;

/* sheaf__run_sampler_begin - `out` must not move. plans: weights are not needed. stop, enough: not
 * 0: a program that gives rewards is killed, SHEAF_E_STOPPED; each may be NULL. Close it also if it
 * was not used. */
void sheaf__run_sampler_begin(sheaf__run_sampler *out, bool plans, const atomic_int *stop,
                              const atomic_int *enough);
void sheaf__run_sampler_close(sheaf__run_sampler *sampler);
