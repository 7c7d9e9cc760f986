/* info.h - private: the facts of a path, written one after the other as keys of one object. */
#pragma once

#include "base/json_write.h"
#include "checkpoint/store/checkpoint.h"
#include "sheaf/checkpoint.h"

typedef struct sheaf__info {
    sheaf_json_writer json;
    sheaf_text odd; /* entries of the list of what is odd about it */
    bool tensors;
} sheaf__info;

/* sheaf__info_odd - what is odd, in the words of a status; frees it. */
void sheaf__info_odd(sheaf__info *t, sheaf_status *st);
/* sheaf__info_trained_by - how many parameters a checkpoint of the run, or step, at `path` trains.
 */
void sheaf__info_trained_by(sheaf__info *t, sheaf_checkpoint *checkpoint, const char *path);

/* A checkpoint of training, the folder of a run, and a run's metrics.jsonl. */
void sheaf__info_checkpoint(sheaf__info *t, sheaf_checkpoint *checkpoint, const char *path);
void sheaf__info_run(sheaf__info *t, const char *path);
sheaf_status *sheaf__info_metrics(sheaf__info *t, const char *path);
