/* driver.h - the process of a command that people and scripts see: its terminal, output, settings
 * and exit code. Each file uses those before it: report.c, signals.h, member.h and hosts.h,
 * launch.h, processes.h, train.c, run.c. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "library/settings.h"
#include "monitor/progress.h"
#include "sheaf/status.h"

/* Exit codes. AGAIN: only of a process that launch.h started, where the failure may pass. */
enum { DRIVER_DONE = 0, DRIVER_NO = 1, DRIVER_USAGE = 2, DRIVER_FAILED = 3, DRIVER_AGAIN = 75 };

/* The variable that names a file in the environment of processes that launch.h started: the first
 * byte is the signal by which that one was asked to stop, the second one more than the exit code of
 * the first process, once that has left the others, and a process that has reported why the run
 * does not go on removes it: an mpirun may wait for ever for its own process on a host that is
 * gone. On other hosts than that of launch.h the file does not exist. */
#define DRIVER_NOTE "SHEAF_LAUNCHED"

typedef struct driver driver;
typedef struct driver_command {
    const char *name, *summary, *usage;
    int (*run)(driver *d, int argc, char **argv); /* argv[0] is the command's name */
    int min_words, max_words;                     /* beside flags; -1 = any number */
    bool computes;                                /* needs AVX2 and FMA, where the build has them */
    bool trains;                                  /* or infers: not in a build without x86 */
    bool divides;                                 /* its work over processes: --transport mpi */
    void (*names)(sheaf_text *to); /* adds text from tables to its usage; NULL: none */
} driver_command;

struct driver {
    FILE *out, *err;
    FILE *nowhere; /* in place of both, where another process prints; NULL: this one does */
    FILE *aside;   /* then: for failures that the other cannot know */
    const driver_command *command;
    int argc; /* the words of the command, of which argv[0] is its name */
    char **argv;
    bool together;   /* it is one of several processes that --transport mpi divides work over */
    const char *mpi; /* and --mpi's word, or NULL */
    struct sheaf__process_join *join; /* how it meets them, and their group (comm/process.h) */
    bool json, quiet;
    sheaf__progress_style style;
    sheaf_events events;      /* notes, warnings and progress on err, by... */
    sheaf_progress *progress; /* NULL: none of them is shown */
    bool helped;              /* --help was printed; the command is done */
    /* prints the help; NULL: the command's usage and flags */
    void (*explain)(const driver_command *command, const sheaf__setting *options, FILE *to);
    sheaf__settings settings; /* the given options, and the texts they point into */
};

/* driver_run - a command from its words to its exit code, by a driver that has its streams. */
int driver_run(driver *d, const driver_command *command, int argc, char **argv);

/* driver_train - sheaf_run_train() with the flags that were parsed, to its exit code: in this
 * process or in several, which it starts, and with --restarts again after a failure. `st`: of
 * parsing; consumed. */
int driver_train(driver *d, sheaf__run_settings *run, sheaf_status *st);

/* driver_all - the processes that it has met; NULL: it is alone. */
struct sheaf_comm *driver_all(const driver *d);
/* driver_release - the memory of parsing and reporting. */
void driver_release(driver *d);
/* driver_hush - from now on nothing is printed: the first process does. */
void driver_hush(driver *d);

/* driver_progress - notes, warnings and progress from now on as `quiet` and `style` say. */
void driver_progress(driver *d);
/* driver_progress_end, driver_progress_clear - of its progress, before results are printed: as
 * monitor/progress.h has them. */
void driver_progress_end(driver *d);
void driver_progress_clear(driver *d);

/* driver_written - NULL unless a write to standard output failed; then SHEAF_E_IO with nothing but
 * "standard output": a command that prints many records checks after each. */
sheaf_status *driver_written(const driver *d);
/* driver_report - prints the status to d->err (with --json also an object with key "error" to
 * d->out), frees it, flushes; returns the exit code. */
int driver_report(driver *d, sheaf_status *st);
/* driver_answer - the same for a command whose answer may be no. */
int driver_answer(driver *d, sheaf_status *st, bool yes);
int driver_exit_code(const sheaf_status *st);
/* driver_is_launched - did launch.h start this process? */
bool driver_is_launched(void);
/* driver_give_up - this process has reported why the run does not go on: see DRIVER_NOTE. */
void driver_give_up(void);
/* driver_finished - this process, the first, ends with `code`: see DRIVER_NOTE. */
void driver_finished(int code);
/* driver_error_json, driver_error_text - its text as driver_report() prints it. The caller frees
 * it; NULL: no memory. */
char *driver_error_json(const sheaf_status *st);
char *driver_error_text(const sheaf_status *st);
