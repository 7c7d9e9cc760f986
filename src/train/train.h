/* train.h - a fine-tuning run from its flags to its adapter or model.
 *
 *   OUT/settings           the effective settings, as a recipe
 *   OUT/metrics.jsonl      one line a step (written by the caller's event sink)
 *   OUT/checkpoints/       see checkpoint/store/checkpoint.h
 *   OUT/best.json          with evaluations: the step whose loss was lowest
 *   OUT/adapter/           method lora: PEFT form, appears when the run is done
 *   OUT/model/             methods head and full: Hugging Face form */
#pragma once

#include "base/events.h"
#include "train/options.h"
#include "base/control.h"

struct sheaf__job;         /* rank.h */
struct sheaf__sampler;     /* sampler.h */
struct sheaf__usage_total; /* usage.h */

typedef struct sheaf_train_hooks {
    sheaf_comm *all; /* the processes of the run; NULL: this one is alone */
    /* Called once everything was checked and OUT exists, before the first step; metrics lines after
     * keep_steps, and those of evaluations after keep_evaluations, will be written again. May be
     * NULL. */
    sheaf_status *(*begin)(void *self, int64_t keep_steps, int64_t keep_evaluations);
    /* Called before `begin` with the run's origin, a JSON object (train/origin.h) for the key
     * "base" of OUT/run.json, where a resumed run reads it. May be NULL: then all of the base is
     * hashed each time. */
    sheaf_status *(*base)(void *self, const char *json);
    /* Called once the data were read, before OUT is written, with the prompt template of their
     * texts, NULL if none is used, and the options, of which little data may have lowered some
     * (sets.h). May replace the texts passed to sheaf_train(), by texts of the
     * caller. May be NULL. */
    sheaf_status *(*chosen)(void *self, const char *prompt_template,
                            const sheaf_train_options *options, const char **settings,
                            const char **recipe);
    /* Called once the memory can be planned, before OUT is written; a failure ends the run.
     * footprint: out, [ranks] bytes that each device will need and may reserve, or 0; kept: out,
     * what the run keeps, if that is more than its options say. May be NULL. */
    sheaf_status *(*planned)(void *self, const struct sheaf__job *job, size_t *footprint,
                             sheaf__kept *kept);
    const struct sheaf__sampler *sampler; /* of a run with --reward; else not read */
    const sheaf_events *events;           /* steps and notes; may be NULL */
    sheaf_status *(*before_save)(void *); /* metrics to disk before a checkpoint; may be NULL */
    void *self;
    sheaf_control *control;   /* requests to save or stop; may be NULL */
    const atomic_int *enough; /* like control's stop, for this run alone; may be NULL */
    double spent;             /* seconds of max_time used by earlier tries of the run */
    /* The current activity (comm/activity.h) of each rank of this process, begun by the caller; may
     * be NULL. */
    struct sheaf__activity *activity;
} sheaf_train_hooks;

typedef struct sheaf_train_result {
    int64_t step;  /* steps done in all */
    int64_t first; /* steps done before this run began */
    double loss, seconds;
    int64_t tokens;
    bool learned;                       /* a step since `first` changed a trained tensor */
    int64_t skipped;                    /* float16: skipped steps of the whole run */
    double loss_scale;                  /* after the last step; 0: losses are not scaled */
    int64_t parameters, trained, added; /* elements of the base; trained; of them not in the base */
    double padding;                     /* share of the positions that is padding, 0 to 1 */
    bool evaluated;                     /* at least once: of the last evaluation */
    double eval_loss, eval_accuracy;
    int64_t eval_tokens; /* or samples: pairs, or answers that are judged */
    bool eval_pairs;
    int64_t best_step; /* 0: none */
    double best_loss;
    bool early;                      /* --patience was over */
    char *result;                    /* OUT/adapter or OUT/model; owned */
    char *checkpoint;                /* folder of the last checkpoint; owned */
    struct sheaf__usage_total *rank; /* [ranks] usage since `first`; owned; NULL: no step */
    int ranks;
} sheaf_train_result;

/* sheaf_train_peek - the settings text in OUT (malloc'd, NULL if there is none) and the step of the
 * newest complete checkpoint (0 if there is none; only the first of several processes looks for
 * it). Errors: SHEAF_E_IO, and the lock's. */
sheaf_status *sheaf_train_peek(char **settings, int64_t *step, const char *out);

/* sheaf_train - runs to the end, or until a signal asks to stop (SHEAF_E_STOPPED, state
 * saved). settings: sheaf__settings_text() of the fixed settings, stored in every checkpoint;
 * recipe: all settings, written to OUT. hooks: NULL for none. */
sheaf_status *sheaf_train(sheaf_train_result *out, const sheaf_train_options *options,
                          const char *settings, const char *recipe, const sheaf_train_hooks *hooks);
void sheaf_train_result_release(sheaf_train_result *result);
