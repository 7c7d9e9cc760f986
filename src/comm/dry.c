/* dry.c - the transports of the planner: one rank that stands for its group. Nothing moves, and the
 * calls count (counters.h). `dry` touches no buffer; `alone` does what a rank has to do with the
 * bytes of others, which are made up. */
#include <stdlib.h>
#include <string.h>

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

/* 0x3c3c is 0.011 as bfloat16 and 1.06 as float16, 0x3c3c3c3c 0.011 as float32: sums of them are
 * finite, and have logarithms. */
static sheaf_status *collect_made(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    for (int i = 0; i < count; i++)
        if (receive[i].size > 0)
            memset(receive[i].bytes, 0x3c, receive[i].size);
    return NULL;
}

static const sheaf__transport dry_transport = { .name = "dry",
                                                .post = post,
                                                .heading = heading,
                                                .collect = collect,
                                                .counts_only = true,
                                                .instant = true };

static const sheaf__transport alone_transport = {
    .name = "alone", .post = post, .heading = heading, .collect = collect_made, .instant = true
};

static sheaf_status *new_comm(sheaf_comm **out, const sheaf__transport *transport, int rank,
                              int ranks)
{
    dry *self = calloc(1, sizeof *self);
    if (self == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "rank %d of %d", rank, ranks);
    self->comm =
        (sheaf_comm){ .transport = transport, .state = self, .rank = rank, .ranks = ranks };
    *out = &self->comm;
    return NULL;
}

sheaf_status *sheaf_comm_dry_new(sheaf_comm **out, int rank, int ranks)
{
    return new_comm(out, &dry_transport, rank, ranks);
}

sheaf_status *sheaf_comm_alone_new(sheaf_comm **out, int rank, int ranks)
{
    return new_comm(out, &alone_transport, rank, ranks);
}

void sheaf_comm_dry_free(sheaf_comm *comm)
{
    if (comm == NULL)
        return;
    sheaf__comm_release(comm);
    free(comm->state);
}
