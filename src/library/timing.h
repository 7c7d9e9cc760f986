/* timing.h - how long a step of a training setting takes, or generation: measured on a shorter
 * model, predicted for the whole one (plan/time.h). */
#pragma once

#include "library/question.h"
#include "plan/time.h"

typedef struct sheaf__timing {
    sheaf_time is;          /* a step; of generation reading all prompts together */
    sheaf_time next;        /* of generation a token of each sequence; step 0: training */
    double tokens;          /* of a step, or of all prompts */
    int64_t batch, max_new; /* of generation */
} sheaf__timing;

/* sheaf__timing_find - takes steps, or generates, for some seconds: with three layers of each stack
 * and made-up weights, and ranks that are threads of this process. Rows are the question's, or made
 * up; of rows that differ it is the mean of the first steps. Nothing is written.
 *   question  opened
 * Errors: SHEAF_E_ARG for generation on several stages or with an adapter; SHEAF_E_MEMORY where
 * even the short model does not fit. */
sheaf_status *sheaf__timing_find(sheaf__timing *out, const sheaf__question *question,
                                 const sheaf_events *events);
