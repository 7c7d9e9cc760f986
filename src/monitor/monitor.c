/* monitor.c - see monitor.h. */
#include "monitor/monitor.h"

#include <pthread.h>

#include "base/base.h"
#include "monitor/metrics.h"
#include "monitor/tensorboard.h"

struct sheaf_monitor {
    pthread_mutex_t lock; /* for all members below */
    sheaf_events events;
    sheaf_metrics metrics;
    sheaf__appended tensorboard;
};

static void take(void *context, const sheaf_event *event)
{
    sheaf_monitor *m = context;
    pthread_mutex_lock(&m->lock);
    if (event->kind == SHEAF_EVENT_STEP) {
        sheaf__metrics_step(&m->metrics, &event->step, event->rank, event->spent, event->offload,
                            event->ranks);
        sheaf__tensorboard_step(&m->tensorboard, &event->step);
    } else if (event->kind == SHEAF_EVENT_EVALUATION) {
        sheaf__metrics_evaluation(&m->metrics, &event->evaluation);
        sheaf__tensorboard_evaluation(&m->tensorboard, &event->evaluation);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- open and close ---- */

sheaf_status *sheaf_monitor_open(sheaf_monitor **out, const sheaf_monitor_options *options)
{
    sheaf_monitor *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("out of memory");
    sheaf_status *st = NULL;
    if (options->metrics != NULL)
        st = sheaf__metrics_open(&m->metrics, options->metrics, options->keep_steps,
                                 options->keep_evaluations);
    if (st == NULL && options->tensorboard != NULL)
        st = sheaf__tensorboard_open(&m->tensorboard, options->tensorboard, options->keep_steps);
    if (st != NULL) {
        sheaf__appended_close(&m->metrics.file);
        free(m);
        return st;
    }
    pthread_mutex_init(&m->lock, NULL);
    m->events = (sheaf_events){ take, m };
    if (sheaf__appended_is_open(&m->metrics.file) && m->metrics.kept < options->keep_steps)
        sheaf_warn(options->events,
                   "%s: only %" PRId64 " of the %" PRId64 " steps before this one have a line",
                   options->metrics, m->metrics.kept, options->keep_steps);
    *out = m;
    return NULL;
}

const sheaf_events *sheaf_monitor_events(sheaf_monitor *monitor)
{
    return &monitor->events;
}

/* Both, also where one fails; the first failure. */
static sheaf_status *sync_files(sheaf_monitor *m)
{
    sheaf_status *st = sheaf__appended_sync(&m->metrics.file),
                 *other = sheaf__appended_sync(&m->tensorboard);
    return sheaf__first_of(st, other);
}

sheaf_status *sheaf_monitor_sync(sheaf_monitor *monitor)
{
    pthread_mutex_lock(&monitor->lock);
    sheaf_status *st = sync_files(monitor);
    pthread_mutex_unlock(&monitor->lock);
    return st;
}

sheaf_status *sheaf_monitor_close(sheaf_monitor *monitor)
{
    if (monitor == NULL)
        return NULL;
    sheaf_status *st = sync_files(monitor);
    sheaf__appended_close(&monitor->metrics.file);
    sheaf__appended_close(&monitor->tensorboard);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
    return st;
}
