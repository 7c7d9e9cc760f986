/* same.h - do the processes that share the work read the same tensors? */
#ifndef SHEAF_CHECKPOINT_STORE_SAME_H
#define SHEAF_CHECKPOINT_STORE_SAME_H

#include "sheaf/source.h"

/* sheaf__same_sources - names, dtypes, shapes, first and last rows of all tensors, compared with
 * the first process's. Collective of all processes; with one nothing is read. st      what came
 * before, consumed source  [count], some of which may be NULL also    what else must be the same,
 * as text; may be NULL Errors: the same in all: what came before anywhere; SHEAF_E_ARG naming the
 * host that differs. */
sheaf_status *sheaf__same_sources(sheaf_status *st, sheaf_source *const *source, int count,
                                  const char *also);

#endif
