/* chat_files.h - the chat template that a run used, as files beside what it wrote. */
#pragma once

#include "dialects/common/folder.h"

/* A chat template, and the model's tokenizer, which may store it already. */
typedef struct sheaf__chat_files {
    const char *name;      /* of one of ours, "chatml"; any other, or NULL: no files */
    const char *tokenizer; /* a folder, a file in it or a GGUF file; NULL: no files */
    const char *model;     /* folder of generation_config.json or config.json */
} sheaf__chat_files;

/* sheaf__chat_files_put - writes chat_template.jinja, and generation_config.json with the mark that
 * ends an answer among its eos_token_id, unless the tokenizer stores this template. Errors: those
 * of reading the tokenizer's and the model's files, and of writing. */
sheaf_status *sheaf__chat_files_put(sheaf_folder *folder, const sheaf__chat_files *files);

/* sheaf__chat_files_copy - both files, from a folder that has chat_template.jinja. */
sheaf_status *sheaf__chat_files_copy(sheaf_folder *folder, const char *from);
