/* stored_rows.h - the rows of a frozen vocabulary table, which stay in the model's files: a step
 * reads one of them for each of its tokens. Loading goes through all rows once and
 * keeps a hash of each, by which every later read is checked: files that change, or are read
 * wrongly, stop a run and never change a result. */
#pragma once

#include "sheaf/source.h"
#include "tape/tape.h"

typedef struct sheaf__stored_rows {
    sheaf_source *source; /* borrowed for as long as the model lives; NULL before loading */
    const char *name;     /* of the tensor [vocab, width]; borrowed */
    int64_t width;
    sheaf_dtype dtype; /* as stored */
    uint64_t *print;   /* of each row, when the model was loaded */
    bool finite;       /* all owned rows, in the compute dtype */
} sheaf__stored_rows;

/* sheaf__row_hash - the hash of a row's bytes: the lower half of XXH3-128. */
uint64_t sheaf__row_hash(const void *row, size_t bytes);

/* sheaf__stored_row - x, the host's = row `row`, rounded to the compute dtype.
 * Thread-safe.
 *   scratch  as many bytes as a row takes in the files
 * SHEAF_E_IO, SHEAF_E_FORMAT: it cannot be read, or is not what it was. The op names the tensor. */
sheaf_status *sheaf__stored_row(void *x, const sheaf__context *context,
                                const sheaf__stored_rows *rows, int64_t row, void *scratch);
