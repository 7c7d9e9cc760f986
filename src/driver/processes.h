/* processes.h - commands whose ranks may be processes, as those of train are: their flags, and how
 * the processes come together. The first of them reports failures. */
#pragma once

#include <stdatomic.h>

#include "driver/driver.h"
#include "comm/comm.h"

typedef struct driver_processes {
    sheaf_comm *all; /* out: they are; NULL: this one is alone */
    sheaf_transport transport;
    const char *mpi, *hosts, *hostfile;
    double heartbeat, hang_after; /* seconds, as those of train */
    const atomic_int *stop;       /* out: not 0 when asked to stop; NULL with threads */
    bool elsewhere;               /* out: other processes do the work, and ended with... */
    int code;
    const sheaf__setting *table; /* of the command */
    bool talks;                  /* the first reads lines, which mpirun or srun pass on to it */
} driver_processes;

/* driver_processes_table - appends --transport, --mpi, --hosts, --hostfile, --heartbeat and
 * --hang-after to a table that ends with a zero entry. `talks`: as above; mpirun has the hosts. */
void driver_processes_table(sheaf__setting *table, driver_processes *flags, bool talks);

/* driver_processes_begin - with --transport mpi this process joins the others, or starts them where
 * nothing did and waits for their end. From then on they are watched: one that dies, is stopped or
 * hangs ends all, with a message that names it. Where processes were started and the transport is
 * threads the first works alone. This one has nothing to do where `elsewhere` is set. Errors:
 * SHEAF_E_ARG; those of sheaf__process_start() and driver_launch().
 *   ranks  as many processes, in each stage of --place (may be NULL) */
sheaf_status *driver_processes_begin(driver_processes *flags, driver *d, int ranks,
                                     const char *place);

/* driver_processes_launcher - the program that started this process as one of several: "mpirun",
 * "srun"; NULL. */
const char *driver_processes_launcher(void);

/* driver_processes_elsewhere - of a command whose ranks are threads, where something may have
 * started several processes: the first does all of it and warns; true in any other. */
bool driver_processes_elsewhere(const driver *d);

/* driver_processes_answer - driver_answer(), or the exit code of the other processes. The end of
 * the watch: no call of all processes comes after it. */
int driver_processes_answer(driver_processes *flags, driver *d, sheaf_status *st, bool yes);
