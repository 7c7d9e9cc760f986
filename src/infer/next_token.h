/* next_token.h - the token that follows one sequence, from its logits, and whether its answer ends
 * with it: the same in whatever company the sequence is. */
#pragma once

#include "infer/generate.h"

/* What choosing needs beside the sequence; of one thread. */
typedef struct sheaf__chooser {
    int64_t vocab;
    int64_t *history; /* ids of one sequence */
    float *scratch;   /* logits and the sampler's own */
} sheaf__chooser;

/* sheaf__chooser_open - for sequences of at most `length` tokens; close also after a failure. */
sheaf_status *sheaf__chooser_open(sheaf__chooser *out, int64_t vocab, int64_t length);
void sheaf__chooser_close(sheaf__chooser *chooser);

/* sheaf__next_token - appends the token to `out`, which continues `prompt`; *over: the answer ends
 * with it, by its id, its number, or options->heard(), which is called with `number`.
 *   number   of the prompt among those of `options`
 *   logits   [vocab], left as they are
 * Errors: SHEAF_E_NUMBER naming prompt and token where a logit is not finite. */
sheaf_status *sheaf__next_token(bool *over, sheaf__continuation *out, sheaf__chooser *chooser,
                                const sheaf__generate_options *options, const sheaf__prompt *prompt,
                                int64_t number, const float *logits);
/* sheaf__prompt_position - the position of token j of prompt and answer. */
int32_t sheaf__prompt_position(const sheaf__prompt *prompt, int64_t j);
