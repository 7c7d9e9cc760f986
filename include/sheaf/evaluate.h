/* evaluate.h - loss and accuracy of a model on data. The numbers are the same at any number of
 * ranks and threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/control.h"
#include "sheaf/dtype.h"
#include "sheaf/events.h"
#include "sheaf/generate.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_model_evaluate_options {
    size_t size;
    const char
        *data; /* JSON Lines, a folder of images, or .safetensors with input_ids and labels */
    /* As in sheaf_model_open_options, given again for the data. */
    const char *tokenizer, *prompt_template, *date;
    const char *query; /* question about every image of a folder; NULL: the run's, else CAPTCHA: */
    int64_t micro_batch; /* rows of one forward; 0: 4 */
    int64_t seq;         /* longest row in tokens; 0: as long as the data */
    /* Hears of all logits, rows ascending: [vocabulary] float32 of each position, every row with
     * the same number of positions; of a model in one group. Called by one thread; a status ends
     * it. May be NULL. */
    sheaf_status *(*take)(void *context, int64_t row, int64_t position, const float *logits,
                          int64_t vocab);
    void *context;
    const sheaf_events *events;
    sheaf_control *control; /* stops it between rows; may be NULL */
    /* Of texts; 0: the run's, else the first of each. */
    sheaf_loss_on loss_on; /* the parts that have labels */
    sheaf_on_long on_long; /* treatment of texts longer than `seq` */
    int specials;          /* special tokens that are written in them are text (-1) or tokens (1) */
    const char *data_cache; /* folder that keeps tokenised texts; NULL: none */
    sheaf_on_bad on_bad;
    const char *fields;      /* names that the records have for fields (docs/data.md); NULL */
    const char *save_logits; /* file of all logits: .safetensors, float32 [rows, length,
                                vocabulary], by any number of groups; must not exist. NULL */
    /* Prompts that it answers too, once the rows are read: out[i] answers prompt i, each to be
     * freed, by options as of sheaf_prompts_begin(). NULL */
    sheaf_prompts *prompts;
    const sheaf_model_generate_options *answers;
    sheaf_answer **out;
    /* The objective whose loss is computed in place of that of tokens, as the lines of a recipe:
     * "objective: dpo\nbeta: 0.5\n" (docs/preference.md). The data are its pairs or judged answers;
     * of a run with that objective the rest is as there. NULL: of tokens */
    const char *settings;
    /* Hears of the score that a reward model gives each row, rows ascending; a status ends it.
     * NULL: of none */
    sheaf_status *(*score)(void *context, int64_t row, double score);
} sheaf_model_evaluate_options;

typedef struct sheaf_model_evaluate_report {
    size_t size;
    double loss;     /* mean over label tokens; 0 when there is none */
    int64_t tokens;  /* label tokens */
    int64_t correct; /* of them, those that are the model's first choice */
    /* Of an objective: loss is its own, tokens counts samples, correct those in the right order;
     * and its numbers, by the names that they have in metrics.jsonl. Of a reward model
     * without an objective tokens counts rows, and the numbers are of their scores. */
    int values;
    sheaf_event_value value[SHEAF_EVENT_VALUES];
} sheaf_model_evaluate_report;

/* sheaf_model_evaluate - reads the data once, by the model's processes; the model is loaded for the
 * data where that was put off (`late` of sheaf_model_open_options). Errors: those of the data and
 * of loading. */
SHEAF_API sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report,
                                             sheaf_model *model,
                                             const sheaf_model_evaluate_options *options);

#ifdef __cplusplus
}
#endif
