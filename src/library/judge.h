/* judge.h - a model, or a training run, judged on data: what `sheaf eval` and
 * sheaf_model_evaluate() are made of.
 *
 * What decides the loss is the run's where nothing else is given: type of activations, slices,
 * tokenizer, template, date, query, the order of bfloat16 sums, and of texts what is learned,
 * whether special tokens in them are tokens, and what becomes of those that are too long. */
#pragma once

#include "infer/wording.h"
#include "library/run_model.h"
#include "train/evaluate.h"

typedef struct sheaf__judge {
    sheaf_comm *all; /* the processes; NULL: this one is alone */
    /* given; texts may be NULL */
    const char *model, *config, *adapter, *data, *tokenizer, *prompt_template, *date, *query,
        *place, *data_cache, *isa;
    sheaf_transport transport; /* MPI: this process has joined the others */
    sheaf_dtype dtype;         /* SHEAF_BOOL: the run's, else the model's own */
    sheaf_bf16_sums sums;
    sheaf_loss_on loss_on;
    sheaf_on_long on_long;
    sheaf_on_bad on_bad;
    const char *fields; /* of records, by other names; NULL: none */
    bool specials, specials_given;
    int tp, threads, slices; /* slices 0: the run's, else 8 */
    int dp;                  /* groups of ranks, which share the rows; 0 is 1 */
    int64_t micro_batch, seq;
    bool force;
    bool words;  /* the model's own are needed, whatever the data are */
    bool padded; /* as in sheaf__evaluate_options, with `take` */
    /* Called by the first rank of each group, whose rows it gets, at the same time as by those of
     * others. */
    sheaf_status *(*take)(void *self, int64_t row, int64_t position, const float *logits);
    /* NULL or: the data are open and their judgement fits in memory; on every rank before and after
     * it is judged. */
    sheaf_status *(*ready)(void *self);
    sheaf_status *(*before)(void *self, sheaf__model *model);
    sheaf_status *(*after)(void *self, sheaf__model *model);
    void *self;             /* of all four */
    const atomic_int *stop; /* as in sheaf__evaluate_options; asked too while data are read */
    const sheaf_events *events,
        *told; /* of the judgement; of what the model is and how it is spoken to */
    /* filled in on the way */
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__wording wording;
    sheaf_data *rows;
    const char *given_template, *given_date, *given_query; /* by the caller, not by the run */
    bool of_run;                                           /* the template is */
    int64_t positions;                  /* of the longest row; `ready` may ask for more */
    const struct sheaf__asking *asking; /* by `ready`: how `after` answers; NULL: it does not */
    sheaf__evaluation result;
} sheaf__judge;

/* sheaf__judge_open - the model, and what is given by nobody but the run. Close also after a
 * failure. */
sheaf_status *sheaf__judge_open(sheaf__judge *judge);
/* sheaf__judge_run - the data and the judgement. */
sheaf_status *sheaf__judge_run(sheaf__judge *judge);
void sheaf__judge_close(sheaf__judge *judge);

/* sheaf__together_judge - processes that judge a model together have the same in hand, which is
 * proven before they load it: version and kind of machine, what is asked for, the model's config
 * and its tensors (names, types, shapes, first and last rows), all of the adapter, the tokenizer,
 * and the data. Collective of all, whatever came before in this one: `st`, which is consumed. The
 * status of all, naming the rank and host that failed or has something else. */
sheaf_status *sheaf__together_judge(sheaf_status *st, const sheaf__judge *judge);
