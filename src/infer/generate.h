/* generate.h - tokens from prompts, with a cache of keys and values.
 *
 * Prompts run together in batches. Each sequence has its keys from key 0 on and its own number of
 * them; what fills up shorter prompts stands behind them and is seen by no query. So a prompt in a
 * batch has the bits it has alone. Every rank samples from the same logits with the same
 * counter-based numbers, so all hold the same tokens at any number of ranks. */
#pragma once

#include <stdatomic.h>

#include "base/events.h"
#include "infer/sampling.h"
#include "models/model.h"
#include "sheaf/generate.h"

typedef struct sheaf__continuation {
    int32_t *ids; /* [max_new] of the caller */
    int64_t n;
    sheaf_ending ending;
    /* All NULL, or all of the caller: of each token the log of its probability by the model alone,
     * before penalty, temperature and cuts; and the `best` most probable ids with theirs, the first
     * of equals first. */
    float *logprob;      /* [max_new] */
    int32_t *best_ids;   /* [max_new, best] */
    float *best_logprob; /* [max_new, best] */
} sheaf__continuation;

/* What is kept between calls: infer/prefix_cache.h. */
typedef struct sheaf__prefix_cache sheaf__prefix_cache;

typedef struct sheaf__generate_options {
    sheaf__sampling sampling;
    int64_t max_new; /* tokens, at least 1 */
    int64_t batch;   /* prompts run together, at least 1 */
    /* [nstop + nturn] ids that end a sequence (they are emitted): the first nstop any, the others
     * one that is laid_out */
    const int64_t *stop;
    int nstop, nturn;
    int64_t max_length; /* positions of prompt and answer together; 0 = no limit */
    int64_t number;     /* of the first prompt, for the random numbers of sampling */
    /* Groups of ranks share the prompts, and have all answers afterwards; heard() gets those of
     * their own group. All ranks keep log-probabilities or none does. Else each group
     * answers all of them. */
    bool divided;
    /* The n images of a prompt that has them without pixels, over the pixels of picture[0..n),
     * which have their sizes. Called on every rank that has the towers, those of the first stage, a
     * batch at a time; a failure reaches all ranks. */
    sheaf_status *(*load)(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n);
    void *self;
    /* Gets every token, on every rank, when out[prompt] has it; its ending is SHEAF_ENDS_TOKEN
     * where this is one that stops. Does the answer end with it? All ranks must say the same. NULL:
     * no. */
    bool (*heard)(void *listener, int64_t prompt, const sheaf__continuation *so_far);
    void *listener;
    int64_t best;               /* of logprob: at most the vocabulary */
    const atomic_int *stop_now; /* other than 0 on any rank: SHEAF_E_STOPPED, with the tokens so far
                                   in out; NULL on all or none */
    /* Kept from call to call, on each rank its own, for one prompt about the same pictures, with
     * room for them: it is filled, and used when it is full. Empty it (full = false) on all ranks
     * for others. NULL: the towers run in each call. */
    sheaf__image_cache *image_cache;
    /* Kept from call to call, on each rank its own: what was read of the one prompt there is. Of
     * several it is given back. NULL: nothing is kept. */
    sheaf__prefix_cache *prefix;
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
    /* [pictures] in order of their places, at most as many as the family takes, of sizes that the
     * towers take; rows are not read. Those whose pixels are NULL are loaded, all or none; NULL:
     * all are, of the towers' own size */
    const sheaf__picture *picture;
    int64_t pictures;
    int64_t look; /* a number of the caller for its pictures, the same for no others; 0: none has
                     been given, and nothing that was read of one is used again */
    const char *written; /* the first special token that it writes as text, of the tokenizer; or
                            NULL */
    bool laid_out;       /* by a chat template: what ends a turn ends its answer */
} sheaf__prompt;

/* sheaf__generate - collective; out[i] continues prompt[i]. The model's rotary table must
 * reach the longest prompt + max_new. */
sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options);

/* sheaf__image_needed - what a prompt without one is answered where the model looks at one in every
 * layer. */
sheaf_status *sheaf__image_needed(sheaf_code code, const char *what, const sheaf_config *config);
