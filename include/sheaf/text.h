/* text.h - texts as the token ids that a model reads, and conversations as such texts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf/events.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokens ---- */

/* Ids are those of the `tokenizers` library (docs/tokenizers.md). Opened it never changes: several
 * threads may use it. */
typedef struct sheaf_tokenizer sheaf_tokenizer;

#define SHEAF_TOKENIZER_TEXT_MAX ((size_t)256 << 20) /* bytes of one text */

/* sheaf_tokenizer_open - `path` is the folder of a model, a tokenizer.json or a tokenizer.model.
 * Errors: SHEAF_E_IO; SHEAF_E_FORMAT for what is no sound tokenizer; SHEAF_E_UNSUPPORTED for a part
 * or an option that is not known, by its name. */
SHEAF_API sheaf_status *sheaf_tokenizer_open(sheaf_tokenizer **out, const char *path);
/* sheaf_tokenizer_close - accepts NULL. */
SHEAF_API void sheaf_tokenizer_close(sheaf_tokenizer *tokenizer);

typedef struct sheaf_text_range {
    size_t begin, end; /* bytes */
} sheaf_text_range;

typedef struct sheaf_encode_options {
    size_t size;
    bool add_special; /* add what the model expects around a text, as a beginning of sequence */
    bool specials;    /* special tokens that are written in the text are tokens; else text */
} sheaf_encode_options;

/* sheaf_tokenizer_encode - text to ids.
 *   ids    malloc'd, *count of them
 *   where  malloc'd too: the bytes that each stands for, whole characters; begin == end for what
 *          stands for none. NULL: they are not wanted
 *   text   [size] bytes of UTF-8, at most SHEAF_TOKENIZER_TEXT_MAX; may contain NUL
 * Errors: SHEAF_E_DATA for another text, with the byte. */
SHEAF_API sheaf_status *sheaf_tokenizer_encode(int32_t **ids, sheaf_text_range **where,
                                               int64_t *count, const sheaf_tokenizer *tokenizer,
                                               const char *text, size_t size,
                                               const sheaf_encode_options *options);
/* sheaf_tokenizer_decode - ids to text (malloc'd), which ends with a NUL that *size does not count.
 * Ids that name no token are left out, with skip_special special ones too; bytes that are no UTF-8
 * become U+FFFD. Errors: SHEAF_E_DATA for a negative id. */
SHEAF_API sheaf_status *sheaf_tokenizer_decode(char **text, size_t *size,
                                               const sheaf_tokenizer *tokenizer, const int32_t *ids,
                                               int64_t count, bool skip_special);

/* ---- conversations ---- */

typedef enum sheaf_span_kind {
    SHEAF_SPAN_CONTENT, /* content of a message: text, whatever it looks like */
    SHEAF_SPAN_ANSWER,  /* a label: behind the generation prompt, up to and with the mark that ends
                           it; where the template has {% generation %} blocks, their output */
} sheaf_span_kind;

typedef struct sheaf_span {
    size_t begin, end; /* bytes of the text */
    int64_t message;   /* from 0 */
    sheaf_span_kind kind;
} sheaf_span;

/* A record by its chat template; borrowed. */
typedef struct sheaf_rendered {
    const char *text; /* [size] UTF-8, which may contain NUL */
    size_t size;
    const sheaf_span *span; /* [spans] by begin; an answer before the content that it encloses */
    int64_t spans;
    const char *chat_template; /* its name */
    const char *date;          /* that it writes; NULL */
    /* Of a pair "chosen", then "rejected"; of a judged answer "desirable" or "undesirable"; NULL */
    const char *side;
} sheaf_rendered;

typedef struct sheaf_render_options {
    size_t size;
    const char *tokenizer;     /* folder of the tokenizer, or a file in it */
    const char *chat_template; /* by name (docs/templates.md); NULL: the one stored there */
    const char *date;          /* that a template writes; NULL: the template's own, else today's */
    bool generation_prompt;    /* end with what makes a model answer */
    /* Called with each record, in order; a status ends it. */
    sheaf_status *(*take)(void *context, const sheaf_rendered *record);
    void *context;
    const sheaf_events *events; /* may be NULL */
    const char *name;           /* of the file, for messages; NULL: its path */
} sheaf_render_options;

/* sheaf_render - the conversations of a file, JSON Lines or one JSON array, as a model reads them;
 * of pairs and judged answers (docs/preference.md) also plain texts.
 * Records that cannot be rendered are passed over, and named in the status at the end. Errors:
 * those of `take`; SHEAF_E_ARG for a template that is not there, or lacks a token that the
 * tokenizer has not; SHEAF_E_DATA. */
SHEAF_API sheaf_status *sheaf_render(const char *path, const sheaf_render_options *options);

#ifdef __cplusplus
}
#endif
