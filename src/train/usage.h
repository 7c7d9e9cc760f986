/* usage.h - resources used by each rank of a run: measured seconds, bytes and memory, for every
 * step and the whole run. */
#pragma once

#include "base/events.h"
#include "base/text.h"
#include "comm/all.h"
#include "comm/counters.h"
#include "comm/grid.h"
#include "ops/device.h"

struct sheaf__rank;

/* Where messages of a process lie as they are sent. */
typedef enum sheaf__sent_from {
    SHEAF__SENT_FROM_HOST, /* as the device's memory does; or there are none */
    SHEAF__SENT_FROM_GPU,
    SHEAF__SENT_FROM_PINNED /* copies, in pinned memory of the host */
} sheaf__sent_from;
sheaf__sent_from sheaf__sent_from_of(const sheaf__grid *grid, const sheaf__device *device);

/* The whole run of one rank. */
typedef struct sheaf__usage_total {
    sheaf_event_rank sum; /* of its steps and saves; memory and process: the maximum */
    int64_t steps;
    double seconds;                         /* of these steps */
    sheaf__count exchange[SHEAF__TRAFFICS]; /* all calls of the run, evaluations included */
    uint64_t held[SHEAF_MEM_KINDS], most[SHEAF_MEM_KINDS]; /* bytes at the end, and the maximum */
    uint64_t to[SHEAF_MAX_SLICES], from[SHEAF_MAX_SLICES]; /* bytes by rank of all */
    int64_t timed; /* steps in which the following were measured: sheaf_event_spent */
    double products, attention, transfers;
    sheaf_event_offload offload; /* of the steps */
    sheaf__sent_from sent_from;
} sheaf__usage_total;

/* Of all ranks in a step. */
typedef struct sheaf__usage_list {
    sheaf_event_rank rank[SHEAF_MAX_SLICES];
    sheaf_event_spent spent[SHEAF_MAX_SLICES];
    sheaf_event_offload offload[SHEAF_MAX_SLICES];
} sheaf__usage_list;

/* The usage of one rank; `rank` and `grid` are borrowed, the rest starts at zero. */
typedef struct sheaf__usage {
    const struct sheaf__rank *rank;
    const sheaf__grid *grid;
    double began, reading;              /* of the current step */
    sheaf__count then;                  /* exchanged before the step, */
    uint64_t to_then[SHEAF_MAX_SLICES]; /* and sent, by rank of all; */
    sheaf_event_offload offload_then;   /* and what --offload had moved */
    int64_t untimed; /* steps to come in which the device does not look at its clock */
    double saving;   /* seconds of checkpoints since the last step's line */
    sheaf__usage_total all;
} sheaf__usage;

/* sheaf__usage_begin, _end - around a step; sets this rank's entries. */
void sheaf__usage_begin(sheaf__usage *usage);
void sheaf__usage_end(sheaf__usage_list *list, sheaf__usage *usage);

/* sheaf__usage_share - all entries to all ranks. One exchange. Collective. */
sheaf_status *sheaf__usage_share(sheaf__usage_list *list, const sheaf__grid *grid);
/* sheaf__usage_gather - the whole run, by rank; the list is the caller's to free. Collective. */
sheaf_status *sheaf__usage_gather(sheaf__usage_total **out, sheaf__usage *usage);

/* sheaf__usage_slowest - the rank that computes and reads longest, so that the others wait. */
int sheaf__usage_slowest(const sheaf__usage_total *list, int ranks);
/* sheaf__usage_why - the same as a sentence, without a line feed. */
void sheaf__usage_why(sheaf_text *text, const sheaf__usage_total *list, int ranks);

/* ---- reports of a slow rank during a run ---- */

/* Usage of each rank since the last check. All but `window` start at zero. */
typedef struct sheaf__slow {
    double window; /* seconds of steps for a check */
    double seconds, busy[SHEAF_MAX_SLICES], wait[SHEAF_MAX_SLICES];
    int64_t steps;
    int named;    /* last reported rank, from 1; 0: none */
    double quiet; /* seconds of steps until it is reported again */
} sheaf__slow;

/* sheaf__slow_step - adds a step of so many seconds with the usage of all ranks. After `window`
 * seconds and two steps, a rank that computes and reads 1.5 times as long as the others on average,
 * while they wait for a fifth of the time, is reported in `text` as a sentence; else `text` is
 * unchanged. The same rank is reported again after 20 windows.
 *   all the processes, for the names of hosts; NULL: one */
void sheaf__slow_step(sheaf_text *text, sheaf__slow *slow, const sheaf_event_rank *list, int ranks,
                      double seconds, const sheaf_comm *all);
