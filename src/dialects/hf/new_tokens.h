/* new_tokens.h - tokens that are added to a model's tokenizer, and its files with them, as
 * tokenizer.add_tokens() and save_pretrained() of transformers write them. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef struct sheaf__new_tokens {
    json_t *list;         /* objects as in "added_tokens" of a tokenizer.json; owned */
    int64_t first, count; /* their ids are first, first + 1, ... */
} sheaf__new_tokens;

/* sheaf__new_tokens_read - from a file with a token a line, each as it stands, or, where its name
 * ends in .json, with a list: of texts, and of objects with "content" and perhaps "special",
 * "normalized", "lstrip", "rstrip" and "single_word" (AddedToken's defaults). The ids follow those
 * of `tokenizer`, a folder with a tokenizer.json. Release also after a failure.
 * Errors: SHEAF_E_DATA with the line or the number of a token that is empty, too long, not UTF-8,
 * given twice, in the tokenizer already, or has control characters; SHEAF_E_UNSUPPORTED for another
 * kind of tokenizer. */
sheaf_status *sheaf__new_tokens_read(sheaf__new_tokens *out, const char *file,
                                     const char *tokenizer);
void sheaf__new_tokens_release(sheaf__new_tokens *tokens);

/* sheaf__new_tokens_write - writes the files of `tokenizer` with the tokens into the folder `dst`,
 * and opens them. "tokenizer_class" is set where the class would be another one without the model's
 * config.json beside them. Errors: SHEAF_E_UNSUPPORTED where a token would get another id. */
sheaf_status *sheaf__new_tokens_write(const char *dst, const sheaf__new_tokens *tokens,
                                      const char *tokenizer);
