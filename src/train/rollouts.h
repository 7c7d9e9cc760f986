/* rollouts.h - the completions that a step learns from rewards: their advantages, and what they are
 * compared with (groups.h).
 *
 * A batch of completions, micro-batches * rows of them in order, serves `iterations` steps. Before
 * its first, forward passes make the log-probabilities of its tokens: under the model as it is,
 * where several steps need them, and under the reference, whose trained tensors change places with
 * the model's meanwhile. A row's pass depends on nothing but the row, so what groups of ranks do
 * not share they do not need. What several steps need is in the run's log (rollout_log.h) before
 * the first of them. */
#pragma once

#include "train/pairs.h"
#include "train/rollout_log.h"
#include "train/sampler.h"

typedef struct sheaf__batch {
    const sheaf__group_loss *of;
    sheaf__model *model;
    int64_t micros, n, stride; /* micro-batches, rows of each, most tokens of a row */
    int64_t number;            /* of the batch at hand, from 0; -1: none */
    double *reward, *advantage, *kl;
    int64_t *group, *labels; /* [rows] labels: 0 where a truncated row is left out */
    uint8_t *ended;
    float *old, *reference;  /* [rows, stride] of each label; old: where `seen` */
    uint8_t *seen;           /* [rows] */
    double *weight;          /* [stride] */
    float *lp;               /* [stride] */
    sheaf__rollout_log *log; /* borrowed; NULL: not the first rank, or nothing is kept */
    float *start;            /* the reference's trained tensors, the device's; NULL: none */
    int64_t tokens;
    int64_t weighed, passed; /* rows of the pass at hand that have all weights; their labels */
    sheaf__group_sums rewards;
} sheaf__batch;

/* sheaf__batch_open - stride: most positions of a row; 0: of a plan that reads none. Release also
 * after a failure. */
sheaf_status *sheaf__batch_open(sheaf__batch *out, sheaf__model *model,
                                const sheaf__objective *objective, int64_t micros, int64_t n,
                                int64_t stride);
void sheaf__batch_release(sheaf__batch *batch);
/* sheaf__batch_refer - the model as it is now becomes the reference. */
void sheaf__batch_refer(sheaf__batch *batch);
/* sheaf__batch_draw - completions of batch `number` as rows, of `prompts`, whose pictures they
 * read: of the log, or else sampled, and put there. Collective. */
sheaf_status *sheaf__batch_draw(sheaf_data **out, sheaf__batch *batch,
                                const sheaf__sampler *sampler, const sheaf_data *prompts,
                                const sheaf__sampler_batch *what, int64_t number);
/* sheaf__batch_evaluate - the rewards of the most probable answers to the prompts of `eval`. The
 * loss is less their mean: NaN where none has one; tokens: how many prompts. Collective. what  set,
 * step, judge how   stop and events are read */
sheaf_status *sheaf__batch_evaluate(sheaf__evaluation *out, sheaf__group_sums *sums,
                                    const sheaf__batch *batch, const sheaf__sampler *sampler,
                                    const sheaf__sampler_batch *what, const sheaf__subset *eval,
                                    const sheaf__evaluate_options *how);
/* sheaf__batch_begin - batch `number`: `row` has the data's rows of all micro-batches; NULL: of a
 * plan. own: micro-batches [begin, end) of each group of ranks. Collective. */
sheaf_status *sheaf__batch_begin(sheaf__batch *batch, sheaf__pairs *pairs, int64_t number,
                                 const int64_t *row, const sheaf_range *own);
/* sheaf__batch_weigh - once `known` losses of a micro-batch, those of its first labels, are in
 * pairs->each: pairs->weight[0] of these, as far as an earlier call did not weigh their rows, and
 * `out` of the rows that have all. Before the first call of a pass `weighed` and `passed` are 0.
 * seq: positions of a row. scale: of the loss. */
void sheaf__batch_weigh(sheaf__pair_sums *out, sheaf__batch *batch, sheaf__pairs *pairs,
                        int64_t micro, int64_t seq, double scale, int64_t known);
