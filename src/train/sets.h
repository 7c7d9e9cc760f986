/* sets.h - the rows that a run trains on, and those of its evaluations. */
#pragma once

#include <stdatomic.h>

#include "data/data.h"
#include "train/options.h"

/* Rows of a data set: all, or some. */
typedef struct sheaf__subset {
    const sheaf_data *data; /* NULL: none, or not known (planning) */
    const int64_t *row;     /* [rows] their numbers, ascending; NULL: all */
    int64_t rows;           /* read only with `row` */
} sheaf__subset;

int64_t sheaf__subset_rows(const sheaf__subset *subset);
/* sheaf__subset_row - the row of global sample number `index`, like sheaf_data_sample_of() for all
 * rows: each epoch visits each row of the subset once. */
int64_t sheaf__subset_row(const sheaf__subset *subset, int64_t index, uint64_t seed, bool shuffle);
/* sheaf__subset_longest - positions of its longest row. */
int64_t sheaf__subset_longest(const sheaf__subset *subset);

typedef struct sheaf__sets {
    sheaf_data *data, *eval_data; /* the data sets; the second NULL without --eval-data */
    sheaf_data *packed;           /* with --pack: the training data in packed rows; else NULL */
    sheaf__subset train, eval;    /* eval.data NULL: no evaluation */
    int64_t *held;                /* row numbers of both, if one data set was split */
    int64_t sampler;              /* bytes of the sampler */
    sheaf__objective objective;
} sheaf__sets;

/* sheaf__objective_keeps - may both sides of pairs be kept (SHEAF__KEPT_PAIRS)? */
bool sheaf__objective_keeps(const sheaf__objective *objective, const sheaf_train_options *o);
/* sheaf__objective_check - settings that cannot go with preferences. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__objective_check(const sheaf__objective *objective,
                                     const sheaf_train_options *options);
/* sheaf__sets_open - reads --data and --eval-data, or holds out --eval-split of the rows: the first
 * ceil(share * n) of the permutation of n rows by (seed xor "held"), epoch 0. With --pack the
 * training rows are packed; evaluation rows never are. Sets --steps of --epochs; where these are
 * fewer than SHEAF__SENSIBLE_STEPS, lowers what the options say yields. Release also after a
 * failure.
 *   stop  not 0: SHEAF_E_STOPPED; may be NULL
 * Errors: those of sheaf_data_open(); SHEAF_E_DATA if one of the two subsets is empty or has no
 * label. */
sheaf_status *sheaf__sets_open(sheaf__sets *out, sheaf_train_options *options,
                               const sheaf_config *config, const sheaf_events *events,
                               const atomic_int *stop);
/* sheaf__reference_check_data - SHEAF_E_ARG for a reference beside data that have their own. */
sheaf_status *sheaf__reference_check_data(const char *reference, const sheaf_data *data);
/* sheaf__sets_sample - the same of a run that samples its completions: `train` has prompts. sampler
 * NULL: of a plan without data, only checks. */
struct sheaf__sampler;
sheaf_status *sheaf__sets_sample(sheaf__sets *out, sheaf_train_options *options,
                                 const sheaf_config *config, const struct sheaf__sampler *sampler,
                                 const sheaf_events *events);
/* sheaf__sets_samples - does a run sample its completions? */
bool sheaf__sets_samples(const sheaf_train_options *options);
/* sheaf__sets_generations - completions of each prompt. */
int64_t sheaf__sets_generations(const sheaf_train_options *options);
/* sheaf__sets_seq - most positions of a row to train on, completions included. */
int64_t sheaf__sets_seq(const sheaf__sets *sets, const sheaf_train_options *options);
void sheaf__sets_close(sheaf__sets *sets);
/* sheaf__sets_memory - memory in bytes. */
enum { SHEAF__SENSIBLE_STEPS = 20 };
int64_t sheaf__sets_memory(const sheaf__sets *sets);
/* sheaf__subset_steps - --steps, or with --epochs the fewest steps that read the training rows that
 * many times: a step may span two epochs. */
int64_t sheaf__subset_steps(const sheaf__subset *train, const sheaf_train_options *options);
/* sheaf__subset_times - how often steps read a training row in an epoch: completions of a prompt *
 * steps that learn from each. */
int64_t sheaf__subset_times(const sheaf_train_options *options);
/* sheaf__subset_padding - share of padding in the positions of `samples` samples (0: of an epoch).
 */
double sheaf__subset_padding(const sheaf__subset *subset, const sheaf_train_options *options,
                             int64_t samples);
