/* cluster.h - what a step would take on a cluster, at each T and D: the plan's operations and
 * bytes, put through a rate of computing and two links. A model, not a measurement. */
#pragma once

#include "plan/plan.h"

/* Seconds and bytes a second. */
typedef struct sheaf_cluster_link {
    double latency, bandwidth;
} sheaf_cluster_link;

typedef struct sheaf_cluster {
    int hosts, ranks_per_host;
    sheaf_cluster_link outside; /* of a host, which its ranks share */
    sheaf_cluster_link inside;  /* of a rank, to others of its host */
    double rate;                /* operations a second of a rank; 0: not given */
    double memory;              /* bytes of a rank; 0: as much as it needs */
} sheaf_cluster;

typedef struct sheaf_cluster_row {
    int tp, dp;
    double compute, exchange; /* seconds of a step, of the rank that takes longest */
    double gradients;         /* of `exchange`, what groups exchange */
    double step;              /* both */
    size_t memory;            /* bytes of the fullest rank */
    bool fits;                /* into the memory that was given */
    bool best;                /* of those that do, the fastest with so many ranks */
    bool pays;                /* and faster than any with fewer */
} sheaf_cluster_row;

enum { SHEAF_CLUSTER_ROWS = 32 }; /* T of 1 to 64, D of 1 to 16 */

/* sheaf_cluster_read - "hosts=8,ranks-per-host=8,latency=5us,bandwidth=12GB/s" and where given
 * "inside-latency=1us,inside=20GB/s,rate=100GFLOP/s,memory=24GiB"; without them inside is 1 us and
 * 20 GB/s. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf_cluster_read(sheaf_cluster *out, const char *text);

/* sheaf_cluster_plan - T and D by powers of two, T up to the slices, D up to the micro-batches of a
 * step and 16, up to as many ranks as there are and 64. Every exchange waits for its end: nothing
 * overlaps. job->options->tp and dp are not read. */
sheaf_status *sheaf_cluster_plan(sheaf_cluster_row row[SHEAF_CLUSTER_ROWS], int *count,
                                 const sheaf_cluster *cluster, const sheaf__job *job,
                                 size_t data_bytes);
