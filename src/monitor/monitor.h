/* monitor.h - writes events to files: metrics.jsonl and TensorBoard's. What people see is
 * progress.h's.
 *
 * One monitor belongs to rank 0; its sink may be called from several threads.
 *
 * metrics.jsonl gets one line a step, written in one piece:
 *   {"step": 1, "loss": 6.45, "grad_norm": 0.86, "lr": 0.02, "tokens": 63,
 *    "tokens_per_s": 812.5}
 * and "skipped": true where a step was. Numbers round-trip; what is not finite is
 * null. A step appears once: when a run resumes, lines of later steps are removed first. An
 * evaluation is a line after that of its step, with other keys:
 *   {"step": 20, "eval_loss": 5.31, "eval_accuracy": 0.125, "eval_tokens": 4096}
 *
 * TensorBoard gets the same numbers: a file of events at each start (tensorboard.h). */
#pragma once

#include "base/events.h"
#include "sheaf/status.h"

typedef struct sheaf_monitor sheaf_monitor;

typedef struct sheaf_monitor_options {
    const char *metrics;        /* path of metrics.jsonl, made if absent; NULL: none */
    const char *tensorboard;    /* folder for a file of TensorBoard's, made if absent; NULL: none */
    int64_t keep_steps;         /* lines of steps 1 .. keep_steps stay: 0 for a new run, the
                                   checkpoint's step for a resumed one */
    int64_t keep_evaluations;   /* lines of evaluations after these steps stay */
    const sheaf_events *events; /* hear of a file that has lost lines; may be NULL */
} sheaf_monitor_options;

/* sheaf_monitor_open - errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf_monitor_open(sheaf_monitor **out, const sheaf_monitor_options *options);
/* sheaf_monitor_events - the sink; valid until close. */
const sheaf_events *sheaf_monitor_events(sheaf_monitor *monitor);
/* sheaf_monitor_sync - both files on disk, and the first failure to write one (a sink cannot
 * return it). To be called before a checkpoint is committed, so that no step of a
 * finished checkpoint is missing from the metrics even if the machine dies. */
sheaf_status *sheaf_monitor_sync(sheaf_monitor *monitor);
/* sheaf_monitor_close - syncs. Accepts NULL. */
sheaf_status *sheaf_monitor_close(sheaf_monitor *monitor);
