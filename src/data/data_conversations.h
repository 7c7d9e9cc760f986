/* data_conversations.h - private: records with pictures for data_text.c: OmniLMM's and MiniCPM-V's
 * training data.
 *
 * A record is one of text_record.h's with a conversation (or a prompt and its completion), and with
 * pictures in the forms of record_pictures.h. Pictures that no message names stand in front of the
 * first message. Paths are relative to the file's folder. */
#pragma once

#include "data/text_rows.h"
#include "data/text_sources.h"

typedef struct sheaf__conversations sheaf__conversations;

/* sheaf__conversations_open - opens tokenizer and template of `sources`, which has the file; `rows`
 * gets the pictures. Close also after a failure. Errors: SHEAF_E_UNSUPPORTED for several files, and
 * those of the sources. */
sheaf_status *sheaf__conversations_open(sheaf__conversations **out, sheaf__row_writer *rows,
                                        const char *path, sheaf__text_sources *sources,
                                        const sheaf_data_options *options);
/* sheaf__conversations_record - how its records are read. */
sheaf__text_record sheaf__conversations_record(const sheaf__conversations *conversations);
/* sheaf__conversations_encode - reads the pictures of a record, puts these in their places, encodes
 * all of it and sets the labels. Errors: SHEAF_E_DATA (field), those of pictures, template and
 * tokenizer. *out is empty after a failure. Thread-safe. */
sheaf_status *sheaf__conversations_encode(sheaf__text_row *out, sheaf__text_record *record,
                                          const sheaf__conversations *conversations);
/* sheaf__conversations_keep - after the last row: the data set owns the pictures from now on. */
sheaf_status *sheaf__conversations_keep(sheaf__conversations *conversations);
void sheaf__conversations_close(sheaf__conversations *conversations); /* accepts NULL */
