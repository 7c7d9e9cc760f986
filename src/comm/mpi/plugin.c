/* plugin.c - see plugin.h: a module `sheaf-openmpi.so` or `sheaf-mpich.so`, whichever <mpi.h> it is
 * compiled against. */
#include "comm/mpi/plugin.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(sheaf__mpi_request), "a handle fits into a request");

static MPI_Request handle_of(const sheaf__mpi_request *request)
{
    MPI_Request handle;
    memcpy(&handle, request, sizeof handle);
    return handle;
}

static int put(sheaf__mpi_request *out, MPI_Request handle, int error)
{
    memcpy(out, &handle, sizeof handle);
    return error;
}

/* An MPI may take signals for itself; the command has its own ways with them. */
static int start(int *rank, int *ranks)
{
    static const int kept[] = {
        SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE, SIGXFSZ
    };
    enum { KEPT = sizeof kept / sizeof *kept };
    struct sigaction before[KEPT];
    int level = 0, initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized)
        return SHEAF__MPI_BEGUN;
    for (int i = 0; i < KEPT; i++)
        sigaction(kept[i], NULL, &before[i]);
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    for (int i = 0; i < KEPT; i++)
        sigaction(kept[i], &before[i], NULL);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return error == MPI_SUCCESS ? MPI_Comm_size(MPI_COMM_WORLD, ranks) : error;
}

static void library(char text[SHEAF__MPI_TEXT])
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(all, &length);
    all[strcspn(all, "\n")] = '\0';
    snprintf(text, SHEAF__MPI_TEXT, "%.*s", SHEAF__MPI_TEXT - 1, all);
}

/* Not every MPI has it. */
extern int MPIX_Query_cuda_support(void) __attribute__((weak));

static bool reads_gpus(void)
{
    return MPIX_Query_cuda_support != NULL && MPIX_Query_cuda_support() != 0;
}

static int send(sheaf__mpi_request *out, const void *bytes, int size, int peer, int tag)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int error = MPI_Isend(bytes, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &handle);
    return put(out, handle, error);
}

static int receive(sheaf__mpi_request *out, void *bytes, int size, int peer, int tag)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int error = MPI_Irecv(bytes, size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &handle);
    return put(out, handle, error);
}

static int test(bool *done, int *size, sheaf__mpi_request *request)
{
    MPI_Request handle = handle_of(request);
    MPI_Status status;
    int flag = 0, count = 0;
    int error = MPI_Test(&handle, &flag, &status);
    if (error == MPI_SUCCESS && flag)
        error = MPI_Get_count(&status, MPI_BYTE, &count);
    *done = flag != 0;
    *size = count;
    return put(request, handle, error);
}

static void explain(char text[SHEAF__MPI_TEXT], int error)
{
    char all[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, all, &length);
    snprintf(text, SHEAF__MPI_TEXT, "%.*s", SHEAF__MPI_TEXT - 1, all);
}

static void end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

__attribute__((visibility("default"))) extern const sheaf__mpi sheaf__mpi_plugin;
const sheaf__mpi sheaf__mpi_plugin = {
    SHEAF__MPI_VERSION, SHEAF_VERSION, start, library, reads_gpus, send, receive, test, explain,
    MPI_Finalize,       end_all
};
