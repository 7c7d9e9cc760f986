/* info_tell.h - how `sheaf info` says what it found: as lines, or as keys of JSON. */
#pragma once

#include "base/json_write.h"
#include "checkpoint/store/checkpoint.h"
#include "cli/lib/cli.h"

typedef struct info_teller {
    cli *cli;
    sheaf_json_writer json;
    sheaf_text odd; /* --json: what is odd about the path at hand */
    bool tensors;
} info_teller;

/* A fact as a line or a key. */
void info_fact(info_teller *t, const char *key, const char *value);
void info_fact_int(info_teller *t, const char *key, int64_t value);
void info_fact_real(info_teller *t, const char *key, double value);
/* info_list_of - as JSON the list whose items, as JSON, are in `items`. */
void info_list_of(info_teller *t, const char *key, const sheaf_text *items);
/* info_odd - what is odd, in the words of a status; frees it. */
void info_odd(info_teller *t, sheaf_status *st);
/* info_end - of a path: what was odd about it, as JSON. */
void info_end(info_teller *t);
/* info_trained_by - how many parameters a checkpoint of the run, or step, at `path` trains. */
void info_trained_by(info_teller *t, sheaf_checkpoint *checkpoint, const char *path);

/* A checkpoint of training, the folder of a run, and a run's metrics.jsonl. */
void info_checkpoint(info_teller *t, sheaf_checkpoint *checkpoint, const char *path);
void info_run(info_teller *t, const char *path);
sheaf_status *info_metrics(info_teller *t, const char *path);
