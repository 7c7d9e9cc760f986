/* dataset_info.h - what is given as a data set and is the name of one: LLaMA-Factory's list, a name
 * in it, a name of a hub. */
#pragma once

#include "sheaf/status.h"

/* sheaf__dataset_info_check - errors: SHEAF_E_DATA where `path` is a dataset_info.json, or nothing
 * lies there and it is a name in the one of this folder or of data/, with the file to give;
 * SHEAF_E_IO where it reads like the name of one on a hub (sheaf__path_hub()). */
sheaf_status *sheaf__dataset_info_check(const char *path);
