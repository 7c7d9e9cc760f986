/* store.h - private: the folder OUT/checkpoints as rank 0 sees it. */
#pragma once

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/manifest.h"

struct sheaf_checkpoints {
    char *dir;       /* OUT/checkpoints */
    int lock;        /* descriptor, -1 on other ranks than 0 */
    int64_t protect; /* a step that is never removed; 0: none */
    int64_t replace; /* a step that may be replaced; 0: none */
    sheaf_checkpoints_options options;
};

/* sheaf__store_path - "DIR/step-00000010" (malloc'd). */
sheaf_status *sheaf__store_path(char **out, const sheaf_checkpoints *store, int64_t step);
/* sheaf__store_prune - removes complete checkpoints except the `keep` newest. A failure is a
 * warning: the last save is safe. */
void sheaf__store_prune(const sheaf_checkpoints *store);
/* sheaf__checkpoint_from - takes `text` (malloc'd) in any case. */
sheaf_status *sheaf__checkpoint_from(sheaf_checkpoint **out, const char *dir, char *text,
                                     size_t size);
/* sheaf__checkpoint_open_manifest - does not check the other files. */
sheaf_status *sheaf__checkpoint_open_manifest(sheaf_checkpoint **out, const char *dir);
/* sheaf__checkpoint_examine - the file of `slice` (S: of the replicated tensors) alone. */
sheaf_status *sheaf__checkpoint_examine(sheaf_damages *damages, const sheaf_checkpoint *checkpoint,
                                        int slice, bool quick);
