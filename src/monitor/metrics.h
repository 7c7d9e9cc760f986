/* metrics.h - private: the file metrics.jsonl; its form stands in monitor.h. */
#ifndef SHEAF_MONITOR_METRICS_H
#define SHEAF_MONITOR_METRICS_H

#include "base/events.h"
#include "base/text.h"

/* Lines that could not be written (a full disk) wait in `pending` and are tried again
 * with the next one: a passing trouble leaves no hole and no half line. */
typedef struct sheaf_metrics {
    int fd;       /* -1: closed */
    int64_t end;  /* bytes of whole lines in the file */
    int64_t kept; /* lines of steps of an earlier run that stayed */
    char *path;
    sheaf_text pending;
} sheaf_metrics;

/* sheaf__metrics_open - keeps the leading lines with ascending steps up to keep_steps, and those of
 * evaluations after steps up to keep_evaluations, and cuts off the rest: later steps, a half line
 * of a crash, anything else. */
sheaf_status *sheaf__metrics_open(sheaf_metrics *metrics, const char *path, int64_t keep_steps,
                                  int64_t keep_evaluations);
/* sheaf__metrics_step - rank: [ranks] what it took each; NULL: not known. */
void sheaf__metrics_step(sheaf_metrics *metrics, const sheaf_event_step *step,
                         const sheaf_event_rank *rank, int ranks);
void sheaf__metrics_evaluation(sheaf_metrics *metrics, const sheaf_event_evaluation *evaluation);
/* sheaf__metrics_sync - SHEAF_E_IO when lines still wait or the disk refuses. */
sheaf_status *sheaf__metrics_sync(sheaf_metrics *metrics);
/* sheaf__metrics_close - does not sync. Harmless on a closed one. */
void sheaf__metrics_close(sheaf_metrics *metrics);

#endif
