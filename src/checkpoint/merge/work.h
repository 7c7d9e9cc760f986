/* work.h - what is done with a planned tensor: norms, tiles, checks. */
#pragma once

#include "checkpoint/merge/plan.h"
#include "dialects/common/folder.h"
#include "ops/pool.h"

typedef struct sheaf__merge_crew {
    sheaf__pool *pool;
    int threads;
    sheaf__merge_scratch *scratch; /* [threads] */
    sheaf__merge_rows rows;        /* of the tensor at hand */
    atomic_bool other_copy;
    const atomic_int *stop;
} sheaf__merge_crew;

sheaf_status *sheaf__merge_crew_init(sheaf__merge_crew *crew, const sheaf__merge_plan *plan,
                                     const sheaf_weights_merge_options *options);
void sheaf__merge_crew_release(sheaf__merge_crew *crew);

/* sheaf__merge_norms - the factors of all DoRA steps of crew->rows.t: m / |V|, V as the step finds
 * it, its squares summed in float32 in torch's order; across in SHEAF_MERGE_ROUND_ONCE in double,
 * in an order that does not depend on threads. Nothing to do for other tensors. */
sheaf_status *sheaf__merge_norms(sheaf__merge_crew *crew, sheaf__merge_tensor *t);

/* sheaf__merge_check_rows - first, middle and last rows of every tensor of `written`, computed
 * again: the same bits. */
sheaf_status *sheaf__merge_check_rows(sheaf__merge_crew *crew, const sheaf__merge_plan *plan,
                                      sheaf_source *written, sheaf_weights_merge_report *report);
/* sheaf__merge_check_products - W' x against (W + s B A) x in double, x random signs, for every
 * adapted weight. Errors: SHEAF_E_NUMBER when one differs by more than rounding explains. */
sheaf_status *sheaf__merge_check_products(sheaf__merge_crew *crew, const sheaf__merge_plan *plan,
                                          sheaf_source *written,
                                          sheaf_weights_merge_report *report);
