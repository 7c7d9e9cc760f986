/* pack.h - rows of a data set that share one row of a batch.
 *
 * Each row goes, in the order of the file, into the first packed row that still has room for it
 * (first fit). So the packs follow from the lengths of the rows and from --seq alone. */
#pragma once

#include "data/data.h"

/* sheaf_data_pack - the rows row[0..rows) of a data set that was opened with `pack`, as packed rows
 * of at most its --seq positions: a data set that reads `of`, and is closed before it.
 *   row  ascending; NULL: all
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_pack(sheaf_data **out, const sheaf_data *of, const int64_t *row,
                              int64_t rows);
