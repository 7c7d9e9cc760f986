/* generate.h - generates tokens for prompts, with a KV cache.
 *
 * Prompts run together in batches. Each sequence has its own number of keys, from key 0 on; shorter
 * prompts are padded at the end with keys that no query sees. So a prompt in a batch gives the same
 * bits as alone. The first rank of a group leads (lead.h) and samples, with counter-based numbers,
 * so that tokens are the same at any number of ranks; it hands the answers on. */
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
    /* All NULL, or buffers of the caller: each token's log-probability by the model alone, before
     * penalty, temperature and cuts; and the `best` most probable ids with theirs, of equals the
     * smaller id first. */
    float *logprob;      /* [max_new] */
    int32_t *best_ids;   /* [max_new, best] */
    float *best_logprob; /* [max_new, best] */
} sheaf__continuation;

/* Is `id` one of stop[n], which end answers? */
static inline bool sheaf__is_stop(const int64_t *stop, int n, int64_t id)
{
    while (n > 0 && stop[n - 1] != id)
        n--;
    return n > 0;
}

/* Kept between calls: infer/prefix_cache.h. */
typedef struct sheaf__rank_cache sheaf__rank_cache;

typedef struct sheaf__generate_options {
    sheaf__sampling sampling;
    int64_t max_new; /* tokens, at least 1 */
    int64_t batch;   /* prompts run together, at least 1 */
    /* [nstop + nturn] ids that end a sequence (they are emitted): the first nstop any sequence, the
     * others only one whose prompt is laid_out */
    const int64_t *stop;
    int nstop, nturn;
    int64_t max_length; /* positions of prompt and answer together; 0 = no limit */
    int64_t number;     /* number of the first prompt, for the random numbers of sampling */
    /* Groups of ranks share the prompts, and all get all answers in the end; on_token() gets only
     * those of its own group. All ranks keep log-probabilities or none does. Otherwise each group
     * answers all prompts. */
    bool divided;
    bool followed; /* the other ranks are in sheaf__slots_follow(), without prompts: only the first
                      calls this, and has the answers */
    /* Reads the n images of a prompt whose pictures have no pixels, into the pixels of
     * picture[0..n), whose sizes are set. Called on the first rank of each group, a batch at a
     * time; a failure reaches all ranks. */
    sheaf_status *(*load)(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n);
    void *self;
    /* Called for every token, on the first rank of each group, once out[prompt] has it; its ending
     * is SHEAF_ENDS_TOKEN if it is a stop id. Returns true to end the answer. May be NULL. */
    bool (*on_token)(void *listener, int64_t prompt, const sheaf__continuation *so_far);
    /* Called before each token is chosen: sets the logits to -inf of those that may not follow
     * `so_far`. May be NULL: all may. */
    sheaf_status *(*mask)(void *listener, int64_t prompt, const sheaf__continuation *so_far,
                          bool laid_out, float *logits, int64_t vocab);
    void *listener; /* of both */
    /* Above 0: log-probabilities are those of logits divided by it, as training computes them, to
     * the bit. */
    double trained_at;
    int64_t best;               /* size of best_ids per token, at most the vocabulary */
    const atomic_int *stop_now; /* other than 0 on any rank: SHEAF_E_STOPPED, with the tokens so far
                                   in out; NULL on all or none */
    /* State of a single prompt that each rank keeps from call to call: keys and values, and the
     * output of the towers for its `look`; several prompts release it. NULL: nothing is kept. */
    sheaf__rank_cache *cache;
    const sheaf_events *events;
} sheaf__generate_options;

typedef struct sheaf__prompt {
    const int32_t *ids; /* at least one, each below the vocabulary */
    int64_t n;
    const int32_t *position; /* [n], ascending, at most the index; NULL: 0, 1, ... New tokens
                                continue from the last */
    /* For a prompt with images (NULL otherwise; a model with a second tower requires one): */
    /* [n] 1 at BOI, patches and EOI; where visual experts are used */
    const uint8_t *embed, *expert;
    /* [pictures] in order of their places, at most as many as the family takes, of sizes that the
     * towers take; rows are not read. Those without pixels are loaded, all or none; NULL: all are
     * loaded, at the towers' own size */
    const sheaf__picture *picture;
    int64_t pictures;
    int64_t look; /* the caller's id of its pictures, unique; 0: none, and no cached rows of
                     pictures are used */
    const char
        *written;  /* the first special token of the tokenizer that is in it as text; or NULL */
    bool laid_out; /* by a chat template: the token that ends a turn ends its answer */
} sheaf__prompt;

/* sheaf__generate - collective; out[i] continues prompt[i]. The model's rotary table must
 * reach the longest prompt + max_new. */
sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options);

/* sheaf__image_needed - the error for a prompt without an image, if the model attends to one in
 * every layer. */
sheaf_status *sheaf__image_needed(sheaf_code code, const char *what, const sheaf_config *config);
