/* fits.h - does a request fit into the available memory? Checked before it starts, so that the
 * system does not kill it. */
#pragma once

#include "base/events.h"
#include "base/memory.h"
#include "plan/plan.h"

typedef struct sheaf_fits_options {
    bool force;                  /* only warn */
    double share;                /* share of the ranks on this machine; 0: all of them */
    const sheaf_events *events;  /* may be NULL */
    const sheaf__memory *memory; /* instead of this machine's; or NULL */
    double disk;                 /* bytes free where OUT lies; 0: those that are */
    size_t *footprint; /* out, [ranks] bytes of each device if the run fits; may be NULL */
} sheaf_fits_options;

/* Each plans and compares. Errors: SHEAF_E_MEMORY with bytes needed, bytes available and advice, of
 * a run also SHEAF_E_IO where a checkpoint and the result need more than is free on its disk; those
 * of the plan. Nothing is allocated for the run itself. */
sheaf_status *sheaf_fits_train(const sheaf__job *job, const sheaf_fits_options *how);
/* sheaf_fits_pairs - does a run that may keep both sides of pairs, and was not told what it keeps,
 * fit with them, and leave a quarter of the available memory free? Only of ranks in one process, on
 * processors, where that memory is known. true: how->footprint is that of it; else as it was. */
bool sheaf_fits_pairs(const sheaf__job *job, const sheaf_fits_options *how);
sheaf_status *sheaf_fits_generate(const sheaf_plan_generation *request,
                                  const sheaf_fits_options *how);
sheaf_status *sheaf_fits_evaluate(const sheaf_plan_generation *request, const sheaf_data *data,
                                  bool padded, const sheaf_fits_options *how);
