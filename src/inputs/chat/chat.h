/* chat.h - conversations as the text that a chat model was trained on.
 *
 * A chat template says how messages become one text: which marks stand around them, what is
 * trimmed, where a system message goes. Models publish theirs as Jinja programs: the one that a
 * tokenizer stores is run, or one of ours by name (templates/NAME.jinja), and gives the bytes of
 * transformers' apply_chat_template().
 *
 * Beside the text there are spans: what a person or a data set wrote, which is text even where it
 * looks like a mark, and what a model must learn to write. Byte offsets, ascending. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "sheaf/text.h"

typedef struct sheaf__chat_template sheaf__chat_template;

typedef struct sheaf__message {
    const char *role;    /* "system", "user", "assistant" or of tools; others are refused by name */
    const char *content; /* UTF-8, `size` bytes; may contain NUL; NULL: `json` has it, or none */
    size_t size;
    const json_t *json; /* the message as an object, whose other fields the program sees; or NULL */
    bool unlearnt;      /* an answer that is read and not learnt */
} sheaf__message;

typedef struct sheaf__rendered {
    char *text; /* NUL-terminated */
    size_t size;
    sheaf_span *span; /* by begin; an ANSWER stands before the CONTENT that it encloses */
    int64_t spans;
    int64_t left_out; /* messages that the program writes nowhere */
    int64_t unlearnt; /* answers that cannot be learnt, where `lenient` */
} sheaf__rendered;

typedef struct sheaf__chat_options {
    bool generation_prompt; /* end with what makes a model answer */
    bool answers;           /* find those to be learnt */
    bool lenient;           /* one that cannot be learnt is none, and no failure */
    const char *bos, *eos;  /* the tokenizer's, as text; NULL: it has none */
    const json_t *tools;    /* descriptions of tools, as transformers takes them; NULL: none */
} sheaf__chat_options;

/* sheaf__chat_template_find - by name, "llama3". Errors: SHEAF_E_ARG with the names there are. */
sheaf_status *sheaf__chat_template_find(sheaf__chat_template **out, const char *name);
void sheaf__chat_template_free(sheaf__chat_template *t);
/* sheaf__chat_template_stored - of a program that a tokenizer stores in `file`, which is borrowed.
 * Errors, with the file and the line: SHEAF_E_FORMAT for what is no template, SHEAF_E_UNSUPPORTED
 * for what cannot be run (jinja.h) or raises for every conversation; SHEAF_E_MEMORY. */
sheaf_status *sheaf__chat_template_stored(sheaf__chat_template **out, const char *program,
                                          const char *file);
/* sheaf__chat_template_name - "llama3"; of a stored program that of ours which writes the same,
 * else "stored". It lives as long as the process. sheaf__chat_template_known - such a name by its
 * letters, NULL where it is none. */
const char *sheaf__chat_template_name(const sheaf__chat_template *t);
const char *sheaf__chat_template_known(const char *name);
/* sheaf__chat_template_names - all of them, with commas, for messages and for help. */
const char *sheaf__chat_template_names(void);
/* sheaf__chat_template_stop - the text of the token that ends an answer: "<|im_end|>". `eos` where
 * the template uses that one; NULL when there is none. Borrowed. */
const char *sheaf__chat_template_stop(const sheaf__chat_template *t, const char *eos);

/* sheaf__chat_no_thoughts - bytes in front of an answer, as a model writes it, that are the
 * template's for one without thoughts: "<think>\n\n</think>". *more: there are none so far, but
 * what follows may make some of it. sheaf__chat_divide - takes thoughts out of an answer, as a
 * template does that writes them apart. */
size_t sheaf__chat_no_thoughts(bool *more, const sheaf__chat_template *t, const char *text,
                               size_t size);
void sheaf__chat_divide(sheaf__text_piece *thoughts, sheaf__text_piece *rest,
                        const sheaf__chat_template *t);

/* The date, of programs that write one (of ours llama3.1, which has one of its own, llama3.2 and
 * smollm3).
 *   sheaf__chat_template_set_date - YYYY-MM-DD, or where the program takes that
 * (date_string) any other text; NULL or empty: nothing. Errors: SHEAF_E_ARG for a template without
 * a date and for a day that there is not.
 *   sheaf__chat_template_wants_date - it writes one, has none and was given none: to render is then
 * an error, sheaf__chat_template_undated().
 *   sheaf__chat_template_set_today - then today's.
 *   sheaf__chat_template_date - as it is written, or NULL. */
sheaf_status *sheaf__chat_template_set_date(sheaf__chat_template *t, const char *date);
bool sheaf__chat_template_wants_date(const sheaf__chat_template *t);
sheaf_status *sheaf__chat_template_set_today(sheaf__chat_template *t);
const char *sheaf__chat_template_date(const sheaf__chat_template *t);
sheaf_status *sheaf__chat_template_undated(const char *name);

/* sheaf__chat_render - thread-safe; *out is to be released, and empty after a failure. Errors:
 * SHEAF_E_DATA that names the message ("message 3", counted from 1) whose role is unknown, or for
 * which the program raises; or the answer that cannot be learnt, as the program writes it otherwise
 * once a message follows; SHEAF_E_ARG where the program writes a token that the tokenizer lacks, or
 * a date that was not given; SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY: those of jinja.h. */
sheaf_status *sheaf__chat_render(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const sheaf__message *message, int64_t n,
                                 const sheaf__chat_options *options);
void sheaf__rendered_release(sheaf__rendered *r);
