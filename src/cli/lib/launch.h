/* launch.h - a command that runs as several processes starts them itself: with the mpirun of the
 * MPI whose module sheaf has.
 *
 * Signals to the caller reach all: SIGINT, SIGTERM and SIGHUP ask them to stop, SIGUSR1
 * to save. Another SIGINT ends them at once. */
#pragma once

#include <sys/types.h>

#include "cli.h"

typedef struct cli_launch_options {
    int processes;
    const char *mpi;      /* as sheaf__plugin_find() takes it */
    const char *hosts;    /* "a:2,b:2"; NULL or empty: this one, or what the scheduler gave */
    const char *hostfile; /* in the words of that MPI; NULL or empty: none */
    int argc;             /* the subcommand and its flags */
    char **argv;
    bool last; /* they are not begun again: an end that none of them explained is an error */
} cli_launch_options;

/* cli_launch - waits for their end. *code: what the first of them that failed ended with, else 0.
 * Errors: SHEAF_E_UNSUPPORTED: no module, or no mpirun. */
sheaf_status *cli_launch(int *code, const cli_launch_options *options);

/* cli_launch_mpirun - that of the MPI whose module sheaf has: its path, which the caller frees.
 * Errors: those of cli_launch(). */
sheaf_status *cli_launch_mpirun(char **path, bool *is_open, const char *mpi);

/* cli_launch_end - a process that was launched found that the run cannot go on, and ends: if it is
 * on the host of the one that launched it, that one knows so. (An mpirun may wait for ever for the
 * part of itself on a host that is gone.) */
void cli_launch_end(void);

/* cli_launch_note_code - a process that was launched ends with `code`: the first notes it for the
 * one that launched it, where that is on its host, and so does any other that fails once it has met
 * it. (An mpirun may lose it: MPICH's does when a signal came.) Elsewhere it does nothing. */
void cli_launch_note_code(const struct sheaf_comm *all, int code);

/* cli_launch_stopped_by - the signal for which the one that launched this process asked it to stop,
 * and which came as another, as no mpirun passes all on; 0: none, or the launcher is elsewhere. */
int cli_launch_stopped_by(void);

/* cli_launch_reap - from now on what an mpirun, or who launched it, leaves as it is killed is this
 * process's. */
void cli_launch_reap(void);
/* cli_launch_leave_none - waits for all of it, which ends by itself soon, and kills after three
 * seconds what is still there. Who begins the run again must not find it: it holds the lock. */
void cli_launch_leave_none(void);

/* cli_launch_kill - mpiruns (0: none) that wait for what will not come, and their ways to other
 * hosts (ssh), which have sessions of their own; takes a second. They are still to be waited for.
 */
void cli_launch_kill(const pid_t *mpirun, int mpiruns);
