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
/* sheaf__launcher_is_hydra - is it MPICH's mpirun? */
bool sheaf__launcher_is_hydra(void);

/* sheaf__plugin_find - where the module of an MPI is.
 *   mpi  "openmpi", "mpich", a path, or NULL: that of the launcher, else what is there
 * Looks into SHEAF_PLUGINS, beside the program, and into the library's folder. */
sheaf_status *sheaf__plugin_find(char **path, const char *mpi);
/* sheaf__plugin_load - its table. It stays loaded. */
sheaf_status *sheaf__plugin_load(const sheaf__mpi **out, const char *path);
