/* chat.h - conversations as the text that a chat model was trained on.
 *
 * A chat template says how messages become one text: which marks stand around them, what is
 * trimmed, where a system message goes. Models publish theirs as Jinja programs: the one that a
 * tokenizer stores is run, or one of ours by name (templates/NAME.jinja), and gives the bytes of
 * transformers' apply_chat_template().
 *
 * The text comes with spans of bytes, ascending: CONTENT, which a person or a data set wrote and
 * which is text even where it looks like a mark, and ANSWER, which a model learns to write. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "sheaf/text.h"

typedef struct sheaf__chat_template sheaf__chat_template;

typedef struct sheaf__message {
    const char *role;    /* "system", "user", "assistant", or as the program knows it */
    const char *content; /* UTF-8, `size` bytes; may contain NUL; NULL: `json` has it, or none */
    size_t size;
    const json_t *json; /* the message as an object, whose other fields the program sees; or NULL */
    bool unlearnt;      /* an answer without labels */
} sheaf__message;

typedef struct sheaf__rendered {
    char *text; /* NUL-terminated */
    size_t size;
    sheaf_span *span; /* by begin; an ANSWER stands before the CONTENT that it encloses */
    int64_t spans;
    int64_t left_out; /* messages that the program does not write */
    int64_t unlearnt; /* with `lenient`: answers that cannot be labelled */
} sheaf__rendered;

/* A template's enable_thinking: undefined; true if the last message is an answer with thoughts
 * between <think> and </think>, else false, so that an answer without thoughts begins behind empty
 * ones; true. */
typedef enum sheaf__thinking {
    SHEAF__THINKING_UNSET,
    SHEAF__THINKING_BY_ANSWER,
    SHEAF__THINKING_ON
} sheaf__thinking;

typedef struct sheaf__chat_options {
    bool generation_prompt; /* end with the prompt for an answer */
    bool answers;           /* find the ANSWER spans */
    bool lenient;          /* an answer that cannot be labelled gets no span, instead of an error */
    const char *bos, *eos; /* the tokenizer's, as text; NULL: it has none */
    const json_t *tools;   /* descriptions of tools, as transformers takes them; NULL: none */
    const json_t *kwargs;  /* more variables of the program, an object; NULL: none */
    sheaf__thinking thinking;
} sheaf__chat_options;

/* sheaf__chat_template_find - by name, "llama3". Errors: SHEAF_E_ARG with the names there are. */
sheaf_status *sheaf__chat_template_find(sheaf__chat_template **out, const char *name);
void sheaf__chat_template_free(sheaf__chat_template *t);
/* sheaf__chat_template_stored - from a program that a tokenizer stores in `file`, which is
 * borrowed. Errors, with the file and the line: SHEAF_E_FORMAT for what is no template,
 * SHEAF_E_UNSUPPORTED for a program that cannot be run (jinja.h); SHEAF_E_MEMORY. */
sheaf_status *sheaf__chat_template_stored(sheaf__chat_template **out, const char *program,
                                          const char *file);
/* sheaf__chat_template_stored_pair - the same, with the program for conversations with tools that
 * transformers takes by the name "tool_use". Either may be NULL. */
sheaf_status *sheaf__chat_template_stored_pair(sheaf__chat_template **out, const char *program,
                                               const char *tools, const char *file);
/* sheaf__chat_template_name - "llama3"; for a stored program the name of our template that writes
 * the same, else "stored". Static storage. sheaf__chat_template_known - the static copy of such a
 * name; NULL: not a name. */
const char *sheaf__chat_template_name(const sheaf__chat_template *t);
const char *sheaf__chat_template_known(const char *name);
/* sheaf__chat_template_program - the Jinja program. Borrowed. */
const char *sheaf__chat_template_program(const sheaf__chat_template *t);
/* sheaf__chat_template_names - all of them, with commas, for messages and for help. */
const char *sheaf__chat_template_names(void);
/* sheaf__chat_template_stop - the text of the token that ends an answer: "<|im_end|>". `eos` where
 * the template uses that one; NULL when there is none. Borrowed. */
const char *sheaf__chat_template_stop(const sheaf__chat_template *t, const char *eos);

/* sheaf__chat_no_thoughts - length of the block at the beginning of a model's answer that the
 * template writes for an answer without thoughts: "<think>\n\n</think>". *more: the text so far may
 * be the beginning of that block. sheaf__chat_divide - separates thoughts from the rest of an
 * answer, for templates that write them apart. */
size_t sheaf__chat_no_thoughts(bool *more, const sheaf__chat_template *t, const char *text,
                               size_t size);
void sheaf__chat_divide(sheaf__text_piece *thoughts, sheaf__text_piece *rest,
                        const sheaf__chat_template *t);

/* The date, of programs that write one (of ours llama3.1, which has a default, llama3.2 and
 * smollm3).
 *   sheaf__chat_template_set_date - YYYY-MM-DD, or any other text where the program takes one
 *     (date_string); NULL or empty: nothing. Errors: SHEAF_E_ARG for a template without a date and
 *     for an invalid day.
 *   sheaf__chat_template_wants_date - it writes a date, has no default and none was set: rendering
 *     is then an error, sheaf__chat_template_undated().
 *   sheaf__chat_template_set_today - sets today's date if it wants one.
 *   sheaf__chat_template_date - the date as it is written, or NULL. */
sheaf_status *sheaf__chat_template_set_date(sheaf__chat_template *t, const char *date);
bool sheaf__chat_template_wants_date(const sheaf__chat_template *t);
sheaf_status *sheaf__chat_template_set_today(sheaf__chat_template *t);
const char *sheaf__chat_template_date(const sheaf__chat_template *t);
sheaf_status *sheaf__chat_template_undated(const char *name);

/* sheaf__chat_calls - has a message calls of tools? */
bool sheaf__chat_calls(const sheaf__message *message);
/* sheaf__chat_open_arguments - for calls whose "arguments" are JSON as text, as OpenAI's clients
 * send them: makes these objects in `messages`, a list of JSON whose messages are message[n], if
 * the program does not write such a text as it is (it quotes it again, or walks over the fields of
 * an object). Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__chat_open_arguments(json_t *messages, const sheaf__chat_template *t,
                                         const sheaf__message *message, int64_t n,
                                         const sheaf__chat_options *options);
/* sheaf__chat_reads_thoughts - does the program read a message's "reasoning_content" or
 * "thinking"? */
bool sheaf__chat_reads_thoughts(const sheaf__chat_template *t);
/* sheaf__chat_knows_role - does the program name it? */
bool sheaf__chat_knows_role(const sheaf__chat_template *t, const char *role);

/* sheaf__chat_render - thread-safe; release *out, which is empty after a failure. Errors:
 * SHEAF_E_DATA with the message ("message 3", counted from 1) whose role is unknown or for which
 * the program raises, or with the answer that cannot be labelled, as the program changes it once a
 * message follows; SHEAF_E_ARG where the program writes a token that the tokenizer lacks, or a date
 * that was not set; SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY: those of jinja.h. */
sheaf_status *sheaf__chat_render(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const sheaf__message *message, int64_t n,
                                 const sheaf__chat_options *options);
/* sheaf__chat_is_open - does the program write no end behind the answer of span[k]? Its end is to
 * be learnt as the tokenizer's eos then. No where {% generation %} blocks leave out the end. */
bool sheaf__chat_is_open(const sheaf__chat_template *t, const sheaf__rendered *r, int64_t k);
void sheaf__rendered_release(sheaf__rendered *r);
