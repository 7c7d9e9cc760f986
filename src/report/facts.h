/* facts.h - the data of a run for the report, as JSON:
 *
 *   {"name": "run", "path": "out/run", "state": "running", "steps": 400, "last_step": 120,
 *    "tokens": ..., "seconds": ..., "skipped": 0, "merged": 1,
 *    "settings": [["lr", "0.001"], ...], "starts": [{"started": ..., "host": ...}, ...],
 *    "points": {"step": [...], "loss": [...], "lowest": [...], "highest": [...], "lr": [...], ...},
 *    "evaluations": {"step": [...], "loss": [...], "accuracy": [...], "tokens": [...]},
 *    "kinds": ["weights", ...], "ranks_since": 1, "ranks_steps": 120,
 *    "ranks": [{"compute": seconds, ..., "memory": bytes, "kinds": [...], "sent_to": [...]}, ...],
 *    "odd": ["metrics.jsonl: line 7: no JSON", ...]}
 *
 * Lists of points have null where a number is missing. `steps` is 0 where run.json does not have
 * it. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "base/json_write.h"
#include "report/curves.h"

/* sheaf__report_facts - puts the object of the run in folder `path` into a list of `json`, and
 * warns of each thing that is odd.
 *   curves  all zero, or as the last call for this run left them; release them in the end
 * Errors: SHEAF_E_ARG where no run is there; SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__report_facts(sheaf_json_writer *json, sheaf__curves *curves, const char *path,
                                  const sheaf_events *events);
