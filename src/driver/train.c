/* train.c - `sheaf train`: the ranks of a run where the driver puts them. */
#include "driver/driver.h"

#include "base/base.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "comm/watch/watch.h"
#include "driver/launch.h"
#include "driver/member.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "library/session.h"
#include "sheaf/train.h"

typedef struct start {
    driver *driver;
    const sheaf_train_options *o;
    bool elsewhere; /* other processes did the work, and ended with... */
    int code;
} start;

static sheaf_status *launch(start *s, bool restarts)
{
    const sheaf_train_options *o = s->o;
    const int ranks = o->transport == SHEAF_TRANSPORT_MPI ? o->tp * o->dp : 1;
    return driver_launch(&s->code, s->driver,
                         &(driver_launch_options){ .processes = ranks > 1 ? ranks : 0,
                                                   .mpi = o->mpi,
                                                   .hosts = o->hosts,
                                                   .hostfile = o->hostfile,
                                                   .argc = s->driver->argc,
                                                   .argv = s->driver->argv,
                                                   .run = restarts ? o : NULL });
}

/* The settings are complete: are several processes needed? */
static sheaf_status *ready(bool *elsewhere, void *self)
{
    start *s = self;
    const sheaf_train_options *o = s->o;
    sheaf_status *st = NULL;
    if (o->transport != SHEAF_TRANSPORT_MPI) {
        s->elsewhere = driver_processes_elsewhere(s->driver);
    } else if (o->tp * o->dp > 1 && sheaf__launcher_look().name == NULL) {
        st = launch(s, false);
        s->elsewhere = st == NULL;
    }
    *elsewhere = s->elsewhere;
    return st != NULL || s->elsewhere ? st : driver_signals_install();
}

/* The number of ranks of a resumed run: a failure here comes again in the run itself. */
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

/* With --restarts this process launches the run. */
static sheaf_status *supervise(start *s, const sheaf__run_settings *run)
{
    const char *launcher = sheaf__launcher_look().name;
    if (launcher != NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--restarts");
        sheaf_expected(st, "a run whose processes sheaf begins itself");
        sheaf_found(st, "one that %s began, and ends with a process that dies", launcher);
        return sheaf_try_this(st,
                              "sheaf train --transport mpi --restarts N without %s, or a script "
                              "that runs it again with --resume",
                              launcher);
    }
    look_back(run);
    return launch(s, true);
}

int driver_train(driver *d, sheaf__run_settings *run, sheaf_status *st)
{
    start s = { .driver = d, .o = run->options };
    const sheaf__watch_hooks watch = { .end = driver_member_end,
                                       .started = driver_member_joined,
                                       .self = d };
    const sheaf__run_driver by = { .nwords = d->argc,
                                   .word = (const char *const *)d->argv,
                                   .ready = ready,
                                   .self = &s,
                                   .spent = driver_spent_before(),
                                   .join = d->join,
                                   .watch = &watch };
    sheaf_run_train_options how = { .size = sizeof how };
    sheaf_run_train_report report = { .size = sizeof report };
    driver_member_split();
    if (st == NULL && s.o->restarts > 0 && !driver_is_launched()) {
        st = supervise(&s, run);
        return st == NULL ? s.code : driver_report(d, st);
    }
    run->driver = &by;
    how.events = &d->events;
    how.control = driver_signals();
    TRY(st, sheaf__run_train(&report, run, &how));
    run->driver = NULL;
    driver_progress_end(d);
    if (report.json != NULL && !s.elsewhere) { /* of several processes the first one's */
        fputs(d->json ? report.json : report.text, d->out);
        fputs(d->json ? "\n" : "", d->out);
    }
    sheaf_run_train_report_release(&report);
    return st == NULL && s.elsewhere ? s.code : driver_report(d, driver_signals_explain(st));
}
