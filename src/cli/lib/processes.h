/* processes.h - commands whose ranks may be processes, as those of train are: their flags, and how
 * the processes come together. The first of them reports failures. */
#pragma once

#include <stdatomic.h>

#include "cli.h"
#include "comm/comm.h"
#include "launch.h"

typedef struct cli_processes {
    sheaf_comm *all; /* out: they are; NULL: this one is alone */
    sheaf_transport transport;
    const char *mpi, *hosts, *hostfile;
    double heartbeat, hang_after; /* seconds, as those of train */
    const atomic_int *stop;       /* out: not 0 when asked to stop; NULL with threads */
    bool elsewhere;               /* out: other processes did it, or do it, and ended with... */
    int code;
} cli_processes;

/* cli_processes_table - appends --transport, --mpi, --hosts, --hostfile, --heartbeat and
 * --hang-after to a table that ends with a zero entry. `talks`: as below; mpirun has the hosts. */
void cli_processes_table(cli_option *table, cli_processes *flags, bool talks);

typedef struct cli_processes_how {
    const cli_option *table; /* that was parsed */
    int argc;                /* the subcommand and its flags */
    char **argv;
    int ranks;         /* as many processes */
    int in_group;      /* those that hold one copy of the model, in each stage; 0: all */
    const char *place; /* --place: so many ranks in each of its stages; may be NULL */
    bool talks;        /* the first reads lines: mpirun or srun start them, and pass those on */
} cli_processes_how;

/* cli_processes_begin - with --transport mpi this process joins the others, or starts them where
 * nothing did and waits for their end. From then on they are watched: one that dies, is stopped or
 * hangs ends all, with a message that names it. Where processes were started and the transport is
 * threads the first works alone. Errors: SHEAF_E_ARG; those of sheaf__process_start(); a status
 * that cli_report() is not to see, where `elsewhere` is set. */
sheaf_status *cli_processes_begin(cli_processes *flags, cli *cli, const cli_processes_how *how);

/* cli_processes_launcher - what started this process as one of several: "mpirun", "srun"; NULL. */
const char *cli_processes_launcher(void);

/* cli_processes_alone - of a command whose ranks are threads, where something may have started
 * several processes: the first does all of it and says so; in any other *elsewhere is set, with the
 * status that cli_processes_begin() has then. */
sheaf_status *cli_processes_alone(bool *elsewhere, const cli *cli);

/* cli_processes_launch - cli_launch(), after which this process has nothing left to do: *elsewhere
 * is set, with that status, too. */
sheaf_status *cli_processes_launch(bool *elsewhere, int *code, const cli_launch_options *options);

/* cli_processes_answer - cli_answer(), or the code of those that did it elsewhere. The end of the
 * watch: no call of all processes comes after it. */
int cli_processes_answer(cli_processes *flags, cli *cli, sheaf_status *st, bool yes);
