/* stored.h - what a tokenizer's folder says about conversations: its template, its bos and eos.
 *
 * As transformers reads it: chat_template.jinja before tokenizer_config.json's chat_template, which
 * is a program, or a list of named ones of which the one called default counts;
 * special_tokens_map.json only where tokenizer_config.json has no added_tokens_decoder. */
#pragma once

#include <stdbool.h>

#include "inputs/chat/chat.h"
#include "inputs/tokenizer/tokenizer.h"
#include "sheaf/status.h"

typedef struct sheaf__stored_chat {
    char *program;    /* Jinja, or NULL */
    char *bos, *eos;  /* or NULL */
    const char *file; /* that has the program: "chat_template.jinja" */
    bool no_default;  /* there is a list of programs, and none is called default */
} sheaf__stored_chat;

/* sheaf__stored_chat_read - `path`: a folder, or a file in it. No file is needed. Release also
 * after a failure. Errors: SHEAF_E_IO, SHEAF_E_FORMAT (with the file), SHEAF_E_MEMORY. */
sheaf_status *sheaf__stored_chat_read(sheaf__stored_chat *out, const char *path);
/* sheaf__stored_chat_complete - names of bos and eos that the files do not say, as the tokenizer's
 * class has them by default. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__stored_chat_complete(sheaf__stored_chat *s, const sheaf__tokenizer *t);
void sheaf__stored_chat_release(sheaf__stored_chat *s);

/* sheaf__tokenizer_folder - *out: `folder` (or NULL), where it has a tokenizer; else NULL. */
sheaf_status *sheaf__tokenizer_folder(const char **out, const char *folder);
/* sheaf__stored_chat_open - the tokenizer at `path` and what is stored beside it. Errors: those of
 * both; SHEAF_E_LAYOUT for more tokens than `vocab`. After a failure *out is NULL. */
sheaf_status *sheaf__stored_chat_open(sheaf__tokenizer **out, sheaf__stored_chat *stored,
                                      const char *path, int64_t vocab);

/* sheaf__chat_template_choose - the one `given` by name, else (NULL, empty or "stored") what the
 * tokenizer has stored. Errors: those of finding and of sheaf__chat_template_stored(); SHEAF_E_ARG
 * where neither is there. *out borrows from `stored`. */
sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored);
/* sheaf__chat_template_of_run - the one that a run's settings name: the tokenizer's own program
 * where that still has this name, as in the run. Errors: as sheaf__chat_template_choose(). */
sheaf_status *sheaf__chat_template_of_run(sheaf__chat_template **out, const char *name,
                                          const sheaf__stored_chat *stored);
