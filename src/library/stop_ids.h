/* stop_ids.h - which tokens end an answer. */
#ifndef SHEAF_LIBRARY_STOP_IDS_H
#define SHEAF_LIBRARY_STOP_IDS_H

#include "infer/wording.h"

/* sheaf__stop_ids - the ids that end an answer: generation_config.json's, else the config's, else
 * the tokenizer's. */
sheaf_status *sheaf__stop_ids(int64_t stop[SHEAF_MAX_EOS], int *n, const char *model,
                              const sheaf__wording *wording);

#endif
