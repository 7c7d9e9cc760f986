/* row_cache.h - a cache of tokenised rows on disk.
 *
 * DIR/KEY/ holds four files of numbers (little-endian) and a manifest, and appears only when it is
 * complete:
 *   begin     int64 [rows + 1]  row r has tokens [begin[r], begin[r + 1])
 *   labels    int32 [rows]      learned tokens of a row, after the shift
 *   token     int32 [tokens]
 *   trained   uint8 [tokens]    1: the token is a label, 2: the label is the end of an answer
 *   manifest.json               sizes and hashes of the four
 * KEY is the hash of everything that determines the rows: the bytes of the data, tokenizer,
 * template and options. The files are read and hashed before use; a cache that does not match is
 * rebuilt. DIR also gets a CACHEDIR.TAG, by which backups know that it can be made again. */
#pragma once

#include "data/data_rows.h"
#include "data/text_rows.h"

/* Counts of the records behind the rows, for the notes. */
typedef struct sheaf__row_cache_facts {
    sheaf__text_counts counts;
    int64_t records;
    int64_t end;              /* of sheaf_data; 0: none */
    char prompt_template[64]; /* "" for none */
} sheaf__row_cache_facts;

/* sheaf__row_cache_open - opens the rows of DIR/KEY as those of `data`; *found false: there is no
 * valid cache. A damaged one gives a warning. Errors: SHEAF_E_IO, SHEAF_E_MEMORY,
 * SHEAF_E_STOPPED. */
sheaf_status *sheaf__row_cache_open(bool *found, sheaf_data *data, sheaf__row_cache_facts *facts,
                                    const char *dir, const char *key,
                                    const sheaf_data_options *options);
/* sheaf__row_cache_close - accepts data in memory. */
void sheaf__row_cache_close(sheaf_data *data);
/* sheaf__row_cache_read - the tokens of a row and their `trained` flags, into arrays as long as the
 * row. Thread-safe. Errors: SHEAF_E_IO, SHEAF_E_FORMAT for files that changed since they were
 * opened. */
sheaf_status *sheaf__row_cache_read(int32_t *token, uint8_t *trained, const sheaf_data *data,
                                    int64_t row);

typedef struct sheaf__row_cache_writer sheaf__row_cache_writer;
/* sheaf__row_cache_begin - first removes what a killed process left of DIR/KEY. Errors: SHEAF_E_IO,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__row_cache_begin(sheaf__row_cache_writer **out, const char *dir,
                                     const char *key, const sheaf_events *events);
/* sheaf__row_cache_put - errors: SHEAF_E_IO. */
sheaf_status *sheaf__row_cache_put(sheaf__row_cache_writer *writer, const int32_t *id,
                                   const uint8_t *trained, int64_t count);
/* sheaf__row_cache_commit - DIR/KEY is complete when it returns; frees the writer in any case. */
sheaf_status *sheaf__row_cache_commit(sheaf__row_cache_writer *writer,
                                      const sheaf__row_cache_facts *facts);
void sheaf__row_cache_abandon(sheaf__row_cache_writer *writer); /* accepts NULL */

/* sheaf__row_cache_is - is `dir` a folder of caches and nothing else? */
bool sheaf__row_cache_is(const char *dir);
