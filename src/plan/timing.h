/* timing.h - how long a step of a training setting takes, or generation: measured on a shorter
 * model, predicted for the whole one: the work counted by the dry device, at the measured rates.
 *
 * Layers of one model are equal, so the seconds of each kind of op (tape/work.h) are proportional
 * to the operations of its products, or if it has none to the bytes of its values. */
#pragma once

#include "plan/inputs.h"
#include "tape/work.h"

/* Seconds. */
typedef struct sheaf_time {
    double step;                    /* the sum of the following */
    double kind[SHEAF__WORK_KINDS]; /* without waiting */
    double update;                  /* norm of the gradient, AdamW, new compute copies */
    double beside;                  /* reading rows, clearing gradients */
    double waiting;                 /* waiting for other ranks */
} sheaf_time;

/* sheaf_time_predict - for `times` as much as `work`, and one update of its trained elements.
 *   measured   a micro-batch with the update, or a pass of generation */
sheaf_time sheaf_time_predict(const sheaf__work *measured, const sheaf__work *work, double times);

typedef struct sheaf__timing {
    sheaf_time is;          /* a step; of generation reading all prompts together */
    sheaf_time next;        /* of generation a token of each sequence; step 0: training */
    double tokens;          /* of a step, or of all prompts */
    int64_t batch, max_new; /* of generation */
} sheaf__timing;

/* sheaf__timing_find - takes steps, or generates, for some seconds: with three layers of each stack
 * and made-up weights, and ranks that are threads of this process. Rows are those of the inputs, or
 * made up; of rows that differ it is the mean of the first steps. Nothing is written. inputs opened
 * Errors: SHEAF_E_ARG for generation on several stages or with an adapter; SHEAF_E_MEMORY where
 * even the short model does not fit. */
sheaf_status *sheaf__timing_find(sheaf__timing *out, const sheaf__plan_inputs *inputs,
                                 const sheaf_events *events);

/* ---- steps that are taken: of the model itself, or of a shorter one without its weights ---- */

enum { SHEAF__SHORT_LAYERS = 3 }; /* the first, the last and one between, of each stack */

typedef struct sheaf__trial {
    int64_t steps, tokens; /* without the first step, which also warms up */
    double seconds;
    sheaf__work work; /* of a short model: of the first rank, in the step that took the least for
                         what it computes */
} sheaf__trial;

/* sheaf__trial_run - loads the model and takes steps, at least two and until `seconds` have passed
 * or the run would be over; writes nothing.
 *   inputs    opened, with data, of training; their --tp and --threads count
 * Errors: those of training. */
sheaf_status *sheaf__trial_run(sheaf__trial *out, const sheaf__plan_inputs *inputs, double seconds,
                               const sheaf_events *events);
/* sheaf__trial_run_short - the same of a model with three layers of each stack and made-up weights,
 * one micro-batch a step in each group. They need neither weights nor data. */
sheaf_status *sheaf__trial_run_short(sheaf__trial *out, const sheaf__plan_inputs *inputs,
                                     const sheaf_events *events);
/* sheaf__trial_data - the rows of the inputs: their own, or made up. Close *made. */
sheaf_status *sheaf__trial_data(sheaf__subset *out, sheaf_data **made,
                                const sheaf__plan_inputs *inputs);
/* sheaf__trial_by_processor - do seconds come from the processor's clock? Where one thread
 * computes, other programs disturb that one less. */
bool sheaf__trial_by_processor(const sheaf_train_options *options);

/* sheaf__made_source - made-up weights, float32, or codes where `forms` (NULL: none) says so; both
 * are borrowed. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__made_source(sheaf_source **out, const sheaf_schema *schema,
                                 sheaf_source *forms);
