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
    const char *model;   /* folder of the model, or of a training run, or a checkpoint in it */
    const char *adapter; /* PEFT adapter, or a training run, to use with it; NULL */
    const char *config;  /* its config.json, where the folder has none; NULL */
    const char
        *data; /* JSON Lines, a folder of images, or .safetensors with input_ids and labels */
    const char *tokenizer; /* sentencepiece file; NULL: the run's, else tokenizer.model in the
                              model's folder, else bytes */
    const char
        *prompt_template; /* base, chat, vqa or chat_old; NULL: the run's, else the model's */
    const char *query;    /* asked of every image of a folder; NULL: the run's, else CAPTCHA: */
    sheaf_dtype dtype; /* float32, bfloat16 or float16; SHEAF_BOOL, which is 0: the run's, else the
                          model's own */
    int tp;            /* ranks that share the model; 0: one */
    int threads;       /* compute threads in all; 0: every core at hand */
    const char *place; /* layers over stages of `tp` ranks each (docs/generate.md); NULL */
    int64_t micro_batch; /* rows of one forward; 0: 4 */
    int64_t seq;         /* longest row in tokens; 0: as long as the data */
    bool force;          /* also what memory does not suffice for, by the planner */
    /* Hears of all logits, rows ascending: [vocabulary] float32 of each position, every row with
     * the same number of positions. Called by one thread; a status ends it. May be NULL. */
    sheaf_status *(*take)(void *context, int64_t row, int64_t position, const float *logits,
                          int64_t vocab);
    void *context;
    const sheaf_events *events;
    sheaf_control *control; /* stops it between rows, where `take` is given; may be NULL */
    /* Of texts; 0: the run's, else the first of each. */
    sheaf_loss_on loss_on; /* what is learned */
    sheaf_on_long on_long; /* what becomes of those longer than `seq` */
    int specials;          /* special tokens that are written in them are text (-1) or tokens (1) */
    const char *data_cache; /* folder that keeps tokenised texts; NULL: none */
    int dp; /* groups of `tp` ranks, each with the whole model, that share the rows; with `take`
               one; 0: one */
    const char *date; /* that a chat template writes (docs/templates.md); NULL: the run's, else the
                         template's own, and an error where it has none */
    sheaf_on_bad on_bad;
    const char *fields; /* names that the records have for fields (docs/data.md); NULL */
    sheaf_sums sums;
    int slices;      /* parts every tensor falls into, a power of two; 0: the run's, else 8 */
    const char *isa; /* kernels: "ref", "avx2", "avx512", "avx512bf16" or "amx"; NULL: the best */
    const char *save_logits; /* file of all logits: .safetensors, float32 [rows, length,
                                vocabulary], by any number of groups; must not exist. NULL */
    /* Prompts that it answers too, once the rows are read: out[i] answers prompt i, each to be
     * freed, by options as of sheaf_prompts_begin(). NULL */
    sheaf_prompts *prompts;
    const sheaf_model_generate_options *answers;
    sheaf_answer **out;
    const char *device;      /* where it computes (docs/devices.md); NULL: cpu */
    sheaf_quantize quantize; /* as in sheaf_model_open_options */
} sheaf_model_evaluate_options;

typedef struct sheaf_model_evaluate_report {
    size_t size;
    double loss;     /* mean over label tokens; 0 when there is none */
    int64_t tokens;  /* label tokens */
    int64_t correct; /* of them, those that are the model's first choice */
} sheaf_model_evaluate_report;

/* sheaf_model_evaluate - loads the model, in the slices of the run, else in 8, reads the data once,
 * frees it. Needs a processor with AVX2 and FMA. Errors: those of the folders and the
 * data; SHEAF_E_MEMORY when the planner says that memory does not suffice. */
SHEAF_API sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report,
                                             const sheaf_model_evaluate_options *options);
/* sheaf_model_evaluate_open - the same of a model that is open, by its processes; it is loaded for
 * the data where that was put off. Of the options those that say how a model is opened are the
 * model's, but tokenizer, prompt_template and date, which are given again. */
SHEAF_API sheaf_status *sheaf_model_evaluate_open(sheaf_model_evaluate_report *report,
                                                  sheaf_model *model,
                                                  const sheaf_model_evaluate_options *options);

#ifdef __cplusplus
}
#endif
