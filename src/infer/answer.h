/* answer.h - answers while they are made: room for their tokens, and their texts as they come. */
#pragma once

#include "infer/answer_stream.h"
#include "infer/generate.h"

/* How prompts are answered, and the callbacks. */
typedef struct sheaf__answer_options {
    const sheaf__codec *codec;        /* of the answers */
    sheaf__generate_options generate; /* stop, on_token and caches are set by each rank */
    bool logprobs;
    const char *const *stop; /* [nstop] texts that end an answer */
    int64_t nstop;
    /* Called for new tokens and text by the first rank; may be NULL. */
    void (*on_token)(void *context, int32_t token);
    void (*on_text)(void *context, int64_t prompt, const char *text);
    void *context; /* of both */
    bool partial;  /* when stopped, the text so far is the answer */
} sheaf__answer_options;

/* Answers to some prompts. */
typedef struct sheaf__answers {
    int64_t count;
    sheaf__continuation *output;  /* [count] with room for max_new tokens each */
    sheaf__answer_stream *stream; /* [count] */
} sheaf__answers;

/* sheaf__answers_open - release also after a failure. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__answers_open(sheaf__answers *out, const sheaf__answer_options *how,
                                  const sheaf__prompt *prompt, int64_t count);
/* sheaf__answers_more - after a token of answer i: *out, what is new of its text, perhaps empty
 * (`out` NULL: only whether a text ends it); *over: it does.
 * sheaf__answers_end - its whole text, NULL for a model without text, and (`out` may be NULL) the
 * rest of it. All malloc'd. */
sheaf_status *sheaf__answers_more(char **out, bool *over, sheaf__answers *answers, int64_t i);
sheaf_status *sheaf__answers_end(char **out, char **text, sheaf__answers *answers, int64_t i);
void sheaf__answers_release(sheaf__answers *answers);
