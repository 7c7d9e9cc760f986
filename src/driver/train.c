/* train.c - `sheaf train`: the ranks of a run where the driver puts them. */
#include "base/base.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "comm/watch/watch.h"
#include "driver/launch.h"
#include "driver/launched.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "library/session.h"
#include "sheaf/train.h"

typedef struct start {
    driver *driver;
    const sheaf_train_options *o;
    int argc;
    char **argv;
    bool elsewhere; /* other processes did it, and ended with... */
    int code;
} start;

/* What the settings turn out to ask for. */
static sheaf_status *ready(void *self)
{
    start *s = self;
    const sheaf_train_options *o = s->o;
    sheaf_status *st = o->transport == SHEAF_TRANSPORT_MPI
                           ? NULL
                           : driver_processes_alone(&s->elsewhere, s->driver);
    if (st != NULL)
        return st;
    if (o->transport != SHEAF_TRANSPORT_MPI || o->tp * o->dp == 1 ||
        sheaf__launcher_look().name != NULL)
        return driver_signals_install();
    return driver_processes_launch(&s->elsewhere, &s->code,
                                   &(driver_launch_options){ .processes = o->tp * o->dp,
                                                             .mpi = o->mpi,
                                                             .hosts = o->hosts,
                                                             .hostfile = o->hostfile,
                                                             .argc = s->argc,
                                                             .argv = s->argv });
}

/* How many ranks a run has that goes on: what fails to say so, fails again in the run itself. */
static void look_back(const sheaf__run_settings *run)
{
    const sheaf_train_options *o = run->options;
    char *stored = NULL;
    int64_t step = 0;
    sheaf_status *st = o->resume ? sheaf_train_peek(&stored, &step, o->out) : NULL;
    if (st == NULL && stored != NULL)
        st = sheaf__settings_resume(run->state, run->table, stored, o->out);
    sheaf_status_free(st);
    free(stored);
}

static int supervise(driver *d, const sheaf__run_settings *run, int argc, char **argv)
{
    int code = DRIVER_DONE;
    look_back(run);
    sheaf_status *st = driver_supervise(&code, d, run->options, argc, argv);
    return st == NULL ? code : driver_report(d, st);
}

int driver_train(driver *d, sheaf__run_settings *run, sheaf_status *st, int argc, char **argv)
{
    start s = { .driver = d, .o = run->options, .argc = argc, .argv = argv };
    const sheaf__watch_hooks watch = { .end = driver_end, .begun = driver_joined, .self = d };
    const sheaf__run_driver by = { .nwords = argc,
                                   .word = (const char *const *)argv,
                                   .ready = ready,
                                   .self = &s,
                                   .spent = driver_spent_before(),
                                   .join = d->join,
                                   .watch = &watch };
    sheaf_run_train_options how;
    sheaf_run_train_report report;
    SHEAF_INIT(&how);
    SHEAF_INIT(&report);
    driver_split_rank();
    if (st == NULL && s.o->restarts > 0 && !driver_is_supervised())
        return supervise(d, run, argc, argv);
    run->driver = &by;
    how.events = &d->events;
    how.control = driver_signals();
    TRY(st, sheaf__run_train(&report, run, &how));
    run->driver = NULL;
    if (s.elsewhere) {
        sheaf_status_free(st);
        return s.code;
    }
    if (st != NULL && driver_signals_stopped_by() != NULL)
        st = sheaf_in(st, "%s", driver_signals_stopped_by());
    driver_progress_end(d);
    if (report.json != NULL) { /* of several processes the first one's */
        fputs(d->json ? report.json : report.text, d->out);
        fputs(d->json ? "\n" : "", d->out);
    }
    sheaf_run_train_report_release(&report);
    if (sheaf__all_first(driver_all(d)))
        driver_verdict(st);
    return driver_report(d, st);
}
