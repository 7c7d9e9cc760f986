/* model.h - private: a loaded model, as generate.h and chat hand it out. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "infer/prefix_cache.h"
#include "infer/prompts.h"
#include "infer/answer_stream.h"
#include "library/generation_config.h"
#include "library/run_model.h"
#include "models/team.h"
#include "plan/plan.h"
#include "sheaf/evaluate.h"
#include "sheaf/generate.h"

/* The ranks of a loaded model, waiting for something to do together. */
typedef struct sheaf__model_ranks sheaf__model_ranks;

/* sheaf__model_ranks_open - sheaf__team_run() in a thread of its own; returns once all ranks have
 * loaded the model, or with why not. Everything in *options and `opened` is borrowed until it is
 * closed.
 */
sheaf_status *sheaf__model_ranks_open(sheaf__model_ranks **out, const sheaf__opened *opened,
                                      const sheaf__team_options *options);
/* sheaf__model_ranks_do - `work` on every rank; the status that they agreed on. One call at a time:
 * others wait. */
sheaf_status *sheaf__model_ranks_do(sheaf__model_ranks *ranks,
                                    sheaf_status *(*work)(void *self, sheaf__model *model),
                                    void *self);
/* sheaf__model_ranks_close - accepts NULL. */
void sheaf__model_ranks_close(sheaf__model_ranks *ranks);

/* What one rank keeps from answer to answer. */
typedef struct sheaf__rank_cache {
    sheaf__prefix_cache prefix;
    sheaf__image_cache image_cache; /* of the pictures with the number `look` */
    int64_t look;                   /* 0: of none */
} sheaf__rank_cache;

struct sheaf_model {
    sheaf_comm *all; /* its processes: those of `o` */
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__codec codec;
    sheaf__generation_config generation;
    /* Of prompt and answer, at most; 0: what is asked first decides. */
    _Atomic int64_t positions;
    sheaf_model_open_options
        o; /* place and isa are owned; tp, dp, dtype and bf16_sums are filled */
    sheaf__placement placement;
    /* Several threads may ask first: one loads it, the others wait. */
    pthread_mutex_t loading;
    sheaf__model_ranks *ranks; /* NULL until then */
    sheaf__rank_cache *cache;  /* [dp * stages * tp] */
    _Atomic int64_t looks;     /* pictures that have a number */
};

struct sheaf_answer {
    sheaf__continuation said;
    int64_t best;
    char *text;
};

/* sheaf__model_rank_cache - what this rank keeps. */
sheaf__rank_cache *sheaf__model_rank_cache(const sheaf_model *model, const sheaf__context *context);

/* How prompts are answered, and what becomes of the answers. */
typedef struct sheaf__answer_options {
    const sheaf__codec *codec;        /* of the answers */
    sheaf__generate_options generate; /* stop, heard and what is kept are set by each rank */
    bool logprobs;
    const char *const *stop; /* [nstop] texts that end an answer */
    int64_t nstop;
    /* As tokens and texts come, by the first rank; may be NULL. */
    void (*on_token)(void *context, int32_t token);
    void (*on_text)(void *context, int64_t prompt, const char *text);
    void *context; /* of both */
    bool partial;  /* stopped, what was said so far is the answer */
} sheaf__answer_options;

/* Prompts that ranks of the caller answer. */
typedef struct sheaf__answer_job {
    const sheaf__answer_options *a;
    const sheaf__prompt *prompt; /* [count] */
    int64_t count;
    sheaf_answer **out; /* [count], NULL at first; the caller's to free, also after a failure */
    sheaf_model *m;     /* whose ranks keep what they read; NULL: nothing is kept */
} sheaf__answer_job;

/* sheaf__answer_on_rank - collective: the work of each rank; one of each process fills `out`. */
sheaf_status *sheaf__answer_on_rank(void *answering, sheaf__model *model);

/* sheaf__model_answer - out[i] answers prompt[i]; loads the model where that was put off. All of
 * `out` is NULL after a failure. Errors: those of sheaf__generate(), and of loading. */
sheaf_status *sheaf__model_answer(sheaf_answer **out, sheaf_model *m, const sheaf__prompt *prompt,
                                  int64_t count, const sheaf__answer_options *options);
/* sheaf__model_ready - loaded, for such prompts where no positions were given. Errors: those of
 * loading, and of sheaf__model_room() where another thread's prompts decided since. */
sheaf_status *sheaf__model_ready(sheaf_model *m, const sheaf__prompt *prompt, int64_t count,
                                 const sheaf__answer_options *options);
/* sheaf__model_answer_options - the options but for prompts, checked; what is 0 there is the
 * model's own with model_defaults. texts  the prompts are some, and no tokens */
sheaf_status *sheaf__model_answer_options(sheaf__answer_options *out, const sheaf_model *m,
                                          const sheaf_model_generate_options *o, bool texts);
/* sheaf__model_check_open - is there a model, or when planning a config, and does each number lie
 * where it can? */
sheaf_status *sheaf__model_check_open(const sheaf_model_open_options *o, bool planning);
/* sheaf__model_room - errors: SHEAF_E_DATA when prompt and answer are longer than the model was
 * opened for. */
sheaf_status *sheaf__model_room(const sheaf_model *m, const sheaf__prompt *prompt,
                                const sheaf__answer_options *options);

/* sheaf__no_prompt - SHEAF_E_ARG for options that hold a prompt, or with `system` a system message.
 */
sheaf_status *sheaf__no_prompt(const sheaf_model_generate_options *o, bool system, const char *why);
/* sheaf__prompts_reach - refuses prompts that alone are longer than the model was made for, unless
 * max_length (0: not given) allows them by name; warns where prompts and answers may grow past it.
 */
sheaf_status *sheaf__prompts_reach(const sheaf_config *config, const sheaf__prompts *prompts,
                                   int64_t max_new, int64_t max_length, const sheaf_events *events);

/* sheaf__model_layout - so many sequences of `seq` positions as this model computes them. */
sheaf_plan_generation sheaf__model_layout(const sheaf_model *model, int64_t batch, int64_t seq);
/* sheaf__model_load_for - loads it, where it is not loaded, for so many positions of a sequence.
 * Errors: SHEAF_E_DATA where it is loaded for fewer. */
sheaf_status *sheaf__model_load_for(sheaf_model *model, int64_t positions);
/* sheaf__prompts_positions - of the longest prompt and an answer of `max_new` tokens. */
int64_t sheaf__prompts_positions(const sheaf_prompts *prompts, int64_t max_new);

/* sheaf__consistency_evaluate - processes that evaluate a model together have the same in hand,
 * which is proven before they load it: version and kind of machine, what is asked for, the model's
 * config and its tensors (names, types, shapes, first and last rows), all of the adapter, the
 * tokenizer, and the data. Collective of all, whatever came before in this one: `st`, which is
 * consumed. The status of all, naming the rank and host that failed or has something else. */
sheaf_status *sheaf__consistency_evaluate(sheaf_status *st, const sheaf_model *model,
                                          const sheaf_model_evaluate_options *options,
                                          const sheaf_data *rows, int64_t positions);
/* sheaf__consistency_generate - the same of processes that answer these prompts. */
sheaf_status *sheaf__consistency_generate(sheaf_status *st, const sheaf_model *model,
                                          const sheaf__prompts *prompts,
                                          const sheaf__answer_options *options);
