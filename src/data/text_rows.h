/* text_rows.h - private: rows of text for a data set or a cache: rows that are too long are
 * truncated, skipped or refused, as --on-long says, and counted. */
#pragma once

#include "data/data_rows.h"
#include "data/text_encode.h"

typedef struct sheaf__text_counts {
    int64_t limit; /* the most positions of a row */
    int64_t rows, longest;
    int64_t too_long, first_place, first_tokens, longest_seen; /* longer than the limit */
    int64_t cut, emptied; /* of these: truncated; left without an answer by that */
    int64_t left_out;     /* messages that the template does not write */
    int64_t written;      /* records with special tokens encoded as text */
    int64_t bad;          /* records that --on-bad skip left out */
} sheaf__text_counts;

/* The first unread field, or the first special token encoded as text. */
typedef struct sheaf__ignored {
    char field[64], where[40]; /* "line 7" */
    int64_t more;              /* records with the same one */
} sheaf__ignored;

/* sheaf__ignored_keep - keeps `field` of the record at `place`, if it is the first one; "":
 * none. */
void sheaf__ignored_keep(sheaf__ignored *ignored, const char *field, const char *unit,
                         int64_t place);
void sheaf__ignored_warn(const sheaf__ignored *ignored, const char *path,
                         const sheaf_events *events);
/* sheaf__lost_warn - warns of the first unread picture, sheaf__text_record.lost. */
void sheaf__lost_warn(const sheaf__ignored *lost, const char *path, const sheaf_config *config,
                      const sheaf_events *events);

/* sheaf__text_row_learns - has token i a label? */
static inline bool sheaf__text_row_learns(const sheaf__text_row *row, int64_t i)
{
    return row->label != NULL ? row->label[i] != SHEAF__NO_LABEL : row->trained[i] != 0;
}

struct sheaf__row_cache_writer;
struct sheaf__pictures;
typedef struct sheaf__row_writer {
    sheaf_data *data;
    struct sheaf__row_cache_writer *cache; /* destination of the rows; NULL: `data` */
    struct sheaf__pictures *pictures;      /* of rows with pictures, whose `label` is set */
    const float *mark; /* of data in memory: of the next rows, as sheaf_data has it; or NULL */
    int64_t across; /* the least --seq that cuts no picture, if the given one cuts some; else 0 */
} sheaf__row_writer;

/* sheaf__row_writer_fit - *keep: do the n rows of a record fit, truncated where --on-long allows
 * it? If not, counts them. Errors: SHEAF_E_DATA where a picture would be cut. */
sheaf_status *sheaf__row_writer_fit(bool *keep, sheaf__row_writer *writer,
                                    sheaf__text_counts *counts, const sheaf_data_options *options,
                                    sheaf__text_row *row, int n, int64_t place);
/* sheaf__row_writer_add - n rows that fit. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__row_writer_add(sheaf__row_writer *writer, sheaf__text_counts *counts,
                                    const sheaf__text_row *row, int n);
/* sheaf__row_writer_put - the n rows of a record, all or none. Errors: those of both. */
sheaf_status *sheaf__row_writer_put(sheaf__row_writer *writer, sheaf__text_counts *counts,
                                    const sheaf_data_options *options, sheaf__text_row *row, int n,
                                    int64_t place);
/* sheaf__text_counts_verdict - SHEAF_E_DATA for records that are too long, by --on-long error. */
sheaf_status *sheaf__text_counts_verdict(const sheaf__text_counts *counts,
                                         const sheaf_data_options *options, const char *unit);
/* sheaf__text_counts_note - notes what was truncated or left out of `records`, and special tokens
 * encoded as text; `written`: the first of them, where known. */
void sheaf__text_counts_note(const sheaf__text_counts *counts, const sheaf_data_options *options,
                             int64_t records, const sheaf__ignored *written);
