/* token_text.h - what each token of an answer adds to its text: bytes, which may be a part of a
 * character. Those of all tokens, joined and made UTF-8, are the text. */
#pragma once

#include "infer/codec.h"

/* The caller sets the codec; the others start at zero. */
typedef struct sheaf__token_text {
    const sheaf__codec *codec;
    sheaf__token_stream *stream; /* with a tokenizer of texts */
    sheaf_text bytes;
} sheaf__token_text;

/* sheaf__token_text_next - *out: what `id` adds behind the tokens so far, borrowed until the next
 * call; none of a special token and for a model without text. Errors: those of decoding. */
sheaf_status *sheaf__token_text_next(sheaf__text_piece *out, sheaf__token_text *text, int32_t id);
/* sheaf__token_text_if - the same, if it were the next: nothing is added. */
sheaf_status *sheaf__token_text_if(sheaf__text_piece *out, sheaf__token_text *text, int32_t id);
/* sheaf__token_text_name - the written form of a special token, borrowed; NULL: it is none. */
const char *sheaf__token_text_name(const sheaf__token_text *text, int32_t id);
void sheaf__token_text_release(sheaf__token_text *text);
