/* divided.h - a merge that several processes share: each takes some tensors, and what comes of them
 * is counted as one process would count it. */
#ifndef SHEAF_CHECKPOINT_MERGE_DIVIDED_H
#define SHEAF_CHECKPOINT_MERGE_DIVIDED_H

#include "checkpoint/merge/work.h"

/* What came of a tensor that is computed. */
typedef struct sheaf__merge_outcome {
    sheaf__lora_change change;
    bool here, other_copy; /* here: this process has merged it */
} sheaf__merge_outcome;

/* sheaf__merge_take_share - sets crew->begin and crew->end: neighbouring tensors, so that each
 * process has about as many of the `total` bytes; all of them where crew->together is not set. */
void sheaf__merge_take_share(sheaf__merge_crew *crew, const sheaf__merge_plan *plan, int64_t total);

/* Collective of all processes. `st` is this one's status, consumed; a failure anywhere is all
 * of theirs.
 * sheaf__merge_hear_outcomes - those of all tensors [count], and the bytes that all have done. */
sheaf_status *sheaf__merge_hear_outcomes(sheaf__merge_outcome *outcome, int64_t count,
                                         _Atomic int64_t *done, sheaf_status *st);
/* sheaf__merge_hear_checks - what all looked at again. */
sheaf_status *sheaf__merge_hear_checks(sheaf_merge_report *report, sheaf_status *st);

#endif
