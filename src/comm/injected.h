/* injected.h - a fault at an exchange, for tests: before the n-th call of some kind, one rank dies,
 * is stopped, fails, loses its connections, makes another call, comes late or never. Wraps whatever
 * transport a group has. */
#ifndef SHEAF_COMM_INJECTED_H
#define SHEAF_COMM_INJECTED_H

#include "comm/grid.h"

typedef struct sheaf__injected sheaf__injected;

/* sheaf__inject - from now on the calls of this rank's groups count. Where `plan` is for another
 * rank *out is NULL, and nothing changes.
 *   plan  "RANK:CALL:N:FAULT": CALL as messages name it ("sum", "agree", ..., "any call"),
 *         "collect", what it is made for ("forwards", "backwards", "gradients", "weights", "norm",
 *         "others") or when ("loading", "update", "saving", "evaluating", and of other
 *         commands "reading", "comparing", "writing", "finishing"). FAULT is
 *         kill, stop, fail (as if there were no memory), memory (the system gives no more from now
 *         on), cut, hang, stray (a call of another group, which nobody else makes), or MS,
 *         milliseconds that the N-th and every later one comes late
 * Errors: SHEAF_E_ARG. Free it when the groups make no call any more. */
sheaf_status *sheaf__inject(sheaf__injected **out, const sheaf__grid *grid, const char *plan);
/* sheaf__injected_add - the groups of another grid count, too, until _drop(). Accept NULL. */
void sheaf__injected_add(sheaf__injected *injected, const sheaf__grid *grid);
void sheaf__injected_drop(sheaf__injected *injected);
void sheaf__injected_free(sheaf__injected *injected);

#endif
