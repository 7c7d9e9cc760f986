/* link.h - a transport over another one that takes the time of a network: for tests, and to see
 * what a slower connection would do. An exchange takes the latency once, and then as long as the
 * larger of what a rank sends and what it receives takes at the bandwidth. No byte changes.
 *
 * SHEAF_SIMULATE_LINK=MICROSECONDS:GIGABYTES_PER_SECOND puts one under the groups of a run and
 * under their peers. */
#ifndef SHEAF_COMM_LINK_H
#define SHEAF_COMM_LINK_H

#include "comm/comm.h"

typedef struct sheaf__link_options {
    double latency, bandwidth; /* seconds; bytes a second */
    bool only_counts;          /* nobody waits: the seconds are only added up */
} sheaf__link_options;

typedef struct sheaf__link sheaf__link;

/* sheaf__link_read - the two numbers of such a text. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__link_read(sheaf__link_options *out, const char *text);
/* sheaf__link_put - under `comm`, until sheaf__link_take(); comm NULL: *out is NULL. */
sheaf_status *sheaf__link_put(sheaf__link **out, sheaf_comm *comm,
                              const sheaf__link_options *options);
/* sheaf__link_take - away again; returns the seconds that it took. Accepts NULL. */
double sheaf__link_take(sheaf__link *link);

#endif
