/* launch.h - a command that runs as several processes starts them itself: with the mpirun of the
 * MPI whose module sheaf has. So does --restarts, which starts the same program again.
 *
 * Signals to the caller reach all: SIGINT, SIGTERM and SIGHUP ask them to stop, SIGUSR1
 * to save. Another SIGINT ends them at once. */
#pragma once

#include <sys/types.h>

#include "driver/driver.h"
#include "sheaf/cut.h"

typedef struct driver_launch_options {
    int processes;        /* 0: this program once more, by itself */
    const char *mpi;      /* as sheaf__plugin_find() takes it */
    const char *hosts;    /* "a:2,b:2"; NULL or empty: this one, or what the scheduler gave */
    const char *hostfile; /* in the words of that MPI; NULL or empty: none */
    int argc;             /* the subcommand and its flags */
    char **argv;
} driver_launch_options;

typedef struct driver_launch_result {
    int code;      /* what the first of them that failed ended with, else 0 */
    int killed_by; /* a program by itself: the signal; 0: none */
    bool stopped;  /* a request to stop came, and was passed on */
    char verdict;  /* a driver_verdict_kind of launched.h; 0: none */
} driver_launch_result;

/* driver_launch - waits for their end. Errors: SHEAF_E_UNSUPPORTED: no module, or no mpirun; those
 * of driver_hosts_read(); SHEAF_E_PEER: a process exited without a report; SHEAF_E_STOPPED: before
 * they had begun. */
sheaf_status *driver_launch(driver_launch_result *out, const driver_launch_options *options);

/* driver_launch_mpirun - that of the MPI whose module sheaf has: its path, which the caller frees.
 * Errors: SHEAF_E_UNSUPPORTED, as above. */
sheaf_status *driver_launch_mpirun(char **path, bool *is_open, const char *mpi);

/* driver_launch_kill - mpiruns (0: none) that wait for what will not come, and their ways to other
 * hosts (ssh), which have sessions of their own; takes a second. They are still to be waited for.
 */
void driver_launch_kill(const pid_t *mpirun, int mpiruns);

/* ---- `--restarts N`: this process launches the run, and again where it ends by a failure ---- */

struct sheaf_train_options;
/* driver_is_supervised - was this process begun by driver_supervise()? */
bool driver_is_supervised(void);
/* driver_spent_before - seconds from the start of that one to that of this process; 0: none. */
double driver_spent_before(void);
/* driver_supervise - `sheaf` with these words (argv[0] is the subcommand), until it
 * succeeds, is stopped, or `o->restarts` are used up; *code: its exit code. Signals are passed on.
 * Errors: SHEAF_E_ARG under another launcher, which would see a process end; SHEAF_E_IO. */
sheaf_status *driver_supervise(int *code, driver *d, const struct sheaf_train_options *o, int argc,
                               char **argv);
/* driver_fewer_ranks - T and D for `left` ranks: D as it was while there are so many, then the
 * largest T. `accumulators`: D divides them. */
void driver_fewer_ranks(int *tp, int *dp, int left, int accumulators);

/* ---- which hosts of a run are left: those of --hosts or --hostfile on which the MPI's mpirun can
 * start a process now ---- */

typedef struct driver_host {
    char *name;  /* as it is written there */
    char *words; /* "a:2", as --hosts has it; NULL: a line of a file */
    int slots;   /* 0: not said */
    int first;   /* number of the first host of that name */
    bool lost;
} driver_host;

typedef struct driver_hosts {
    driver_host *host; /* owned; one that is named twice is there twice */
    int count;
} driver_hosts;

/* driver_hosts_read - from the words of --hosts ("a:2,b:2"), or where they are empty from the file
 * of
 * --hostfile, a host a line ("a slots=2", "a:2", "#"). Neither: no host. Errors: SHEAF_E_ARG: a
 * list or a file without one; SHEAF_E_IO. */
sheaf_status *driver_hosts_read(driver_hosts *out, const char *list, const char *file);
void driver_hosts_release(driver_hosts *hosts);

/* driver_hosts_ask - sets `lost` of those that do not answer within 15 seconds; where none does it
 * is not the hosts, and none is lost. How many names are lost: 0 too where none answers, so that
 * the caller goes on with them all.
 *   mpi  as sheaf__plugin_find() takes it */
int driver_hosts_ask(driver_hosts *hosts, const char *mpi);

/* driver_hosts_slots - those of each host, ended by 0. */
void driver_hosts_slots(int slots[SHEAF_MAX_SLICES + 1], const driver_hosts *hosts);

/* driver_hosts_left - how many of `ranks` ranks those that are left take: as many as they have
 * slots; where the slots of all are too few, as if they were no matter, their share of the ranks.
 */
int driver_hosts_left(const driver_hosts *hosts, int ranks);

/* driver_hosts_words - those that are left, for --hosts: as they were written there, and those of a
 * file with their slots, or their share of `ranks` where all have too few. The caller frees it;
 * NULL: no memory. */
char *driver_hosts_words(const driver_hosts *hosts, int ranks);
