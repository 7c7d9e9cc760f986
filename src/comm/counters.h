/* counters.h - what the calls of one rank in one group have cost: measured, not modelled.
 *
 * Bytes are those of messages: what ranks of one process read in place counts as if it were sent.
 * A call that fails counts the part it had done. The headings that every exchange begins with are
 * not among the bytes; `exchanges` says how many there were.
 *
 * Each rank counts for itself, in memory of its own. */
#pragma once

#include <stdint.h>

#include "sheaf/cut.h"

/* The purpose of a call, in the order of tables and JSON. Selections and agreement are counted by
 * operation, not by purpose. */
typedef enum sheaf__traffic {
    SHEAF__TRAFFIC_FORWARD,   /* sums and maxima of the forward pass */
    SHEAF__TRAFFIC_BACKWARD,  /* sums of the backward pass */
    SHEAF__TRAFFIC_SELECT,    /* rows of cut tables, from the rank that holds them */
    SHEAF__TRAFFIC_GRADIENTS, /* sums over groups */
    SHEAF__TRAFFIC_WEIGHTS,   /* weights that another group has updated */
    SHEAF__TRAFFIC_NORM,      /* of the gradient */
    SHEAF__TRAFFIC_OTHER,     /* agreement, checkpoints, monitoring */
    SHEAF__TRAFFICS
} sheaf__traffic;

typedef struct sheaf__count {
    uint64_t calls, exchanges; /* an exchange: one meeting of all ranks */
    uint64_t sent, received;   /* bytes, all peers together */
    double waiting;            /* seconds until all had come */
    double moving;             /* seconds in which bytes were on their way */
    double summing;            /* seconds of additions inside the call */
} sheaf__count;

typedef struct sheaf__counters {
    sheaf__traffic purpose; /* of the calls to come */
    sheaf__count of[SHEAF__TRAFFICS];
    /* bytes by rank of the group */
    uint64_t to[SHEAF_MAX_SLICES], from[SHEAF_MAX_SLICES];
} sheaf__counters;

/* "forward", "backward", ...: stable JSON keys; static */
const char *sheaf__traffic_name(sheaf__traffic traffic);

/* Everything. */
sheaf__count sheaf__counters_all(const sheaf__counters *counters);
/* *to += from */
void sheaf__count_add(sheaf__count *to, const sheaf__count *from);
/* from - what; both of the same rank, `what` the earlier */
sheaf__count sheaf__count_since(const sheaf__count *from, const sheaf__count *what);

/* sheaf__counters_repeat - what was counted since `before` counts `times` times more; for a
 * planner that runs one of several equal parts. */
void sheaf__counters_repeat(sheaf__counters *counters, const sheaf__counters *before,
                            uint64_t times);
