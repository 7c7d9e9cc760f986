/* ranks.h - the ranks of a loaded model, waiting for collective work. */
#pragma once

#include "models/team.h"

typedef struct sheaf__model_ranks sheaf__model_ranks;

/* sheaf__model_ranks_open - starts sheaf__team_run() in a thread of its own; returns once all ranks
 * have loaded the model, or an error. Everything in *options and `opened` is borrowed until it is
 * closed.
 */
sheaf_status *sheaf__model_ranks_open(sheaf__model_ranks **out, const sheaf__opened *opened,
                                      const sheaf__team_options *options);
/* sheaf__model_ranks_do - runs `work` on every rank; returns the agreed status. Concurrent calls
 * wait. */
sheaf_status *sheaf__model_ranks_do(sheaf__model_ranks *ranks,
                                    sheaf_status *(*work)(void *self, sheaf__model *model),
                                    void *self);
/* sheaf__model_ranks_close - accepts NULL. */
void sheaf__model_ranks_close(sheaf__model_ranks *ranks);
