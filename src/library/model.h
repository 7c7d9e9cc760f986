/* model.h - private: the loaded model of generate.h and chat. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "infer/prefix_cache.h"
#include "infer/prompts.h"
#include "infer/answer.h"
#include "library/generation_config.h"
#include "library/run_model.h"
#include "models/ranks.h"
#include "plan/plan.h"
#include "sheaf/evaluate.h"
#include "sheaf/generate.h"

struct sheaf_model {
    sheaf_comm *all; /* its processes: those of `o` */
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__codec codec;
    sheaf__generation_config generation;
    /* Most positions of prompt and answer; 0: the first prompts decide. */
    _Atomic int64_t positions;
    sheaf_model_open_options o; /* tp, dp, dtype and sums are set */
    char *text[10];             /* its texts, as the caller's may go */
    sheaf__placement placement;
    /* Several threads may send the first prompts: one loads it, the others wait. */
    pthread_mutex_t loading;
    sheaf__model_ranks *ranks; /* NULL until it is loaded */
    sheaf__rank_cache *cache;  /* [dp * stages * tp] */
    _Atomic int64_t looks;     /* last number given to pictures */
    sheaf__token_bytes tokens; /* .count 0: not needed yet */
};

struct sheaf_answer {
    sheaf__continuation output;
    int64_t best;
    char *text;
};

/* sheaf__model_rank_cache - the caches of this rank. */
sheaf__rank_cache *sheaf__model_rank_cache(const sheaf_model *model, const sheaf__context *context);

/* sheaf__model_answer - out[i] answers prompt[i]; first loads the model if necessary. All of `out`
 * is NULL after a failure. Errors: those of sheaf__generate(), and of loading. */
sheaf_status *sheaf__model_answer(sheaf_answer **out, sheaf_model *m, const sheaf__prompt *prompt,
                                  int64_t count, const sheaf__answer_options *options);
/* sheaf__model_ready - loads it, with positions for these prompts if none were given. Errors: those
 * of loading, and of sheaf__model_room() if another thread's prompts decided meanwhile. */
sheaf_status *sheaf__model_ready(sheaf_model *m, const sheaf__prompt *prompt, int64_t count,
                                 const sheaf__answer_options *options);
/* sheaf__model_answer_options - checks the options except for prompts; with model_defaults zeros
 * are replaced by the model's own.
 *   texts  the prompts are texts, not tokens */
sheaf_status *sheaf__model_answer_options(sheaf__answer_options *out, sheaf_model *m,
                                          const sheaf_model_generate_options *o, bool texts);
/* sheaf__model_tokens - the bytes of its tokens, found once; thread-safe. Errors: those of
 * sheaf__token_bytes_open(). */
sheaf_status *sheaf__model_tokens(const sheaf__token_bytes **out, sheaf_model *m);
/* sheaf__model_check_open - is there a model, or when planning a config, and is each number in its
 * range? */
sheaf_status *sheaf__model_check_open(const sheaf_model_open_options *o, bool planning);
/* sheaf__model_room - errors: SHEAF_E_DATA if prompt and answer have more positions than the model
 * was opened with. */
sheaf_status *sheaf__model_room(const sheaf_model *m, const sheaf__prompt *prompt,
                                const sheaf__answer_options *options);

/* sheaf__no_prompt - SHEAF_E_ARG for options with a prompt, or if `system` with a system message.
 */
sheaf_status *sheaf__no_prompt(const sheaf_model_generate_options *o, bool system, const char *why);
/* sheaf__model_layout - the plan's request for `batch` sequences of `seq` positions. */
sheaf_plan_generation sheaf__model_layout(const sheaf_model *model, int64_t batch, int64_t seq);
/* sheaf__model_load_batch - as sheaf_model_load(), for `batch` sequences at a time. */
sheaf_status *sheaf__model_load_batch(sheaf_model *model, int64_t batch);
/* sheaf__model_load_for - loads it, unless it is loaded, for so many positions of a sequence.
 * Errors: SHEAF_E_DATA if it is loaded with fewer. */
sheaf_status *sheaf__model_load_for(sheaf_model *model, int64_t positions);
/* sheaf__prompts_positions - of the longest prompt and an answer of `max_new` tokens. */
int64_t sheaf__prompts_positions(const sheaf_prompts *prompts, int64_t max_new);

/* sheaf__consistency_evaluate - checks before loading that all processes have the same inputs:
 * version and kind of machine, options, the model's config and its tensors (names, types, shapes,
 * first and last rows), all of the adapter, the tokenizer, and the data. Collective, also after a
 * failure `st` in this process, which is consumed. Returns the status of all, naming the rank and
 * host that failed or differs. */
sheaf_status *sheaf__consistency_evaluate(sheaf_status *st, const sheaf_model *model,
                                          const sheaf_model_evaluate_options *options,
                                          const sheaf_data *rows, int64_t positions);
/* sheaf__consistency_generate - the same for processes that answer these prompts. */
sheaf_status *sheaf__consistency_generate(sheaf_status *st, const sheaf_model *model,
                                          const sheaf__prompts *prompts,
                                          const sheaf__answer_options *options);
