/* train.h - fine-tuning: a run from its settings to its adapter or model.
 *
 *   OUT/settings           the effective settings, as a recipe
 *   OUT/metrics.jsonl      one line a step
 *   OUT/run.json           who ran it, when and where
 *   OUT/best.json          with evaluations: the step whose loss was lowest
 *   OUT/reference          of some objectives: log-probabilities by the model it is compared with
 *   OUT/rollouts.jsonl     of some objectives: completions that later steps read again
 *   OUT/checkpoints/       the state after some steps, from which a run goes on
 *   OUT/adapter/           method lora: PEFT form, appears when the run is done
 *   OUT/model/             methods head and full: Hugging Face form
 *
 * The bytes of results and checkpoints do not depend on the number of ranks or threads. What OUT
 * means is a model to evaluate.h and generate.h, and an adapter to checkpoint.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/control.h"
#include "sheaf/events.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_run_train_options {
    size_t size;
    const char *out;   /* folder of the run; must not exist, or be empty, unless it goes on */
    const char *model; /* folder of the base model */
    const char *data;  /* JSON Lines, a folder of images, or .safetensors with input_ids and labels;
                          several: "a.jsonl:0.7,b.jsonl:0.3" (docs/data.md) */
    int64_t steps;     /* optimizer steps in all */
    /* All other settings, as the lines of a recipe: "method: full\nlr: 1e-4\n"; the keys are the
     * flags of `sheaf train` (docs/recipes.md). They may name what stands above too, which wins
     * where it is given. NULL: as `sheaf train` has them by default. */
    const char *settings;
    bool resume; /* go on from the newest checkpoint in OUT: what is not given is as it was, and
                    what may not change is refused */
    int tp;      /* ranks that share the model; 0: what the settings say, else 1 */
    int threads; /* compute threads in all; 0: what the settings say, else every core at hand */
    bool force;  /* begin also what memory does not suffice for, by the planner */

    /* Called after each step, by one thread: false asks to save and stop. May be NULL. */
    bool (*step)(void *context, const sheaf_event_step *step);
    void *context;
    const sheaf_events *events; /* notes, warnings, progress and steps; may be NULL */
    sheaf_control *control;     /* asks to save or to stop; may be NULL */
} sheaf_run_train_options;

typedef struct sheaf_run_train_report {
    size_t size;
    int64_t step;                /* steps done in all */
    int64_t first;               /* steps that were done when this began */
    double loss;                 /* of the last one with a label; NaN: none has; 0: no step now */
    double seconds;              /* of the steps */
    int64_t tokens;              /* that they read */
    double padding;              /* share of the positions that is padding, 0 to 1 */
    int64_t parameters, trained; /* elements of the base; those that were trained */
    bool adapter;                /* the result is OUT/adapter; else OUT/model */
    bool evaluated;              /* there were evaluations: eval_loss is of the last one */
    bool early;                  /* it ended before the last step, as nothing got better */
    double eval_loss;            /* of the last evaluation, mean over its label tokens */
    int64_t best_step;           /* the step whose evaluation had the lowest loss; 0: none */
    double best_loss;
    char *json; /* all figures, and what each rank spent: the object of `sheaf train --json` */
    char *text; /* the same in some lines, for people */
} sheaf_run_train_report;

/* sheaf_run_train - begins a run, or goes on with one, to its end; blocks meanwhile. On x86-64 it
 * needs AVX2 and FMA. Errors: SHEAF_E_ARG for settings that cannot be; SHEAF_E_MEMORY when
 * the planner says that memory does not suffice; SHEAF_E_DATA; SHEAF_E_NUMBER for a loss that is
 * not finite; SHEAF_E_STOPPED when it was asked to stop: its state was saved. */
SHEAF_API sheaf_status *sheaf_run_train(sheaf_run_train_report *report,
                                        const sheaf_run_train_options *options);
/* sheaf_run_train_report_release - frees its texts; also if it was filled in part. */
SHEAF_API void sheaf_run_train_report_release(sheaf_run_train_report *report);
/* sheaf_run_setting_check - whether a recipe may give `setting` this value. Errors: SHEAF_E_ARG,
 * which expects the values that it takes. */
SHEAF_API sheaf_status *sheaf_run_setting_check(const char *setting, const char *value);

#ifdef __cplusplus
}
#endif
