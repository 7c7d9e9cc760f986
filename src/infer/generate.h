/* generate.h - tokens from prompts, with a cache of keys and values.
 *
 * Prompts run together in batches, padded on the left; padding shifts no position,
 * is seen by no query and never counts for the repetition penalty. Every rank
 * samples from the same logits with the same counter-based numbers, so all hold
 * the same tokens at any number of ranks. */
#ifndef SHEAF_INFER_GENERATE_H
#define SHEAF_INFER_GENERATE_H

#include <stdatomic.h>

#include "base/events.h"
#include "infer/sampling.h"
#include "models/model.h"

typedef struct sheaf__continuation {
    int32_t *ids; /* [max_new] of the caller */
    int64_t n;
} sheaf__continuation;

typedef struct sheaf__generate_options {
    sheaf__sampling sampling;
    int64_t max_new;     /* tokens, at least 1 */
    int64_t batch;       /* prompts run together, at least 1 */
    const int64_t *stop; /* ids that end a sequence (they are emitted) */
    int nstop;
    int64_t max_length; /* positions of prompt and answer together; 0 = no limit */
    int64_t number;     /* of the first prompt, for the random numbers of sampling */
    /* The image of a prompt that has `embed` and no picture, over the pixels of `picture`, which
     * has the towers' sizes. Called on every rank that has the towers, those of the first stage, a
     * batch at a time; a failure reaches all ranks. */
    sheaf_status *(*load)(void *self, int64_t prompt, const sheaf__picture *picture);
    /* Hears of every token, on every rank, when out[prompt] has it. May be NULL. */
    void (*told)(void *self, int64_t prompt, const sheaf__continuation *so_far);
    void *self;                 /* of both */
    const atomic_int *stop_now; /* other than 0 on any rank: SHEAF_E_STOPPED, with the tokens so far
                                   in out; NULL on all or none */
    /* Kept from call to call, on each rank its own, for one prompt about one picture: it is filled,
     * and used when it is full. Empty it (full = false) on all ranks for another picture. NULL: the
     * towers run in each call. */
    sheaf__sight *sight;
    const sheaf_events *events;
} sheaf__generate_options;

typedef struct sheaf__prompt {
    const int32_t *ids; /* at least one, each below the vocabulary */
    int64_t n;
    const int32_t *position; /* [n], ascending, at most the index; NULL: 0, 1, ... New tokens go on
                                from the last */
    /* Of a prompt with images (all NULL without; a model with a second tower needs one): */
    /* [n] 1 at BOI, patches and EOI; where visual experts are used */
    const uint8_t *embed, *expert;
    const sheaf__picture *picture; /* [pictures], at most as many as the family takes, of the
                                      towers' sizes; rows are not read. NULL: see load */
    int64_t pictures;
} sheaf__prompt;

/* sheaf__generate - collective; out[i] continues prompt[i]. The model's rotary table must
 * reach the longest prompt + max_new. */
sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options);

#endif
