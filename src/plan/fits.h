/* fits.h - will what is asked for fit into the memory that is left? Asked before it is begun, so
 * that the system need not kill it. */
#pragma once

#include "base/events.h"
#include "base/memory.h"
#include "plan/plan.h"

typedef struct sheaf_fits_options {
    bool force;                  /* a warning is enough */
    double share;                /* of the ranks, which are on this machine; 0: all of them */
    const sheaf_events *events;  /* may be NULL */
    const sheaf__memory *memory; /* in place of this machine's; NULL: look */
    size_t *footprint; /* [ranks] of a run that fits: what the device of each takes; may be NULL */
} sheaf_fits_options;

/* Each plans and compares. Errors: SHEAF_E_MEMORY with what is needed, what is left and what would
 * need less; those of the plan. Nothing is allocated for the run itself. */
sheaf_status *sheaf_fits_train(const sheaf__job *job, const sheaf_fits_options *how);
sheaf_status *sheaf_fits_generate(const sheaf_plan_generation *asked,
                                  const sheaf_fits_options *how);
sheaf_status *sheaf_fits_evaluate(const sheaf_plan_generation *asked, const sheaf_data *data,
                                  bool padded, const sheaf_fits_options *how);
