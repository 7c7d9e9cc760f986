/* provenance.h - OUT/run.json: command, time, host and resources of each start of a run.
 *
 *   {"runs": [{"started": "2026-11-21T08:00:00Z", "step": 0, "steps": 40, "host": "node7", "pid":
 * 17, "version": "0.1.0", "cpu": "...", "ranks": 2, "threads": 8, "transport": "threads",
 * "command": ["train", ...]}, ...]}
 *
 * A key "base" beside "runs" has the run's origin (train/origin.h).
 *
 * One entry for each start and each resume, the newest last. All that may differ between two runs
 * with equal checkpoints is here and in metrics.jsonl, and nowhere else. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/events.h"

typedef struct sheaf_provenance {
    int64_t step;  /* steps done when this run begins */
    int64_t steps; /* in all */
    int ranks, threads;
    const char *transport;
    int nwords;
    const char *const *word; /* of the command line */
    const char *base;        /* JSON, for the key "base"; NULL: keeps that of the file */
} sheaf_provenance;

/* sheaf_provenance_add - adds an entry to the file at `path`, atomically. A malformed file is
 * replaced, with a warning: it must not prevent a run. Errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf_provenance_add(const char *path, const sheaf_provenance *run,
                                   const sheaf_events *events);

/* sheaf_provenance_steps - all steps of the run, as the newest start says; 0: it does not.
 *   root  what the file holds, NULL where it cannot be read */
int64_t sheaf_provenance_steps(const json_t *root);
/* sheaf_provenance_state - "running", "done" or "not running". */
const char *sheaf_provenance_state(bool running, int64_t last_step, int64_t steps);
