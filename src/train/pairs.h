/* pairs.h - a micro-batch of pairs, or of answers that are desirable or not: what their tokens
 * count in the loss (objective.h).
 *
 * A pair's loss needs the log-probabilities of both answers before either has a gradient. A forward
 * pass of the rejected ones, without a tape, gives theirs; the training pass of the chosen ones
 * gives the others, before its gradients (sheaf__head_run.weigh); the rejected ones' training pass
 * follows. So a step holds what one of supervised training holds, and as a row's forward pass
 * depends on nothing but the row, both passes see the same numbers. Where both sides are kept
 * (SHEAF__KEPT_PAIRS), the first is a training pass too, and the chosen ones' runs within it:
 * gradients come in the same order. */
#pragma once

#include "train/evaluate.h"
#include "train/objective.h"
#include "train/sets.h"

/* Sums over samples, all double so that groups exchange them as one block. */
typedef struct sheaf__pair_sums {
    double loss;            /* of samples */
    double nll, nll_tokens; /* cross-entropy of the chosen answers' tokens, how many these are */
    /* Of the chosen or desirable answers, and of the others: how many, their rewards, and S or its
     * means. */
    double count[2], reward[2], sum[2];
    double samples;
    double right; /* pairs whose chosen answer has the larger reward */
    /* By micro-batch, of `means`: of kto what its losses are measured from; of reward the least and
     * the largest score. */
    double drift, means, least, most;
    sheaf__group_sums group; /* of completions with rewards */
} sheaf__pair_sums;

/* sheaf__pairs_values - their means, by TRL's names, for an event; returns how many.
 *   evaluated  the accuracy is given beside them */
int sheaf__pairs_values(sheaf_event_value out[SHEAF_EVENT_VALUES],
                        const sheaf__objective *objective, const sheaf__pair_sums *sums,
                        bool evaluated);

/* The reference's S for an objective. NULL: it reads none. */
typedef struct sheaf__references {
    double *row;   /* by row of the data, */
    bool given;    /* which have it themselves */
    double *mixed; /* by sample of the run: its prompt with another one's answer */
} sheaf__references;

typedef struct sheaf__pairs {
    const sheaf__objective *objective;
    sheaf__references reference;      /* borrowed */
    sheaf__runner look;               /* forward alone; of both sides kept, of rejected ones */
    bool both;                        /* sides are kept */
    int64_t n;                        /* samples of a micro-batch */
    int64_t *other;                   /* [n] of kto: rows whose answers stand behind the prompts */
    float *each, *weight[2];          /* [n * seq] of a micro-batch's positions */
    uint8_t *answer;                  /* [n * seq] 1: the position predicts a token of the answer */
    sheaf__pair *pair;                /* [n] */
    double *mean;                     /* [n, 4] with weighting, by side: of an answer's tokens, and
                                         with logits twice as large */
    int64_t seq[2];                   /* by side, of the passes that ran */
    double pair_weight, token_weight; /* of the step: 1 / its pairs, nll / its chosen tokens */
} sheaf__pairs;

/* sheaf__pairs_open - `out` must not move. options: those of the training runner; mixed: as
 * sheaf__step_options has it. Release also after a failure. */
sheaf_status *sheaf__pairs_open(sheaf__pairs *out, sheaf__model *model, const sheaf_data *data,
                                const sheaf__runner_options *options, int64_t mixed,
                                const sheaf__objective *objective);
void sheaf__pairs_release(sheaf__pairs *pairs);
/* sheaf__pairs_look - the forward passes before the first training pass: what runner->each and
 * ->answer of that are, this sets too. row: [2][n] the data's rows by side; NULL: of a plan.
 * sample: number of the first in the run. Collective. */
sheaf_status *sheaf__pairs_look(sheaf__pair_sums *out, sheaf__pairs *pairs,
                                const int64_t *const row[2], int64_t sample);
/* sheaf__pairs_take - of a pass that ran up to its gradients: the sums of its side. */
void sheaf__pairs_take(sheaf__pair_sums *out, sheaf__pairs *pairs, int side,
                       const sheaf_batch *batch, const int64_t *row);
/* sheaf__pairs_weigh - once all sides are taken: weight[0..1]. row: of the first side. */
void sheaf__pairs_weigh(sheaf__pair_sums *out, sheaf__pairs *pairs, const int64_t *row);
/* sheaf__pairs_other - [n] the mismatched answers of a micro-batch: each row has that of the one
 * before, the first that of the last. */
void sheaf__pairs_other(int64_t *out, const int64_t *row, int64_t n);

/* A subset, as the model is now. */
typedef struct sheaf__pair_reading {
    sheaf__model *model;
    const sheaf__subset *subset;
    const sheaf__objective *objective;
    const sheaf_train_options *options;
    const sheaf__evaluate_options *how; /* micro_batch, stop and events are read */
} sheaf__pair_reading;

/* sheaf__pairs_sums - S of the rows of some samples, into out[] by row of the data, NaN for the
 * others. Collective.
 *   samples  of those that a run draws in its order, how many; 0: all of the subset */
sheaf_status *sheaf__pairs_sums(double *out, const sheaf__pair_reading *of, int64_t samples);
/* sheaf__pairs_given - *all: the data have the S of every row by their reference; then out[] by
 * row. Errors: SHEAF_E_DATA if one of several data sets has none. */
sheaf_status *sheaf__pairs_given(bool *all, double *out, const sheaf_data *data);
/* sheaf__pairs_mixed - S of the run's samples [0, samples) with mismatched answers, into out[].
 * Collective. */
sheaf_status *sheaf__pairs_mixed(double *out, const sheaf__pair_reading *of, int64_t samples);
/* sheaf__pairs_evaluate - loss and accuracy of pairs: correct counts pairs whose chosen answer has
 * the larger reward, tokens all pairs. */
sheaf_status *sheaf__pairs_evaluate(sheaf__evaluation *out, sheaf__pair_sums *sums,
                                    const sheaf__pair_reading *of, const double *reference);
