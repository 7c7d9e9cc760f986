/* self.c - transports of one rank that waits for no other: that of a group of one, and the
 * planner's, whose rank stands for a group: no bytes move, no buffer is touched, and calls are
 * counted (counters.h). */
#include "comm/transport.h"

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    sheaf__heading *heading = comm->state;
    *heading = *mine;
    return NULL;
}

/* Peers that are only planned would make the same call. */
static const sheaf__heading *heading(const sheaf_comm *comm, int rank)
{
    return comm->state;
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    return NULL;
}

/* No `posted`: with one rank there is nothing to look into. */
const sheaf__transport sheaf__self_transport = { "self", post, heading, NULL, collect };
static const sheaf__transport dry_transport = { "dry", post, heading, NULL, collect, true };

typedef struct dry {
    sheaf_comm comm; /* first */
    sheaf__heading heading;
} dry;

sheaf_status *sheaf_comm_dry_new(sheaf_comm **out, int rank, int ranks)
{
    dry *self = calloc(1, sizeof *self);
    if (self == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "rank %d of %d", rank, ranks);
    self->comm = (sheaf_comm){ .transport = &dry_transport,
                               .counters.purpose = SHEAF__TRAFFIC_OTHER,
                               .state = &self->heading,
                               .rank = rank,
                               .ranks = ranks };
    *out = &self->comm;
    return NULL;
}

void sheaf_comm_dry_free(sheaf_comm *comm)
{
    if (comm == NULL)
        return;
    sheaf__comm_release(comm);
    free(comm);
}
