/* row_cache.h - rows of tokenised text on disk, made once and read from there afterwards.
 *
 * DIR/KEY/ holds four files of numbers (little-endian) and a manifest, and appears only when it is
 * complete:
 *   begin     int64 [rows + 1]  row r has tokens [begin[r], begin[r + 1])
 *   labels    int32 [rows]      learned tokens of a row, after the shift
 *   token     int32 [tokens]
 *   trained   uint8 [tokens]    1: the token is a label
 *   manifest.json               what the four must be, with their hashes
 * KEY is the hash of all that rows follow from: the bytes of the data, tokenizer, template and
 * options. All of it is read and hashed before it is used; what does not agree is made anew. DIR
 * also gets a CACHEDIR.TAG, by which backups know that it can be made again. */
#pragma once

#include "data/data_rows.h"
#include "data/text_rows.h"

/* The records that rows were made from, for the notes. */
typedef struct sheaf__row_cache_facts {
    sheaf__text_counts counts;
    int64_t records;
    char prompt_template[64]; /* "" for none */
} sheaf__row_cache_facts;

/* sheaf__row_cache_open - `data` has the rows of DIR/KEY, when it is there and whole: *found. One
 * that is not is warned of. Errors: SHEAF_E_IO, SHEAF_E_MEMORY, SHEAF_E_STOPPED. */
sheaf_status *sheaf__row_cache_open(bool *found, sheaf_data *data, sheaf__row_cache_facts *facts,
                                    const char *dir, const char *key,
                                    const sheaf_data_options *options);
/* sheaf__row_cache_close - accepts data that lie in memory. */
void sheaf__row_cache_close(sheaf_data *data);
/* sheaf__row_cache_read - the tokens of a row, and which of them are learned; space for all of
 * both. Thread-safe. Errors: SHEAF_E_IO, SHEAF_E_FORMAT for files that changed since they were
 * opened. */
sheaf_status *sheaf__row_cache_read(int32_t *token, uint8_t *trained, const sheaf_data *data,
                                    int64_t row);

typedef struct sheaf__row_cache_writer sheaf__row_cache_writer;
/* sheaf__row_cache_begin - what a killed process left of DIR/KEY goes first. Errors: SHEAF_E_IO,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__row_cache_begin(sheaf__row_cache_writer **out, const char *dir,
                                     const char *key, const sheaf_events *events);
/* sheaf__row_cache_put - errors: SHEAF_E_IO. */
sheaf_status *sheaf__row_cache_put(sheaf__row_cache_writer *writer, const int32_t *id,
                                   const uint8_t *trained, int64_t count);
/* sheaf__row_cache_commit - DIR/KEY is there when it returns; frees the writer in any case. */
sheaf_status *sheaf__row_cache_commit(sheaf__row_cache_writer *writer,
                                      const sheaf__row_cache_facts *facts);
void sheaf__row_cache_abandon(sheaf__row_cache_writer *writer); /* accepts NULL */

/* sheaf__row_cache_is - is `dir` a folder that only holds caches? */
bool sheaf__row_cache_is(const char *dir);
