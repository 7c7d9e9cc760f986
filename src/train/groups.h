/* groups.h - learning from rewards: GRPO and its kin, as functions of a completion's tokens.
 *
 * Completions of one prompt are a group; the advantage A of each is its reward beside the others'.
 * With d = lp - old of each token, old its log-probability when it was sampled, the ratio is
 * rho = exp(w): w = d of a token, of `sequence` the mean of d over the completion, of rloo its sum.
 * Formulas: docs/preference.md. All double but log-probabilities, which are the head's float32. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/events.h"
#include "sheaf/status.h"

/* As flags give them; empty or 0: the objective's own. */
typedef struct sheaf__group_options {
    double epsilon, epsilon_high, delta;
    const char *scale_rewards, *level;
    int64_t iterations, max_new;
    double temperature;
    bool mask_truncated, plain_kl, normalize;
    /* Of completions that are sampled: */
    const char *reward, *reward_weights; /* lists with ";" and "," */
    int64_t generations;                 /* completions of each prompt; 0: 8 */
    double top_p, reward_time;           /* seconds that programs have; 0: 60 */
} sheaf__group_options;

typedef enum sheaf__group_scale {
    SHEAF__BY_GROUP,
    SHEAF__BY_BATCH,
    SHEAF__BY_NONE
} sheaf__group_scale;

typedef struct sheaf__group_loss {
    int loss;           /* row of its table */
    bool leave_one_out; /* rloo: a reward beside the mean of the group's others */
    bool sequence;
    sheaf__group_scale scale;
    double beta, low, high, delta; /* delta 0: none */
    double temperature;
    int64_t iterations; /* steps that use one batch of completions */
    int64_t max_new;
    bool mask_truncated, plain_kl, normalize;
} sheaf__group_loss;

/* sheaf__groups_read - name: grpo or rloo; loss_type NULL or empty, beta 0: its own. Errors:
 * SHEAF_E_ARG naming the flag. */
sheaf_status *sheaf__groups_read(sheaf__group_loss *out, const char *name, const char *loss_type,
                                 double beta, const sheaf__group_options *options);

/* sheaf__groups_given - a flag that is given; NULL: none. */
const char *sheaf__groups_given(const sheaf__group_options *options);

/* sheaf__groups_advantages - of n completions.
 *   reward  NaN: none, whose advantage is 0
 *   group   numbers; equal ones are one group
 *   kl      of rloo with beta: sum of old - reference of each; else NULL */
void sheaf__groups_advantages(double *out, const sheaf__group_loss *of, const double *reward,
                              const int64_t *group, const double *kl, int64_t n);

/* Of a step, known before its first pass. */
typedef struct sheaf__group_counts {
    int64_t rows, tokens;             /* of all micro-batches; tokens that count */
    int64_t micro_rows, micro_tokens; /* of this one */
} sheaf__group_counts;

typedef struct sheaf__completion {
    const float *lp, *old, *reference; /* [n]; reference NULL without beta */
    int64_t n;
    double advantage;
} sheaf__completion;

/* Sums over completions, all double so that groups of ranks exchange them as one block. */
typedef struct sheaf__group_sums {
    double rows, tokens, ended;
    double clipped;              /* tokens whose ratio is clipped */
    double off;                  /* tokens whose ratio is not 1 */
    double kl, lp;               /* over tokens */
    double reward, spread, even; /* of a batch: mean, deviation, share of groups without spread */
    double batches;
} sheaf__group_sums;

/* sheaf__groups_weigh - the loss of a completion, its share of the step's. weight[n]: what the
 * cross-entropy of each token counts. Adds to `sums` what its tokens say. */
double sheaf__groups_weigh(double *weight, sheaf__group_sums *sums, const sheaf__group_loss *of,
                           const sheaf__completion *one, const sheaf__group_counts *counts);

/* sheaf__groups_by_token - does a token's weight need no other token's log-probability? */
bool sheaf__groups_by_token(const sheaf__group_loss *of);

/* sheaf__groups_rewards - mean and deviation of a batch's rewards, and groups without spread. */
void sheaf__groups_rewards(sheaf__group_sums *sums, const double *reward, const int64_t *group,
                           int64_t n);
/* sheaf__groups_values - by TRL's names, for an event; returns how many.
 *   evaluated  each prompt was answered once: only what that says */
int sheaf__groups_values(sheaf_event_value out[SHEAF_EVENT_VALUES], const sheaf__group_sums *sums,
                         bool evaluated);
