/* tokenizer.h - the tokenizer of a run where its model's is not enough: with the tokens that it
 * adds, in a temporary folder, or the one beside the adapter that it starts from. */
#pragma once

#include "dialects/hf/chat_files.h"
#include "models/open.h"
#include "train/options.h"

typedef struct sheaf__run_tokenizer {
    char *folder;   /* owned; NULL: as the options say */
    char *tokens;   /* the tokens, a line "ID: TOKEN" each; NULL: none are added; owned */
    bool temporary; /* the folder goes with this struct */
    int lock;
} sheaf__run_tokenizer;

/* sheaf__run_added - the rows of the tokens of options->add_tokens; count 0: none. Errors: those of
 * the file and of the tokenizer that they are added to. */
sheaf_status *sheaf__run_added(sheaf__added_rows *out, const sheaf_train_options *options);
/* sheaf__run_tokenizer_open - `opened`: the base with the adapter. Release also after a failure. */
sheaf_status *sheaf__run_tokenizer_open(sheaf__run_tokenizer *out,
                                        const sheaf_train_options *options,
                                        const sheaf__opened *opened);
/* sheaf__run_chat_files - the chat template of the run, beside what it writes; `folder`: of its own
 * tokenizer, or NULL; `model`: where the base lies. */
sheaf__chat_files sheaf__run_chat_files(const sheaf_train_options *options, const char *model,
                                        const char *folder);
void sheaf__run_tokenizer_release(sheaf__run_tokenizer *tokenizer);
