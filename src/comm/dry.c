/* dry.c - the transport of the planner: one rank that stands for its group. Nothing moves, no
 * buffer is touched, and the calls count (counters.h). */
#include <stdlib.h>

#include "comm/transport.h"

typedef struct dry {
    sheaf_comm comm;
    sheaf__heading heading;
} dry;

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    dry *self = comm->state;
    self->heading = *mine;
    return NULL;
}

/* Its peers would make the same call. */
static const sheaf__heading *heading(const sheaf_comm *comm, int rank)
{
    const dry *self = comm->state;
    return &self->heading;
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    return NULL;
}

static const sheaf__transport dry_transport = {
    .name = "dry", .post = post, .heading = heading, .collect = collect, .counts_only = true
};

sheaf_status *sheaf_comm_dry_new(sheaf_comm **out, int rank, int ranks)
{
    dry *self = calloc(1, sizeof *self);
    if (self == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "rank %d of %d", rank, ranks);
    self->comm =
        (sheaf_comm){ .transport = &dry_transport, .state = self, .rank = rank, .ranks = ranks };
    *out = &self->comm;
    return NULL;
}

void sheaf_comm_dry_free(sheaf_comm *comm)
{
    if (comm == NULL)
        return;
    sheaf__comm_release(comm);
    free(comm->state);
}
