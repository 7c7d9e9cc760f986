/* answer.h - answers while they are made: room for their tokens, and their texts as they come. */
#pragma once

#include "infer/answer_stream.h"
#include "infer/generate.h"
#include "infer/grammar.h"

/* How prompts are answered, and the callbacks. */
typedef struct sheaf__answer_options {
    const sheaf__codec *codec;        /* of the answers */
    sheaf__generate_options generate; /* stop, on_token and caches are set by each rank */
    bool logprobs;
    const char *const *stop; /* [nstop] texts that end an answer */
    int64_t nstop;
    sheaf__answer_form form;
    /* Called for new tokens and text by the first rank; may be NULL. */
    void (*on_token)(void *context, int32_t token);
    void (*on_text)(void *context, int64_t prompt, const char *text);
    void *context; /* of both */
    bool partial;  /* when stopped, the text so far is the answer */
} sheaf__answer_options;

/* The new part of an answer since the last call. */
typedef struct sheaf__delta {
    const sheaf__continuation *output;
    const char *piece; /* its text, perhaps empty */
    const char *text;  /* the whole, once it is over; NULL before, and for a model without text */
} sheaf__delta;

/* Some of answer i is there, or all of it. */
typedef void sheaf__on_delta(void *self, int64_t i, const sheaf__delta *delta, bool over);

/* Answers to some prompts; it must not move. */
typedef struct sheaf__answers {
    int64_t count;
    sheaf__continuation *output;  /* [count] with room for max_new tokens each */
    sheaf__answer_stream *stream; /* [count] */
    sheaf__grammar *grammar;      /* of their form; NULL: they have none */
    sheaf__grammar_place *place;  /* [count] in it */
    sheaf__generate_options how;  /* as given; stop ids, texts and on_delta are followed */
    int64_t stop[SHEAF__MOST_STOPS];
    sheaf__on_delta *on_delta;
    void *self;
    sheaf_status *failed; /* the first failure of a text: all answers end */
} sheaf__answers;

/* sheaf__answers_open - `each` answers to every prompt. `on_delta` (may be NULL) is called with
 * `self` for every token. Release also after a failure. Errors: SHEAF_E_MEMORY; those of the form's
 * schema. */
sheaf_status *sheaf__answers_open(sheaf__answers *out, const sheaf__answer_options *how,
                                  const sheaf__prompt *prompt, int64_t count, int64_t each,
                                  sheaf__on_delta *on_delta, void *self);
/* sheaf__answers_end - answer i is over: *text, the whole, malloc'd; NULL for a model without text.
 * The rest of it goes to on_delta. */
sheaf_status *sheaf__answers_end(char **text, sheaf__answers *answers, int64_t i);
/* sheaf__answers_fail - keeps the first failure; takes `st`, which may be NULL. */
void sheaf__answers_fail(sheaf__answers *answers, sheaf_status *st);
void sheaf__answers_release(sheaf__answers *answers);
