/* contract.h - which version of the numeric contract (docs/contract.md) a run is of. */
#pragma once

#include "train/rank.h"

enum { SHEAF__CONTRACT = 6 }; /* the newest version, which docs/contract.md is */

/* sheaf__pads - does the run train the embedding, or factors beside it, on rows in which the token
 * of its padding row is seen? Errors: those of reading the data. */
sheaf_status *sheaf__pads(bool *out, const sheaf__job *job, const sheaf_data *data);
/* sheaf__contract_of - the first version that has all that a run uses. `pads` as above. */
int sheaf__contract_of(const sheaf__job *job, bool pads);
