/* prompts.h - prompts from a text, a list of ids or a file, as tokens. */
#ifndef SHEAF_INFER_PROMPTS_H
#define SHEAF_INFER_PROMPTS_H

#include "infer/generate.h"
#include "sheaf/config.h"

typedef struct sheaf__prompts {
    int64_t count;
    sheaf__prompt *prompt;  /* ids owned */
    char **text;            /* as given, NULL for ids */
    char **expected;        /* the completion of a record, NULL without */
} sheaf__prompts;

/* Exactly one of the three is given.
 *   text    for byte vocabularies: bos and the bytes
 *   tokens  "1,2,3"
 *   file    JSON Lines with "prompt" (and "completion", to compare with) or "tokens" ([ids])
 * Errors: SHEAF_E_DATA naming line and field; an id outside the table; SHEAF_E_UNSUPPORTED
 * for text with a model that needs a tokenizer. Release also after a failure. */
sheaf_status *sheaf__prompts_read(sheaf__prompts *out, const sheaf_config *config, const char *text,
                                  const char *tokens, const char *file);
void sheaf__prompts_release(sheaf__prompts *prompts);

/* sheaf__prompts_decode - the text of generated ids up to the first special token (malloc'd), for
 * byte vocabularies; NULL for others. Bytes that are not UTF-8 become U+FFFD. */
sheaf_status *sheaf__prompts_decode(char **out, const sheaf_config *config, const int32_t *ids, int64_t n);

#endif
