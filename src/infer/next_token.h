/* next_token.h - the token that follows one sequence, from its logits, and whether its answer ends
 * with it: the same in whatever company the sequence is. */
#pragma once

#include "infer/generate.h"

/* State and buffers of a choice, beside the sequence; of one thread. */
typedef struct sheaf__chooser {
    int64_t vocab;
    int64_t *history; /* ids of one sequence */
    float *logits;    /* that the sampler changes; its own room lies behind them */
    sheaf__sampling_room room;
    int slices; /* of the model */
} sheaf__chooser;

/* A prompt and its answer so far: the same on every rank, and changed only between passes but for
 * what a pass chooses. */
typedef struct sheaf__sequence {
    const sheaf__prompt *prompt;
    const sheaf__generate_options *options;
    sheaf__continuation *out;
    int64_t number; /* of the prompt among those of `options` */
    int model;      /* of the scheduler's */
    void *of;       /* the caller's */
    /* The scheduler's: */
    int64_t arrival;
    int64_t place;        /* in the cache */
    int64_t read;         /* its first rows that are cached */
    bool waits;           /* for a place */
    bool over;            /* the answer has ended */
    bool again;           /* all rows are read again: no token was chosen yet */
    sheaf_status *failed; /* it has no next token; then over. The caller's to free */
    struct sheaf__sequence *next;
} sheaf__sequence;

/* sheaf__chooser_open - for sequences of at most `length` tokens; close also after a failure. */
sheaf_status *sheaf__chooser_open(sheaf__chooser *out, int64_t vocab, int64_t length, int slices);
void sheaf__chooser_close(sheaf__chooser *chooser);

/* sheaf__next_token - appends the token to the answer; sequence->over: the answer ends with it, by
 * its id, its number, or options->on_token(), which is called with the sequence's number.
 *   logits   [vocab], left as they are
 * Errors: SHEAF_E_NUMBER naming prompt and token where a logit is not finite. */
sheaf_status *sheaf__next_token(sheaf__sequence *sequence, sheaf__chooser *chooser,
                                const float *logits);
/* sheaf__prompt_position - the position of token j of prompt and answer. */
int32_t sheaf__prompt_position(const sheaf__prompt *prompt, int64_t j);
/* sheaf__sequence_known - rows of prompt and answer so far: all but the last of an answer that has
 * begun are, or were, inputs; _token: token j of them. */
int64_t sheaf__sequence_known(const sheaf__sequence *sequence);
int32_t sheaf__sequence_token(const sheaf__sequence *sequence, int64_t j);
