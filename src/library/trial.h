/* trial.h - the speed of a training setting, measured by taking some of its steps. */
#ifndef SHEAF_LIBRARY_TRIAL_H
#define SHEAF_LIBRARY_TRIAL_H

#include "library/question.h"

typedef struct sheaf__trial {
    int64_t steps, tokens; /* without the first step, which also warms up */
    double seconds;
} sheaf__trial;

/* sheaf__trial_run - loads the model and takes steps, at least two and until `seconds` have passed
 * or the run would be over; writes nothing.
 *   question  opened, with data, of training; its --tp and --threads count
 * Errors: those of training. */
sheaf_status *sheaf__trial_run(sheaf__trial *out, const sheaf__question *question, double seconds,
                               const sheaf_events *events);

#endif
