/* text_sources.h - private: the sources of texts: files, tokenizer and chat template. */
#pragma once

#include "base/file.h"
#include "data/text_encode.h"
#include "inputs/chat/stored.h"

typedef struct sheaf__text_sources {
    char **path;           /* [paths] of the data, owned */
    sheaf_file_mark *mark; /* [paths] taken before reading */
    int64_t paths;
    int64_t bytes;  /* of all files */
    int64_t passed; /* unread entries of the folder, except hidden ones */
    char first[96]; /* the first of these; a long name is truncated */
    sheaf__tokenizer *tokenizer;
    sheaf__stored_chat stored;  /* beside the tokenizer */
    sheaf__chat_template *chat; /* NULL until it is needed */
    sheaf__text_encoder encoder;
} sheaf__text_sources;

/* sheaf__text_sources_files - the file `path`, or those of the folder that are JSON by their names
 * (.json, .jsonl, .ndjson, each also .gz or .zst), by name. Errors: SHEAF_E_IO, SHEAF_E_DATA for a
 * folder with none. Release also after a failure. */
sheaf_status *sheaf__text_sources_files(sheaf__text_sources *out, const char *path);
/* sheaf__text_sources_open - opens the model's tokenizer. Errors: those of the tokenizer;
 * SHEAF_E_UNSUPPORTED without one; SHEAF_E_LAYOUT for one that has more tokens than the model has
 * rows; SHEAF_E_ARG for a --tokenizer where the vocabulary is bytes. */
sheaf_status *sheaf__text_sources_open(sheaf__text_sources *sources,
                                       const sheaf_data_options *options);
/* sheaf__text_sources_chat - opens the template given by name, else the one that the tokenizer
 * stores; having neither is no error. Errors also: SHEAF_E_ARG for a template that needs a date
 * where none is given. */
sheaf_status *sheaf__text_sources_chat(sheaf__text_sources *sources,
                                       const sheaf_data_options *options);
void sheaf__text_sources_release(sheaf__text_sources *sources);

/* sheaf__text_key - the key of a cache, 32 hex digits (text_key.c), from everything that determines
 * the rows: the bytes of the data files (not their names) and of the tokenizer's files, its class,
 * and the options that change rows. Errors: SHEAF_E_IO, SHEAF_E_FORMAT of the files beside the
 * tokenizer, SHEAF_E_STOPPED, SHEAF_E_MEMORY. */
sheaf_status *sheaf__text_key(char out[33], const sheaf__text_sources *sources,
                              const sheaf_data_options *options);
