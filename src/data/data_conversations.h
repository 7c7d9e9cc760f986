/* data_conversations.h - private: what data_text.c makes of records with pictures: OmniLMM's and
 * MiniCPM-V's training data.
 *
 * A record is one of text_record.h's with a conversation (or a prompt and its completion), and with
 * pictures as record_pictures.h has them. Those that no message names stand in front of the first.
 * Paths are relative to the file's folder. */
#pragma once

#include "data/text_rows.h"
#include "data/text_sources.h"

typedef struct sheaf__conversations sheaf__conversations;

/* sheaf__conversations_open - opens tokenizer and template of `sources`, which has the file. Close
 * also after a failure; `fields` until then. Errors: SHEAF_E_UNSUPPORTED for several files, and
 * those of the sources. */
sheaf_status *sheaf__conversations_open(sheaf__conversations **out, sheaf_data *data,
                                        const char *path, sheaf__text_sources *sources,
                                        const sheaf__fields *fields,
                                        const sheaf_data_options *options);
/* sheaf__conversations_read - a record with a look at its pictures, which are put in their places,
 * encoded, and which tokens are learned. Errors: SHEAF_E_DATA (field), those of pictures, template
 * and tokenizer. *out is empty after a failure; release `record` also then. Thread-safe. */
sheaf_status *sheaf__conversations_read(sheaf__text_row *out, sheaf__text_record *record,
                                        const sheaf__conversations *conversations, const char *text,
                                        size_t size);
/* sheaf__conversations_fit - is it short enough, perhaps without its end? Errors: SHEAF_E_DATA
 * where a picture would be cut. */
sheaf_status *sheaf__conversations_fit(bool *keep, sheaf__conversations *conversations,
                                       sheaf__text_counts *counts, sheaf__text_row *row,
                                       int64_t place);
/* sheaf__conversations_put - one more row of the data set. */
sheaf_status *sheaf__conversations_put(sheaf__conversations *conversations,
                                       sheaf__text_counts *counts, sheaf__text_row *row);
/* sheaf__conversations_advise - what to try, where pictures would have been cut. */
sheaf_status *sheaf__conversations_advise(const sheaf__conversations *conversations,
                                          sheaf_status *st);
/* sheaf__conversations_keep - all rows are there: the data set owns the pictures. */
sheaf_status *sheaf__conversations_keep(sheaf__conversations *conversations);
void sheaf__conversations_close(sheaf__conversations *conversations); /* accepts NULL */
