/* plugins.h - the launcher of this process, and the module of its MPI. */
#pragma once

#include "comm/mpi/plugin.h"
#include "sheaf/status.h"

typedef struct sheaf__launcher {
    const char *name; /* "mpirun", "srun"; NULL: none */
    const char *mpi;  /* the MPI whose launcher it is; NULL: any */
    int processes;    /* 0: not known */
    int number;       /* of this one */
} sheaf__launcher;

/* sheaf__launcher_look - what the environment says. */
sheaf__launcher sheaf__launcher_look(void);
/* sheaf__launcher_kills_all - does it kill all processes at once when one is killed, so that no
 * other can report which it was? */
bool sheaf__launcher_kills_all(void);

/* sheaf__plugin_find - where the module of an MPI is.
 *   mpi  "openmpi", "mpich", a path, or NULL: that of the launcher, else what is there
 * Looks into SHEAF_PLUGINS, beside the program, and into the library's folder. */
sheaf_status *sheaf__plugin_find(char **path, const char *mpi);
/* sheaf__plugin_load - its table. It stays loaded. */
sheaf_status *sheaf__plugin_load(const sheaf__mpi **out, const char *path);

/* Shared memory that processes of Open MPI leave when they are killed.
 *
 * Each has a file in /dev/shm, "vader_segment.HOST.UID.JOB.RANK" (since Open MPI 5
 * "sm_segment..."), and removes it at its end. mpirun removes those of killed ones, but is itself
 * killed with them where memory is short, and then they hold memory until the machine ends. */
#define SHEAF__SEGMENTS "/dev/shm"

/* sheaf__segments_sweep - removes those in `folder` of this user and host that no process has
 * mapped. */
void sheaf__segments_sweep(const char *folder);
