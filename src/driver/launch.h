/* launch.h - a command that runs as several processes starts them itself, with the mpirun of the
 * MPI whose module sheaf has; a run with --restarts, also as one process, is started again after
 * a failure that may pass. One loop does both: start, pass signals on, wait for the end.
 *
 * SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGXCPU ask all to stop, SIGUSR1 to save. Another SIGINT
 * ends them at once. */
#pragma once

#include "driver/driver.h"

struct sheaf_train_options;

typedef struct driver_launch_options {
    int processes;        /* 0: this program once more, by itself */
    const char *mpi;      /* as sheaf__plugin_find() takes it */
    const char *hosts;    /* "a:2,b:2"; NULL or empty: this one, or those of the scheduler */
    const char *hostfile; /* in the format of that MPI; NULL or empty: none */
    int argc;             /* the subcommand and its flags */
    char **argv;
    /* of a run that is started `restarts` times more at most; NULL: once */
    const struct sheaf_train_options *run;
} driver_launch_options;

/* driver_launch - until it succeeds, is stopped, fails in a way that would repeat, or no restart is
 * left; *code: its exit code. Errors: SHEAF_E_UNSUPPORTED: no module, or no mpirun; those of
 * driver_hosts_read(); SHEAF_E_PEER: a process exited without a report; SHEAF_E_STOPPED: before
 * the processes had started. */
sheaf_status *driver_launch(int *code, driver *d, const driver_launch_options *options);

/* driver_spent_before - seconds of the tries before this one: --max-time is for all of them. */
double driver_spent_before(void);
/* driver_fewer_ranks - T and D for `left` ranks: D as it was while there are so many, then the
 * largest T. `accumulators`: D divides them. */
void driver_fewer_ranks(int *tp, int *dp, int left, int accumulators);
