/* crowd.h - the ranks of a loaded model, waiting for something to do together. */
#pragma once

#include "models/crew.h"

typedef struct sheaf__crowd sheaf__crowd;

/* sheaf__crowd_open - sheaf__crew_run() in a thread of its own; returns once all ranks have loaded
 * the model, or with why not. Everything in *options and `opened` is borrowed until it is closed.
 */
sheaf_status *sheaf__crowd_open(sheaf__crowd **out, const sheaf__opened *opened,
                                const sheaf__crew_options *options);
/* sheaf__crowd_do - `work` on every rank; the status that they agreed on. One call at a time:
 * others wait. */
sheaf_status *sheaf__crowd_do(sheaf__crowd *crowd,
                              sheaf_status *(*work)(void *self, sheaf__model *model), void *self);
/* sheaf__crowd_close - accepts NULL. */
void sheaf__crowd_close(sheaf__crowd *crowd);
