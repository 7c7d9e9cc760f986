/* slow.h - a rank for which the others wait, told while a run goes on. */
#pragma once

#include "base/events.h"
#include "base/text.h"
#include "comm/all.h"
#include "sheaf/owner.h"

/* What each rank has spent since the last judgement. All zero but `window` to begin with. */
typedef struct sheaf__slow {
    double window; /* seconds of steps that a judgement takes */
    double seconds, busy[SHEAF_MAX_SLICES], wait[SHEAF_MAX_SLICES];
    int64_t steps;
    int told;     /* which rank was told last, counted from 1; 0: none */
    double quiet; /* seconds of steps until the same is told again */
} sheaf__slow;

/* sheaf__slow_step - a step took so many seconds, and the ranks so much of it. Once `window`
 * seconds and two steps have come together: a rank that computes and reads half as long again as
 * the others do on average, while these wait for a fifth of the time, is told in `text` as a
 * sentence, else `text` is left as it is. The same rank is told again after 20 windows. all
 *  the processes, whose hosts are named; NULL: one */
void sheaf__slow_step(sheaf_text *text, sheaf__slow *slow, const sheaf_event_rank *list, int ranks,
                      double seconds, const sheaf_comm *all);
