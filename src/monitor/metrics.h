/* metrics.h - private: the file metrics.jsonl; its format is in monitor.h. */
#pragma once

#include "base/events.h"
#include "monitor/appended.h"

typedef struct sheaf_metrics {
    sheaf__appended file; /* all zero: closed */
    int64_t kept;         /* lines of steps of an earlier run that stayed */
} sheaf_metrics;

/* sheaf__metrics_open - keeps the leading lines with ascending steps up to keep_steps, and those of
 * evaluations after steps up to keep_evaluations, and cuts off the rest: later steps, a half line
 * of a crash, anything else. */
sheaf_status *sheaf__metrics_open(sheaf_metrics *metrics, const char *path, int64_t keep_steps,
                                  int64_t keep_evaluations);
/* sheaf__metrics_step - rank: [ranks] usage of each; NULL: not known. */
void sheaf__metrics_step(sheaf_metrics *metrics, const sheaf_event_step *step,
                         const sheaf_event_rank *rank, const sheaf_event_spent *spent,
                         const sheaf_event_offload *offload, int ranks);
void sheaf__metrics_evaluation(sheaf_metrics *metrics, const sheaf_event_evaluation *evaluation);

/* The end of the file. */
typedef struct sheaf__metrics_last {
    int64_t step;                          /* 0: none is done */
    double loss;                           /* NaN: not finite */
    double tokens_per_s, seconds_per_step; /* of the last steps; 0: not known */
    int64_t eval_step;                     /* 0: none */
    double eval_loss;
} sheaf__metrics_last;

/* sheaf__metrics_read - the end of the file, also while a run writes it. Errors: SHEAF_E_IO, and
 * SHEAF_E_FORMAT if its last whole line is not one of metrics.jsonl: `out` then is from the lines
 * before.
 */
sheaf_status *sheaf__metrics_read(sheaf__metrics_last *out, const char *path);
