/* answer_stream.h - streams an answer as text: never half a character, and nothing of a stop text.
 */
#pragma once

#include "infer/codec.h"

/* The caller sets the first four members; the others start at zero. */
typedef struct sheaf__answer_stream {
    const sheaf__codec *codec;
    bool laid_out; /* the prompt is laid out by a template (always, if the codec is templated) */
    const char *const *stop; /* [nstop] texts that end the answer, none empty; borrowed */
    int64_t nstop;
    bool over;  /* a stop text was found: no further token changes the answer */
    char *sent; /* text returned so far, or NULL */
    size_t size;
    sheaf__token_stream *stream; /* with a tokenizer of texts */
    sheaf_text decoded;          /* its output */
    int64_t taken;               /* ids consumed */
} sheaf__answer_stream;

/* sheaf__text_held - bytes at the end of a text that a mark of n bytes may begin with. */
size_t sheaf__text_held(const char *text, size_t size, const char *mark, size_t n);
/* sheaf__answer_stream_more - *out: the new text that is certain (malloc'd, perhaps empty; `out`
 * NULL: only sets `over`). Held back are possible halves of a character, possible beginnings of a
 * stop text and, for a laid-out prompt, blanks at both ends and an empty block of thoughts. Here
 * and below `ids` exclude the token that ended the answer. */
sheaf_status *sheaf__answer_stream_more(char **out, sheaf__answer_stream *stream,
                                        const int32_t *ids, int64_t n);
/* sheaf__answer_stream_end - *answer: the whole text, up to a stop text; NULL for a model without
 * text. *out (may be NULL): the rest of it; if the text returned so far does not begin it (the
 * model wrote a separator of its template), a line feed and the whole answer. Both malloc'd. */
sheaf_status *sheaf__answer_stream_end(char **out, char **answer, sheaf__answer_stream *stream,
                                       const int32_t *ids, int64_t n);
void sheaf__answer_stream_release(sheaf__answer_stream *stream);
