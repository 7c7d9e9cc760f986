/* plan.h - the memory and time that a run, or a model that answers, would need: before it starts,
 * from the model's config alone. The real step runs on a device without memory, once for each rank.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/generate.h"
#include "sheaf/options.h"
#include "sheaf/status.h"
#include "sheaf/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_needs sheaf_needs;

typedef enum sheaf_plan_table {
    SHEAF_PLAN_NO_TABLE,
    SHEAF_PLAN_TABLE_RANKS,  /* of the requested method */
    SHEAF_PLAN_TABLE_METHODS /* of all three */
} sheaf_plan_table;

/* Further options of a plan. */
typedef struct sheaf_plan_options {
    size_t size;
    uint64_t memory; /* bytes: the nearest setting to the requested one that fits (docs/plan.md);
                        0: that one itself */
    /* Ranks on each host, which share its memory; 0 ends the list. Hosts with too few for all ranks
     * take more, each its share. { 0 }: each rank has a host of its own. NULL: this machine, with
     * all ranks in one process. */
    const int *slots;
    const char *place;  /* generation: layers over stages of tp ranks each (docs/generate.md), of
                           micro-batch sequences of seq tokens; NULL: training */
    int64_t max_new;    /* of these tokens, the answer's; 0: not known */
    const char *images; /* without data: pictures of each row, "2" or "2:1344x896"; NULL: one */
    bool time;          /* how long a step takes, or a token of generation: sheaf_needs_timing() */
    bool trial;         /* with data: the model itself takes steps for a minute */
    bool first_step;    /* with data: what the first step exchanges, byte for byte */
    sheaf_plan_table table; /* the fullest rank at every number of ranks, and nothing else */
    int64_t batch;          /* sheaf_model_plan(): prompts that are read together; 0: one */
} sheaf_plan_options;

/* sheaf_run_plan - of one step of training. Neither data nor out nor steps need be given, and the
 * model may be named by the setting `config` alone; hooks are not called. Ranks are threads of this
 * process where real steps are taken.
 *   how  may be NULL. Of some questions the answer is in sheaf_needs_json() alone
 * Errors: those of the settings, the config and the data; those of training with `trial`; with
 * `time`, which takes real steps of the model with three layers of each stack and made-up weights,
 * SHEAF_E_MEMORY where not even these fit. */
SHEAF_API sheaf_status *sheaf_run_plan(sheaf_needs **out, const sheaf_run_train_options *options,
                                       const sheaf_plan_options *how);
/* sheaf_model_plan - of prompts and their answers, options->positions together, in each group; of a
 * training run, its base. With `time`, on one stage and in one group, it is a token in the middle
 * of the answer.
 *   how  may be NULL: one prompt; else of its fields memory, slots, max_new, batch and time
 * Errors: as above. */
SHEAF_API sheaf_status *sheaf_model_plan(sheaf_needs **out, const sheaf_model_open_options *options,
                                         const sheaf_plan_options *how);
/* sheaf_needs_free - accepts NULL. */
SHEAF_API void sheaf_needs_free(sheaf_needs *needs);

typedef struct sheaf_needs_facts {
    size_t size;
    int ranks;
    uint64_t process; /* bytes of all ranks in one process, and of what lies beside them */
    uint64_t fullest; /* bytes of the fullest rank */
    int64_t parameters, trained; /* elements of the model; those that are trained */
    int64_t seq;                 /* positions of a row */
    bool fits;                   /* into options->memory, where that was given */
    uint64_t need;               /* bytes of what shares that memory; else `process` */
    bool pictures;               /* the model reads some */
    const char *adapter; /* bytes of its file, in words, where it has full copies; NULL; borrowed */
} sheaf_needs_facts;

typedef struct sheaf_needs_rank_facts {
    size_t size;
    uint64_t peak; /* bytes */
    double flops;  /* of one step, products alone */
    double sent;   /* bytes handed to other ranks in one step */
} sheaf_needs_rank_facts;

/* sheaf_needs_json - all of the answer: the object of `sheaf plan --json` (docs/plan.md);
 * borrowed. */
SHEAF_API const char *sheaf_needs_json(const sheaf_needs *needs);
/* sheaf_needs_info - errors: SHEAF_E_ARG. */
SHEAF_API sheaf_status *sheaf_needs_info(sheaf_needs_facts *facts, const sheaf_needs *needs);
/* sheaf_needs_rank - errors: SHEAF_E_ARG for a rank that is none. */
SHEAF_API sheaf_status *sheaf_needs_rank(sheaf_needs_rank_facts *facts, const sheaf_needs *needs,
                                         int rank);
/* sheaf_needs_kind - a kind of memory by number from 0, "weights", "activations", ...; static.
 * NULL: there are no more. */
SHEAF_API const char *sheaf_needs_kind(int kind);
/* sheaf_needs_bytes - of that kind on a rank, when it holds most in all; 0 where there is none. */
SHEAF_API uint64_t sheaf_needs_bytes(const sheaf_needs *needs, int rank, int kind);

/* ---- how long it takes ---- */

/* All are seconds unless it says otherwise. Of training they are those of a step, of
 * generation those of the next token of each sequence. */
typedef struct sheaf_timing_facts {
    size_t size;
    double step;                                /* the next seven together */
    double products, attention, head, elements; /* kinds of ops, docs/plan.md */
    double optimizer, beside, waiting;          /* waiting: for other ranks */
    double tokens;                              /* number: that a step reads, or makes */
    double tokens_per_s;                        /* number */
    double prompt;                              /* in which all prompts are read; 0: training */
    double prompt_tokens, prompt_tokens_per_s;  /* numbers */
} sheaf_timing_facts;

/* sheaf_needs_timing - the result of `time`: a prediction, from the rates of real steps. On x86-64
 * it needs AVX2 and FMA. Errors: SHEAF_E_ARG if it was not asked for, or does not fit. */
SHEAF_API sheaf_status *sheaf_needs_timing(sheaf_timing_facts *facts, const sheaf_needs *needs);

#ifdef __cplusplus
}
#endif
