/* pack.h - private: rows of a data set that share one row of a batch.
 *
 * Each row goes, in the order of the file, into the first packed row that still has room for it
 * (first fit). So the packs follow from the lengths of the rows and from `seq` alone. */
#ifndef SHEAF_DATA_PACK_H
#define SHEAF_DATA_PACK_H

#include "data/data_rows.h"

/* sheaf__data_pack - packed rows of at most `seq` positions; no row is longer. data->longest
 * becomes that of a packed row. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__data_pack(sheaf_data *data, int64_t seq);

#endif
