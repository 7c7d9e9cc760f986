/* rollout_log.h - OUT/rollouts.jsonl: what a run has learnt from, a line for each completion, with
 * "step": the first step that learns from it. Of given completions a line has "logps" alone.
 *
 * A batch is in the file, whole, before its first step begins; a run that goes on reads it there.
 * So what cannot be computed again, rewards of a program and log-probabilities under a model that
 * has changed since, is the same as if the run had not stopped. */
#pragma once

#include "base/file.h"
#include "sheaf/status.h"

typedef struct sheaf__rollout_log {
    char *path;
    int64_t rows, every; /* completions of a batch; steps that learn from it */
    int64_t *end;        /* [batches] where each ends in the file */
    int64_t batches, capacity;
} sheaf__rollout_log;

/* sheaf__rollout_log_open - of the run in folder `out`. resume: whole batches of the file count,
 * what is behind them is written again; else none does. Close also after a failure. */
sheaf_status *sheaf__rollout_log_open(sheaf__rollout_log *log, const char *out, bool resume,
                                      int64_t rows, int64_t every);
void sheaf__rollout_log_close(sheaf__rollout_log *log);
/* sheaf__rollout_log_find - the lines of a batch (malloc'd); NULL: it is not there. */
sheaf_status *sheaf__rollout_log_find(char **text, const sheaf__rollout_log *log, int64_t batch);
/* sheaf__rollout_log_add - the next batch, on disk when this returns. */
sheaf_status *sheaf__rollout_log_add(sheaf__rollout_log *log, const char *text, size_t size);
