/* timed.h - private: passes of a model, or steps, that take turns on the clock (turns.h), with the
 * ops of the fastest. */
#ifndef SHEAF_LIBRARY_TIMED_H
#define SHEAF_LIBRARY_TIMED_H

#include "library/turns.h"
#include "sheaf/status.h"
#include "tape/work.h"

typedef struct sheaf__timed {
    sheaf__turns turns;
    sheaf__work work; /* of the fastest turn */
    double busy;      /* share of it in which the threads had processors */
} sheaf__timed;

/* A turn that is on the clock. */
typedef struct sheaf__timed_turn {
    sheaf__work now; /* for sheaf__context.work */
    double used, began;
} sheaf__timed_turn;

/* sheaf__timed_begin - processor: seconds are this thread's of the processor. */
void sheaf__timed_begin(sheaf__timed_turn *turn, bool processor);
/* sheaf__timed_end - seconds since then. */
double sheaf__timed_end(const sheaf__timed_turn *turn);
/* sheaf__timed_keep - it counts, right after its end; threads: that computed. */
void sheaf__timed_keep(sheaf__timed *timed, sheaf__timed_turn *turn, double seconds, int threads);
/* sheaf__timed_leave - the turn is over, and its list given back. `st`: how it went, the answer
 * unless it is NULL. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__timed_leave(sheaf__timed_turn *turn, sheaf_status *st);

/* sheaf__timed_ops - seconds of all ops of the fastest turn. */
double sheaf__timed_ops(const sheaf__timed *timed);
/* sheaf__timed_as_middle - the list as of the middle turn: its seconds by what that one took longer
 * than the fastest, and together no more than the middle one of `plain` took, the same without a
 * list. Returns what that one took beside them. Both have a turn. */
double sheaf__timed_as_middle(sheaf__timed *timed, const sheaf__turns *plain);

#endif
