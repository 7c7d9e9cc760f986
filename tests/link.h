/* link.h - a transport over another one that takes the time of a network. An exchange takes the
 * latency once, and then as long as the larger of what a rank sends and what it receives takes at
 * the bandwidth. No byte changes. The seconds are only counted. */
#pragma once

#include "comm/comm.h"

typedef struct sheaf__link_options {
    double latency, bandwidth; /* seconds; bytes a second */
} sheaf__link_options;

typedef struct sheaf__link sheaf__link;

/* sheaf__link_put - under `comm`, until sheaf__link_take(); comm NULL: *out is NULL. */
sheaf_status *sheaf__link_put(sheaf__link **out, sheaf_comm *comm,
                              const sheaf__link_options *options);
/* sheaf__link_take - away again; returns the seconds that it took. Accepts NULL. */
double sheaf__link_take(sheaf__link *link);
