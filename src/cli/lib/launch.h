/* launch.h - a command that runs as several processes starts them itself: with the mpirun of the
 * MPI whose module sheaf has. So does --restarts, which starts the same program again.
 *
 * Signals to the caller reach all: SIGINT, SIGTERM and SIGHUP ask them to stop, SIGUSR1
 * to save. Another SIGINT ends them at once. */
#pragma once

#include <sys/types.h>

#include "cli.h"

typedef struct cli_launch_options {
    int processes;        /* 0: this program once more, by itself */
    const char *mpi;      /* as sheaf__plugin_find() takes it */
    const char *hosts;    /* "a:2,b:2"; NULL or empty: this one, or what the scheduler gave */
    const char *hostfile; /* in the words of that MPI; NULL or empty: none */
    int argc;             /* the subcommand and its flags */
    char **argv;
} cli_launch_options;

typedef struct cli_launch_result {
    int code;      /* what the first of them that failed ended with, else 0 */
    int killed_by; /* a program by itself: the signal; 0: none */
    bool stopped;  /* a request to stop came, and was passed on */
    char verdict;  /* a cli_verdict_kind of launched.h; 0: none */
    int gone;      /* with it: ranks of a host that is not heard any more */
} cli_launch_result;

/* cli_launch - waits for their end. Errors: SHEAF_E_UNSUPPORTED: no module, or no mpirun;
 * SHEAF_E_PEER: an end that no process explained; SHEAF_E_STOPPED: before they had begun. */
sheaf_status *cli_launch(cli_launch_result *out, const cli_launch_options *options);

/* cli_launch_mpirun - that of the MPI whose module sheaf has: its path, which the caller frees.
 * Errors: SHEAF_E_UNSUPPORTED, as above. */
sheaf_status *cli_launch_mpirun(char **path, bool *is_open, const char *mpi);

/* cli_launch_kill - mpiruns (0: none) that wait for what will not come, and their ways to other
 * hosts (ssh), which have sessions of their own; takes a second. They are still to be waited for.
 */
void cli_launch_kill(const pid_t *mpirun, int mpiruns);

/* ---- `--restarts N`: this process launches the run, and again where it ends by a failure ---- */

struct sheaf_train_options;
/* cli_is_supervised - was this process begun by cli_supervise()? */
bool cli_is_supervised(void);
/* cli_spent_before - seconds from the start of that one to that of this process; 0: none. */
double cli_spent_before(void);
/* cli_supervise - `sheaf` with these words (argv[0] is the subcommand), until it ends well, as
 * asked, or `o->restarts` are used up; *code: its exit code. Signals are passed on. Errors:
 * SHEAF_E_ARG under another launcher, which would see a process end; SHEAF_E_IO. */
sheaf_status *cli_supervise(int *code, cli *cli, const struct sheaf_train_options *o, int argc,
                            char **argv);
/* cli_fewer_ranks - T and D for `left` ranks: D as it was while there are so many, then the largest
 * T. `accumulators`: D divides them. */
void cli_fewer_ranks(int *tp, int *dp, int left, int accumulators);
