/* data_read.h - private: the readers of a data set, one for each form it may have. */
#pragma once

#include "data/data_rows.h"

/* Each puts `path` before its own errors. */
sheaf_status *sheaf__data_read_text(sheaf_data *data, const char *path,
                                    const sheaf_data_options *options);
sheaf_status *sheaf__data_read_safetensors(sheaf_data *data, const char *path,
                                           const sheaf_data_options *options);
sheaf_status *sheaf__data_read_records(sheaf_data *data, const char *path,
                                       const sheaf_data_options *options);
/* sheaf__data_count - counts of each row; refuses a data set that trains nothing, but for prompts.
 */
sheaf_status *sheaf__data_count(sheaf_data *data, bool prompts);
