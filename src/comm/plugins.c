/* plugins.c - see plugins.h. */
#include "comm/plugins.h"

#include <dlfcn.h>

#include "base/base.h"
#include "base/module.h"

static const char *const known[] = { "openmpi", "mpich" };
enum { KNOWN = sizeof known / sizeof *known };

/* ---- the launcher ---- */

/* A number from 0 to 2^20; -1: there is none. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    const long n = text == NULL || *text == '\0' ? -1 : strtol(text, &end, 10);
    return n < 0 || *end != '\0' || n > 1 << 20 ? -1 : (int)n;
}

static int first_of(const char *const *variable)
{
    int n = -1;
    for (; *variable != NULL && n < 0; variable++)
        n = number_of(*variable);
    return n;
}

sheaf__launcher sheaf__launcher_look(void)
{
    static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                         NULL };
    static const char *const numbers[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", NULL };
    const bool slurm = number_of("SLURM_STEP_ID") >= 0 && number_of("SLURM_PROCID") >= 0;
    int number = first_of(numbers);
    if (number < 0 && slurm)
        number = number_of("SLURM_PROCID");
    if (number < 0)
        return (sheaf__launcher){ 0 };
    const int size = first_of(sizes);
    const bool open = getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL;
    return (sheaf__launcher){ .name = slurm ? "srun" : "mpirun",
                              .mpi = open                         ? known[0]
                                     : getenv("PMI_RANK") != NULL ? known[1]
                                                                  : NULL,
                              .processes = size < 0 ? 0 : size,
                              .number = number };
}

bool sheaf__launcher_is_hydra(void)
{
    const sheaf__launcher l = sheaf__launcher_look();
    return l.processes > 1 && l.mpi != NULL && strcmp(l.mpi, known[1]) == 0 &&
           strcmp(l.name, "mpirun") == 0;
}

/* ---- the module ---- */

static sheaf_status *none(const char *mpi)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "`transport mpi`");
    sheaf_expected(st, mpi == NULL ? "sheaf-openmpi.so or sheaf-mpich.so%s" : "sheaf-%s.so",
                   mpi == NULL ? "" : mpi);
    sheaf__module_searched(st);
    return sheaf_try_this(
        st,
        "install libopenmpi-dev and openmpi-bin (or libmpich-dev and mpich), then build sheaf again; "
        "SHEAF_PLUGINS names the folder of a module that lies elsewhere");
}

sheaf_status *sheaf__plugin_find(char **path, const char *mpi)
{
    *path = NULL;
    if (mpi != NULL && strchr(mpi, '/') != NULL) {
        *path = strdup(mpi);
        return *path == NULL ? sheaf__no_memory("`mpi`") : NULL;
    }
    if (mpi == NULL || *mpi == '\0')
        mpi = sheaf__launcher_look().mpi;
    for (int i = 0; i < KNOWN && *path == NULL; i++)
        if (mpi == NULL || strcmp(mpi, known[i]) == 0)
            *path = sheaf__module_find(known[i]);
    return *path == NULL ? none(mpi) : NULL;
}

sheaf_status *sheaf__plugin_load(const sheaf__mpi **out, const char *path)
{
    /* the MPI opens modules of its own, which want to see its names */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const sheaf__mpi *mpi = module == NULL ? NULL : dlsym(module, SHEAF__MPI_SYMBOL);
    if (mpi == NULL) {
        const char *why = dlerror();
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path);
        sheaf_expected(st, "a module of sheaf for an MPI");
        sheaf_found(st, "%s", why == NULL ? "no table" : why);
        return sheaf_try_this(st, "install the MPI it was built for, or build sheaf again");
    }
    if (mpi->version != SHEAF__MPI_VERSION || strcmp(mpi->build, SHEAF_VERSION) != 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path);
        sheaf_expected(st, "a module of sheaf %s", SHEAF_VERSION);
        return sheaf_found(st, "one of sheaf %s", mpi->build);
    }
    *out = mpi;
    return NULL;
}
