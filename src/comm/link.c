/* link.c - see link.h. */
#include "comm/link.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
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

/* A sleep is late by some 60 us: the end is waited for awake. */
#define AWAKE 2e-4

static void pass(sheaf__link *link, double seconds)
{
    const double end = sheaf__seconds() + seconds;
    link->seconds += seconds;
    if (link->options.only_counts)
        return;
    if (seconds > AWAKE) {
        const double asleep = seconds - AWAKE;
        const struct timespec t = { (time_t)asleep, (long)(1e9 * (asleep - floor(asleep))) };
        nanosleep(&t, NULL);
    }
    while (sheaf__seconds() < end)
        sched_yield();
}

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
    pass(link, link->options.latency);
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
    pass(link, (coming > link->sending ? coming : link->sending) / link->options.bandwidth);
    sheaf_status *st = link->inner->collect(comm, receive, count);
    comm->state = link;
    return st;
}

sheaf_status *sheaf__link_read(sheaf__link_options *out, const char *text)
{
    char *end = NULL;
    const double us = strtod(text, &end);
    const bool two = end != text && *end == ':';
    const char *second = two ? end + 1 : text;
    const double gb = two ? strtod(second, &end) : 0;
    if (two && end != second && *end == '\0' && us >= 0 && us < 1e9 && gb > 0 && gb < 1e9) {
        *out = (sheaf__link_options){ .latency = us / 1e6, .bandwidth = gb * 1e9 };
        return NULL;
    }
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "SHEAF_SIMULATE_LINK"),
                                      "MICROSECONDS:GIGABYTES_PER_SECOND, such as 5:12"),
                       "%s", text);
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
