/* stored.h - the chat template, bos and eos in a tokenizer's folder.
 *
 * As transformers reads it: chat_template.jinja ("default") and
 * additional_chat_templates/NAME.jinja before tokenizer_config.json's chat_template, which is a
 * program, or a list of named ones, before a processor's chat_template.json;
 * special_tokens_map.json only where tokenizer_config.json has no added_tokens_decoder. */
#pragma once

#include <stdbool.h>

#include "inputs/chat/chat.h"
#include "inputs/tokenizer/tokenizer.h"
#include "sheaf/status.h"

#define SHEAF__MORE_TEMPLATES "additional_chat_templates"

typedef struct sheaf__other_template {
    char *name, *program;
} sheaf__other_template;

typedef struct sheaf__stored_chat {
    char *program;                /* Jinja, the default one, or NULL */
    sheaf__other_template *other; /* [others], by name: "tool_use" */
    int64_t others, capacity;
    char *bos, *eos;  /* or NULL */
    const char *file; /* that has the program: "chat_template.jinja" */
} sheaf__stored_chat;

/* sheaf__stored_chat_has_program - one that is called "default" or "tool_use"? */
bool sheaf__stored_chat_has_program(const sheaf__stored_chat *s);
/* sheaf__stored_chat_read - `path`: a folder, or a file in it. No file is needed. Release also
 * after a failure. Errors: SHEAF_E_IO, SHEAF_E_FORMAT (with the file), SHEAF_E_MEMORY. */
sheaf_status *sheaf__stored_chat_read(sheaf__stored_chat *out, const char *path);
/* sheaf__stored_chat_complete - sets bos and eos that the files lack to the defaults of the
 * tokenizer's class. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__stored_chat_complete(sheaf__stored_chat *s, const sheaf__tokenizer *t);
void sheaf__stored_chat_release(sheaf__stored_chat *s);

/* sheaf__tokenizer_folder - *out: `folder` (or NULL), where it has a tokenizer; else NULL. */
sheaf_status *sheaf__tokenizer_folder(const char **out, const char *folder);
/* sheaf__stored_chat_open - opens the tokenizer at `path` and reads its folder. Errors: those of
 * both; SHEAF_E_LAYOUT for more tokens than `vocab`. After a failure *out is NULL. */
sheaf_status *sheaf__stored_chat_open(sheaf__tokenizer **out, sheaf__stored_chat *stored,
                                      const char *path, int64_t vocab);

/* sheaf__choose_tokenizer - of a model with prompts of its own: the file or folder `given`, else
 * the model's `folder` (each may be NULL or empty); in a folder tokenizer.model, read as
 * libsentencepiece does, else tokenizer.json. *out NULL: there is none. Errors: as
 * sheaf__stored_chat_open(). */
sheaf_status *sheaf__choose_tokenizer(sheaf__tokenizer **out, const char *given, const char *folder,
                                      int64_t vocab);

/* sheaf__chat_template_choose - the template `given` by name, else (NULL, empty or "stored") the
 * one that the tokenizer stores. Errors: those of sheaf__chat_template_find() and
 * sheaf__chat_template_stored(); SHEAF_E_ARG where there is neither. *out borrows from `stored`. */
sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored);
/* sheaf__chat_template_advise - for an error, consumed: to name a template, first one of ours whose
 * end mark is a token of the tokenizer, else one that ends answers with its eos. Gives it back. */
sheaf_status *sheaf__chat_template_advise(sheaf_status *st, const sheaf__tokenizer *t);
/* sheaf__chat_template_of_run - the template that a run's settings name: the tokenizer's own
 * program if it still has this name. Errors: as sheaf__chat_template_choose(). */
sheaf_status *sheaf__chat_template_of_run(sheaf__chat_template **out, const char *name,
                                          const sheaf__stored_chat *stored);
