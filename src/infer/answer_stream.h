/* answer_stream.h - an answer as text while its tokens come: never half a character, and nothing of
 * a text that ends the answer. */
#pragma once

#include "infer/codec.h"

/* All zero but the first four at first. */
typedef struct sheaf__answer_stream {
    const sheaf__codec *codec;
    bool laid_out;           /* the prompt, by a template, as all of a codec that is templated */
    const char *const *stop; /* [nstop] texts that end the answer, none empty; borrowed */
    int64_t nstop;
    bool over;  /* one of them is there: no further token changes the answer */
    char *said; /* what was handed out, or NULL */
    size_t size;
    sheaf__token_stream *stream; /* with a tokenizer of texts */
    sheaf_text heard;            /* what came out of it */
    int64_t taken;               /* ids that went in */
} sheaf__answer_stream;

/* sheaf__answer_stream_more - *out: what the tokens so far add for certain (malloc'd, perhaps
 * empty; `out` NULL: only `over` is of interest). What may be half a character is held back, what
 * may be the beginning of a text that ends the answer, and, of a prompt that is laid out, blanks at
 * both ends and the thoughts that there are none of. `ids` are without the token that ended the
 * answer, here and below. */
sheaf_status *sheaf__answer_stream_more(char **out, sheaf__answer_stream *stream,
                                        const int32_t *ids, int64_t n);
/* sheaf__answer_stream_end - *answer: all of it, up to the text that ends it; NULL for a model
 * without text. *out (may be NULL): what is missing of it; where it is not what was said so far
 * (the model wrote a separator of its template), a line feed and all of it. Both malloc'd. */
sheaf_status *sheaf__answer_stream_end(char **out, char **answer, sheaf__answer_stream *stream,
                                       const int32_t *ids, int64_t n);
void sheaf__answer_stream_release(sheaf__answer_stream *stream);
