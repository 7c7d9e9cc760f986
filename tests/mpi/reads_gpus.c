/* reads_gpus.c - loaded before all else (LD_PRELOAD): makes the MPI that is here one that reads the
 * memory of emulated GPUs, where SHEAF_READS_GPUS is set; and ends the process by SIGKILL as it
 * begins to send its n-th piece of a large message, where SHEAF_KILL_AT is n. */
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int MPIX_Query_cuda_support(void);
VISIBLE int mprotect(void *at, size_t bytes, int how);
VISIBLE int MPI_Isend(const void *bytes, int n, void *type, int to, int tag, void *comm,
                      void *request);

int MPIX_Query_cuda_support(void)
{
    return getenv("SHEAF_READS_GPUS") != NULL;
}

/* What the emulation forbids the processor stays allowed. */
int mprotect(void *at, size_t bytes, int how)
{
    if (how == PROT_NONE && getenv("SHEAF_READS_GPUS") != NULL)
        how = PROT_READ | PROT_WRITE;
    return (int)syscall(SYS_mprotect, at, bytes, how);
}

int MPI_Isend(const void *bytes, int n, void *type, int to, int tag, void *comm, void *request)
{
    static int pieces;
    int (*send)(const void *, int, void *, int, int, void *, void *);
    *(void **)&send = dlsym(RTLD_DEFAULT, "PMPI_Isend");
    const char *last = getenv("SHEAF_KILL_AT");
    if (last != NULL && tag % 2 == 1 && ++pieces == atoi(last))
        raise(SIGKILL);
    return send(bytes, n, type, to, tag, comm, request);
}
