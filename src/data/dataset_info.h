/* dataset_info.h - LLaMA-Factory's list of data sets, which is none itself. */
#ifndef SHEAF_DATA_DATASET_INFO_H
#define SHEAF_DATA_DATASET_INFO_H

#include "sheaf/status.h"

/* sheaf__dataset_info_check - errors: SHEAF_E_DATA where `path` is a dataset_info.json, or nothing
 * lies there and it is a name in the one of this folder or of data/; with the file to give. */
sheaf_status *sheaf__dataset_info_check(const char *path);

#endif
