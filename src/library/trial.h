/* trial.h - the speed of a training setting, measured by taking some of its steps: of the model
 * itself, or of a shorter one without its weights. */
#pragma once

#include "library/question.h"

enum { SHEAF__SHORT_LAYERS = 3 }; /* the first, the last and one between, of each stack */

typedef struct sheaf__trial {
    int64_t steps, tokens; /* without the first step, which also warms up */
    double seconds;
    sheaf__work work; /* of a short model: of the first rank, in the step that took the least for
                         what it computes */
} sheaf__trial;

/* sheaf__trial_run - loads the model and takes steps, at least two and until `seconds` have passed
 * or the run would be over; writes nothing.
 *   question  opened, with data, of training; its --tp and --threads count
 * Errors: those of training. */
sheaf_status *sheaf__trial_run(sheaf__trial *out, const sheaf__question *question, double seconds,
                               const sheaf_events *events);
/* sheaf__trial_run_short - the same of a model with three layers of each stack and made-up weights,
 * one micro-batch a step in each group. The question needs neither weights nor data. */
sheaf_status *sheaf__trial_run_short(sheaf__trial *out, const sheaf__question *question,
                                     const sheaf_events *events);
/* sheaf__trial_data - the rows of a question: its own, or made up. Close *made. */
sheaf_status *sheaf__trial_data(sheaf__subset *out, sheaf_data **made,
                                const sheaf__question *question);
/* sheaf__trial_by_processor - do seconds come from the processor's clock? Where one thread
 * computes, other programs disturb that one less. */
bool sheaf__trial_by_processor(const sheaf_train_options *options);
