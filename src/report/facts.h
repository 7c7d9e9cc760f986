/* facts.h - the data of a run for the report, as JSON:
 *
 *   {"name": "run", "path": "out/run", "state": "running", "steps": 400, "last_step": 120,
 *    "tokens": ..., "seconds": ..., "skipped": 0, "merged": 1,
 *    "settings": [["lr", "0.001"], ...], "starts": [{"started": ..., "host": ...}, ...],
 *    "points": {"step": [...], "loss": [...], "lowest": [...], "highest": [...], "lr": [...], ...},
 *    "evaluations": {"step": [...], "loss": [...], "accuracy": [...], "tokens": [...]},
 *    "samples": [{"of": "best", "step": 7, "reward": 1, "truncated": false, "prompt": "...",
 *                 "text": "..."}, {"of": "worst", ...}, {"of": "step", ...}, ...],
 *    "kinds": ["weights", ...], "ranks_since": 1, "ranks_steps": 120,
 *    "ranks": [{"compute": seconds, ..., "memory": bytes, "kinds": [...], "sent_to": [...]}, ...],
 *    "odd": ["metrics.jsonl: line 7: no JSON", ...]}
 *
 * Lists of points have null where a number is missing; of rewards there are lists only where a step
 * has some. `steps` is 0 where run.json does not have it. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "base/json_write.h"
#include "report/curves.h"
#include "report/samples.h"

/* What was read of a run so far; all zero: nothing. */
typedef struct sheaf__report_run {
    sheaf__curves curves;
    sheaf__samples samples;
} sheaf__report_run;

void sheaf__report_run_release(sheaf__report_run *run);

/* sheaf__report_facts - puts the object of the run in folder `path` into a list of `json`, and
 * warns of each thing that is odd.
 *   run  all zero, or as the last call for this run left it; release it in the end
 * Errors: SHEAF_E_ARG where no run is there; SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__report_facts(sheaf_json_writer *json, sheaf__report_run *run, const char *path,
                                  const sheaf_events *events);
