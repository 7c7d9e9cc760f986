/* link.c - see link.h. */
#include "tests/link.h"

#include <stdlib.h>

#include "comm/transport.h"

struct sheaf__link {
    sheaf__link_options options;
    double seconds; /* that it has taken so far */
    double sending; /* bytes of the exchange at hand */
    sheaf_comm *comm;
    sheaf__transport transport;
    const sheaf__transport *inner;
    void *state;
};

/* What lies below looks into its own state. */
static sheaf__link *below(const sheaf_comm *comm)
{
    sheaf__link *link = comm->state;
    ((sheaf_comm *)comm)->state = link->state;
    return link;
}

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    sheaf__link *link = below(comm);
    sheaf_status *st = link->inner->post(comm, mine, send, count);
    comm->state = link;
    link->sending = 0;
    for (int i = 0; i < count; i++)
        link->sending += (double)send[i].size * (send[i].peer == SHEAF__ALL ? comm->ranks - 1 : 1);
    link->seconds += link->options.latency;
    return st;
}

static const sheaf__heading *heading(const sheaf_comm *comm, int rank)
{
    sheaf__link *link = below(comm);
    const sheaf__heading *found = link->inner->heading(comm, rank);
    ((sheaf_comm *)comm)->state = link;
    return found;
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    sheaf__link *link = below(comm);
    double coming = 0;
    for (int i = 0; i < count; i++)
        coming += (double)receive[i].size;
    link->seconds += (coming > link->sending ? coming : link->sending) / link->options.bandwidth;
    sheaf_status *st = link->inner->collect(comm, receive, count);
    comm->state = link;
    return st;
}

sheaf_status *sheaf__link_put(sheaf__link **out, sheaf_comm *comm,
                              const sheaf__link_options *options)
{
    *out = NULL;
    if (comm == NULL)
        return NULL;
    sheaf__link *link = malloc(sizeof *link);
    if (link == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a simulated link");
    *link = (sheaf__link){ .options = *options,
                           .comm = comm,
                           .transport = { .name = comm->transport->name,
                                          .post = post,
                                          .heading = heading,
                                          .collect = collect },
                           .inner = comm->transport,
                           .state = comm->state };
    comm->transport = &link->transport;
    comm->state = link;
    *out = link;
    return NULL;
}

double sheaf__link_take(sheaf__link *link)
{
    if (link == NULL)
        return 0;
    const double seconds = link->seconds;
    link->comm->transport = link->inner;
    link->comm->state = link->state;
    free(link);
    return seconds;
}
