/* usage.h - what each rank of a run has spent: measured seconds, bytes and memory, of every step
 * and of the whole run. */
#pragma once

#include "base/events.h"
#include "base/text.h"
#include "comm/all.h"
#include "comm/counters.h"
#include "comm/grid.h"
#include "ops/device.h"

struct sheaf__rank;

/* The whole run of one rank. */
typedef struct sheaf__usage_total {
    sheaf_event_rank sum; /* of its steps, and what was saved; memory and process: the most */
    int64_t steps;
    double seconds;                         /* of these steps */
    sheaf__count exchange[SHEAF__TRAFFICS]; /* all calls of the run, evaluations too */
    uint64_t held[SHEAF_MEM_KINDS], most[SHEAF_MEM_KINDS]; /* bytes at the end, and at most */
    uint64_t to[SHEAF_MAX_SLICES], from[SHEAF_MAX_SLICES]; /* bytes by rank of all */
} sheaf__usage_total;

/* One rank's account; `rank` and `grid` are borrowed, the rest is zero to begin with. */
typedef struct sheaf__usage {
    const struct sheaf__rank *rank;
    const sheaf__grid *grid;
    double began, reading; /* of the step at hand */
    sheaf__count then;     /* exchanged before it */
    double saving;         /* seconds of checkpoints since the last step's line */
    sheaf__usage_total all;
} sheaf__usage;

/* sheaf__usage_begin, _end - around a step. one: what it took this rank. */
void sheaf__usage_begin(sheaf__usage *usage);
void sheaf__usage_end(sheaf_event_rank *one, sheaf__usage *usage);

/* sheaf__usage_share - what a step took every rank: list[ranks], of which the caller has filled in
 * its own entry. One exchange. Collective. */
sheaf_status *sheaf__usage_share(sheaf_event_rank *list, const sheaf__grid *grid);
/* sheaf__usage_gather - the whole run, by rank; the list is the caller's to free. Collective. */
sheaf_status *sheaf__usage_gather(sheaf__usage_total **out, sheaf__usage *usage);

/* sheaf__usage_slowest - the rank that computes and reads longest: for it the others wait. */
int sheaf__usage_slowest(const sheaf__usage_total *list, int ranks);
/* sheaf__usage_why - that in words, on one line without its end. */
void sheaf__usage_why(sheaf_text *text, const sheaf__usage_total *list, int ranks);

/* ---- a rank for which the others wait, named while a run goes on ---- */

/* What each rank has spent since the last judgement. All zero but `window` to begin with. */
typedef struct sheaf__slow {
    double window; /* seconds of steps that a judgement takes */
    double seconds, busy[SHEAF_MAX_SLICES], wait[SHEAF_MAX_SLICES];
    int64_t steps;
    int named;    /* the rank that was named last, counted from 1; 0: none */
    double quiet; /* seconds of steps until the same is named again */
} sheaf__slow;

/* sheaf__slow_step - a step took so many seconds, and the ranks so much of it. Once `window`
 * seconds and two steps have come together: a rank that computes and reads half as long again as
 * the others do on average, while these wait for a fifth of the time, is named in `text` as a
 * sentence, else `text` is left as it is. The same rank is named again after 20 windows.
 *   all  the processes, whose hosts are named; NULL: one */
void sheaf__slow_step(sheaf_text *text, sheaf__slow *slow, const sheaf_event_rank *list, int ranks,
                      double seconds, const sheaf_comm *all);
