/* text_sources.h - private: what texts are read with: files, tokenizer and chat template. */
#pragma once

#include "base/file.h"
#include "data/text_encode.h"
#include "inputs/chat/stored.h"

typedef struct sheaf__text_sources {
    char **path;           /* [paths] of the data, owned */
    sheaf_file_mark *mark; /* [paths] before anything of them was read */
    int64_t paths;
    int64_t bytes;  /* of all files */
    int64_t passed; /* entries of the folder that are not read, but hidden ones */
    char first[96]; /* of these; a long name is cut */
    sheaf__tokenizer *tokenizer;
    sheaf__stored_chat stored;  /* beside the tokenizer */
    sheaf__chat_template *chat; /* NULL until it is needed */
    sheaf__text_encoder encoder;
} sheaf__text_sources;

/* sheaf__text_sources_files - the file `path`, or those of the folder that are JSON by their names
 * (.json, .jsonl, .ndjson, each also .gz or .zst), by name. Errors: SHEAF_E_IO, SHEAF_E_DATA for a
 * folder with none. Release also after a failure. */
sheaf_status *sheaf__text_sources_files(sheaf__text_sources *out, const char *path);
/* sheaf__text_sources_open - the tokenizer that the model's texts are read with. Errors: those of
 * the tokenizer; SHEAF_E_UNSUPPORTED without one; SHEAF_E_LAYOUT for one that has more tokens than
 * the model has rows; SHEAF_E_ARG for one that is given for a vocabulary of bytes. */
sheaf_status *sheaf__text_sources_open(sheaf__text_sources *sources,
                                       const sheaf_data_options *options);
/* sheaf__text_sources_chat - the template that is given by name, or the one that the tokenizer
 * stores; without either none, which is no error. Errors also: SHEAF_E_ARG for one that writes a
 * date where none is given. */
sheaf_status *sheaf__text_sources_chat(sheaf__text_sources *sources,
                                       const sheaf_data_options *options);
void sheaf__text_sources_release(sheaf__text_sources *sources);

/* sheaf__text_key - a name for all that the rows follow from, 32 hex digits (text_key.c): the bytes
 * of the data files (not their names), of the tokenizer's files, its class and what of the options
 * reaches a row.
 * Errors: SHEAF_E_IO, SHEAF_E_FORMAT of what lies beside the tokenizer, SHEAF_E_STOPPED,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__text_key(char out[33], const sheaf__text_sources *sources,
                              const sheaf_data_options *options);
