/* plugin.h - what sheaf uses of an MPI: a table of functions in a module that is compiled once for
 * each MPI, because no two have the same binary interface. sheaf itself is linked with none; it
 * loads a module where a transport needs it (comm/process.h).
 *
 * Nothing here waits but start and finish. Messages of one pair and tag arrive in the order in
 * which they were sent. Integers that are not 0 are error codes of the MPI: see explain. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHEAF__MPI_VERSION = 2, SHEAF__MPI_TEXT = 512, SHEAF__MPI_BEGUN = -1 };
#define SHEAF__MPI_SYMBOL "sheaf__mpi_plugin"

typedef struct sheaf__mpi_request {
    uint64_t bits; /* the MPI's own handle */
} sheaf__mpi_request;

typedef struct sheaf__mpi {
    int version;       /* SHEAF__MPI_VERSION, of this table */
    const char *build; /* SHEAF_VERSION it was compiled with */
    /* all processes call it once (again: SHEAF__MPI_BEGUN, no code of the MPI); a signal's handlers
     * stay as they are */
    int (*start)(int *rank, int *ranks);
    void (*library)(char text[SHEAF__MPI_TEXT]); /* "Open MPI v4.1.4, ..." */
    bool (*reads_gpus)(void); /* it says that messages may lie in the memory of NVIDIA's GPUs */
    int (*send)(sheaf__mpi_request *out, const void *bytes, int size, int peer, int tag);
    int (*receive)(sheaf__mpi_request *out, void *bytes, int size, int peer, int tag);
    /* done: it is over, and `request` with it; size: bytes of what was received */
    int (*test)(bool *done, int *size, sheaf__mpi_request *request);
    void (*explain)(char text[SHEAF__MPI_TEXT], int error);
    int (*finish)(void);     /* waits for all */
    void (*abort)(int code); /* ends all processes; does not return */
} sheaf__mpi;
