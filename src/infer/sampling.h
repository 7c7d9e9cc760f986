/* sampling.h - samples the next token from a row of logits.
 *
 * In the order of transformers' logits processors: repetition penalty,
 * temperature, top-k, top-p, softmax, draw; the penalty also applies when greedy, the others do
 * not. The result is a function of the row, the ids and the numbers below alone: sums run in one
 * fixed order on one thread, and the random number is counter-based, so all ranks that hold the
 * same row pick the same token. */
#pragma once

#include "base/base.h"
#include "ops/kernels.h"

/* Zero in any field skips that step. */
typedef struct sheaf__sampling {
    bool greedy;
    bool sat; /* SwissArmyTransformer's order instead (base_strategy.py): logits are divided by
                 temperature * penalty (also those below 0), only new tokens are penalised, top-p
                 applies only with top-k, and keeps ids while the mass kept so far is at most p */
    float temperature; /* divides the logits, > 0 */
    int64_t top_k;     /* keep the k largest, and all equal to the smallest of them */
    float top_p; /* then the fewest of the largest with a mass of at least p; in (0, 1], 1 keeps
                    all; one always stays */
    float repetition_penalty; /* > 0; 1 changes nothing */
    uint64_t seed;
} sheaf__sampling;

typedef struct sheaf__sampling_room {
    const sheaf__kernels *kernels;
    float *scratch; /* [vocab] */
} sheaf__sampling_room;

/* The purpose of sheaf__random_u32; ASCII "sampling". */
#define SHEAF__PURPOSE_SAMPLING UINT64_C(0x73616d706c696e67)

/* sheaf__sampling_process - the steps before the draw, in place.
 *   logits   [vocab]; removed ids become -inf; all do if one is NaN: the model is broken
 *   scratch  [vocab]
 *   ids      [n] prompt and output so far, without padding (sat: the output alone); each distinct
 *            one gets l > 0 ? l / c : l * c once; ids outside [0, vocab) are ignored
 * Of equal logits at the edge of top-p those with the larger id stay (the stable
 * ascending sort of the reference removes smaller ids first). */
void sheaf__sampling_process(float *logits, int64_t vocab, const int64_t *ids, int64_t n,
                             const sheaf__sampling *how, float *scratch);

/* sheaf__sampling_log_sum - the log of the sum of exp(logit), less the largest logit, in *max: in
 * float32, 16 lanes; no logit is NaN. The log of an id's probability is
 * logits[id] - max - this. */
float sheaf__sampling_log_sum(float *max, const float *logits, int64_t vocab,
                              const sheaf__kernels *kernels);
/* sheaf__sampling_logprob - the log of the probability of `id` as training computes it
 * (tape/head.h): the same bits. slices: of the model; temperature: divides the logits. */
float sheaf__sampling_logprob(const float *logits, int64_t vocab, int64_t id, int slices,
                              double temperature, const sheaf__sampling_room *room);
/* sheaf__sampling_best - the `best` largest, descending, of equals the smaller id first; no logit
 * is NaN, best <= vocab. */
void sheaf__sampling_best(int32_t *ids, int64_t best, const float *logits, int64_t vocab);

/* sheaf__sampling_greedy - the first index of the maximum; -1 if all are -inf. */
int64_t sheaf__sampling_greedy(const float *logits, int64_t vocab);

/* sheaf__sampling_draw - id i with probability exp(logits[i]) / sum: the first whose sum over
 * ids 0..i exceeds u / 2^32 of the whole, in double. -1 as above. */
int64_t sheaf__sampling_draw(const float *logits, int64_t vocab, uint32_t u,
                             const sheaf__sampling_room *room);

/* sheaf__sampling_next - all steps: the next id of sequence `sample` (its number in the whole run),
 * which has `step` new tokens so far. The random number is sheaf__random_u32(seed,
 * SHEAF__PURPOSE_SAMPLING, 0, sample, step, 0). Returns -1 when a logit is NaN or none is above
 * -inf: the model is broken. */
int64_t sheaf__sampling_next(float *logits, int64_t vocab, const int64_t *ids, int64_t n,
                             const sheaf__sampling *how, uint64_t sample, uint64_t step,
                             const sheaf__sampling_room *room);
