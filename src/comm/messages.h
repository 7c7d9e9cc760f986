/* messages.h - the transport `mpi`: ranks are processes that pass messages.
 *
 * An exchange is one message from each rank to each other one: its heading, a failure in words, and
 * what it sends there where that is little. What is more follows once the headings were compared,
 * in pieces. A rank that waits asks again and again, and sleeps in between: waiting takes no
 * processor. */
#pragma once

#include "comm/mpi/plugin.h"
#include "comm/transport.h"

typedef struct sheaf__messages_options {
    const sheaf__mpi *mpi;
    int rank, ranks;
    const int *process; /* [ranks] their numbers in the MPI; copied */
    const char *const
        *host;    /* [ranks] where they run: the texts are borrowed; NULL: not known yet */
    int tag;      /* this and the next one are the group's own */
    size_t piece; /* bytes of a message at most, below 2^31: an MPI counts in int; 0: 16 MB */
    bool crowded; /* more processes than cores: whoever waits gives its core away at once */
} sheaf__messages_options;

/* sheaf__messages_open - of a group; ends with sheaf__messages_leave(), then _close(). */
sheaf_status *sheaf__messages_open(sheaf_comm **out, const sheaf__messages_options *options);
/* sheaf__messages_leave - this rank makes no further call: all others learn it, and why. */
void sheaf__messages_leave(sheaf_comm *comm, const sheaf_status *result);
/* sheaf__messages_close - waits until all have left all of these groups: of all at once, as who
 * sends to this rank in one of them may have to be rid of that before it leaves another. NULL: no
 * group. They are gone afterwards, unless a connection was lost. */
sheaf_status *sheaf__messages_close(sheaf_comm *const *comm, int groups);
