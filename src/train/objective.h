/* objective.h - what a step minimises, as the weights of its answers' log-probabilities.
 *
 * With S the sum of the log-probabilities of an answer's n tokens and R the reference's, r = S - R;
 * c is the chosen answer of a pair, j the rejected one. The loss of a step is the mean over its
 * pairs of a function of these, and of the chosen answers' cross-entropy the mean over its tokens.
 * Its gradient is that of a sum over tokens of weight * cross-entropy (tape/head.h), so that one
 * pass serves all objectives; supervised training is the one whose weights are all 1 / tokens.
 * Formulas: docs/preference.md. All here is double, with base/elementary.h; a weight is rounded to
 * float32 once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sheaf/status.h"
#include "train/groups.h"

/* As flags give them; empty or NULL: the objective's own. */
typedef struct sheaf__objective_options {
    const char *name;                     /* "sft", "dpo", ... */
    const char *loss_type, *loss_weights; /* lists with commas */
    /* Numbers: 0 is the objective's own, below 0: it is 0. */
    double beta;
    double simpo_gamma, cpo_alpha;
    double simpo_alpha;            /* AlphaPO's, of any sign */
    double desirable, undesirable; /* weights of kto's answers */
    bool answers;                  /* of orpo: the cross-entropy is that of answers alone */
    double center;                 /* of reward: what scores away from 0 cost */
    double ld_alpha, discopop_tau; /* share of what lies beyond the shorter answer; of discopop */
    bool weighting;                /* pairs count as much as the model is sure of both answers */
    const char *divergence;        /* from the reference: "reverse_kl", ... */
    double divergence_alpha;       /* of "alpha_divergence" */
    const char *reference;         /* "start", "base", or the folder of a model or an adapter */
    const char *cache;             /* folder where runs share its sums; none: OUT has them */
    sheaf__group_options group;    /* of learning from rewards */
} sheaf__objective_options;

enum { SHEAF__MOST_LOSSES = 8 };

typedef struct sheaf__objective {
    const char *name;
    bool pairs;         /* a sample is a pair of answers, */
    bool judged;        /* or one answer that is desirable or not */
    bool grouped;       /* or a completion with a reward, one of a group's */
    bool mismatched;    /* the sums of prompts with others' answers are read, too */
    bool reference;     /* the reference's sums are read: those of the model as it begins, */
    bool scores;        /* S is the score of a reward model, in place of log-probabilities */
    bool base;          /* or without the adapter that it begins with, */
    const char *folder; /* or those of another model or adapter; borrowed, or NULL */
    const char *cache;  /* as of its options */
    int loss[SHEAF__MOST_LOSSES]; /* rows of its table */
    double share[SHEAF__MOST_LOSSES];
    int losses;
    double beta, smoothing, gamma, ld_alpha, center, tau;
    double weight[2]; /* of desirable answers and of others */
    bool weighting;
    int divergence; /* row of its table */
    double divergence_alpha;
    double nll;   /* share of the chosen answers' cross-entropy, */
    bool prompts; /* and their prompts' */
    sheaf__group_loss group;
} sheaf__objective;

/* sheaf__objective_prefers - does it learn preferences or rewards, whose tokens have weights of
 * their own? */
static inline bool sheaf__objective_prefers(const sheaf__objective *objective)
{
    return objective->pairs || objective->judged || objective->grouped;
}

/* sheaf__objective_sides - rows of a sample, each trained in a pass of its own. */
static inline int sheaf__objective_sides(const sheaf__objective *objective)
{
    return objective->pairs ? 2 : 1;
}

/* sheaf__objective_scores - is it that of a reward model? name: may be NULL. */
static inline bool sheaf__objective_scores(const char *name)
{
    return name != NULL && strcmp(name, "reward") == 0;
}

/* sheaf__objective_read - smoothing: of labels. Errors: SHEAF_E_ARG naming the flag. */
sheaf_status *sheaf__objective_read(sheaf__objective *out, const sheaf__objective_options *options,
                                    double smoothing);

/* One pair: chosen, rejected. */
typedef struct sheaf__pair {
    double sum[2], reference[2];
    int64_t tokens[2];
    double margin;    /* of reward: by which the chosen answer's score is to be larger */
    double certainty; /* with weighting: of both answers the mean over tokens of log p -
                         log(sum over the vocabulary of p^2), added up */
} sheaf__pair;

typedef struct sheaf__pair_loss {
    double loss;
    double slope[2];  /* of the loss by each sum */
    double reward[2]; /* beta * r; of an objective without reference beta * S, or S / n */
    double logp[2];   /* S; of a loss of means without reference S / n */
} sheaf__pair_loss;

/* sheaf__objective_pair - the loss of a pair, without its cross-entropy. */
sheaf__pair_loss sheaf__objective_pair(const sheaf__objective *objective, const sheaf__pair *pair);

/* sheaf__objective_sum - S of an answer whose tokens lose each[0..n) where answer[i] is 1.
 *   shorter  tokens of the shorter answer, with ld_alpha; others beyond it count that share */
double sheaf__objective_sum(const sheaf__objective *objective, const uint8_t *answer,
                            const float *each, int64_t n, int64_t shorter);

/* sheaf__objective_single - of one answer: [0] of sum, reference and tokens is read, and of the
 * result [0] is written.
 *   drift  mean of S - R of the micro-batch's prompts with others' answers, at least 0 */
sheaf__pair_loss sheaf__objective_single(const sheaf__objective *objective, const sheaf__pair *of,
                                         bool desirable, double drift);
