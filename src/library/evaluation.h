/* evaluation.h - loss and accuracy of a model, or a training run, on data: what `sheaf eval` and
 * sheaf_model_evaluate() are made of.
 *
 * What decides the loss is the run's where nothing else is given: type of activations, slices,
 * tokenizer, template, date, query, the order of bfloat16 sums, and of texts what is learned,
 * whether special tokens in them are tokens, and what becomes of those that are too long. */
#pragma once

#include "infer/wording.h"
#include "library/run_model.h"
#include "plan/plan.h"
#include "sheaf/evaluate.h"
#include "train/evaluate.h"

typedef struct sheaf__evaluator {
    sheaf_model_evaluate_options o; /* given; what the run or a default decides is filled in */
    sheaf_comm *all;                /* the processes; NULL: this one is alone */
    sheaf_transport transport;      /* MPI: this process has joined the others */
    bool words;                     /* the model's own are needed, whatever the data are */
    /* NULL or: the data are open and their evaluation fits in memory; on every rank before and
     * after it. */
    sheaf_status *(*ready)(void *self);
    sheaf_status *(*before)(void *self, sheaf__model *model);
    sheaf_status *(*after)(void *self, sheaf__model *model);
    void *self;                /* of these three; o.context is o.take's */
    const atomic_int *stop;    /* as in sheaf__evaluate_options; asked too while data are read */
    const sheaf_events *notes; /* of what the model is and how its prompts are written; o.events of
                                 the evaluation */
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
} sheaf__evaluator;

/* sheaf__evaluator_open - the model, and what only the run says. Close also after a failure. */
sheaf_status *sheaf__evaluator_open(sheaf__evaluator *evaluator);
/* sheaf__evaluator_layout - the model as the evaluation lays it out, `count` rows at most together;
 * its stages go to *place. */
sheaf_status *sheaf__evaluator_layout(sheaf_plan_generation *out, sheaf__placement *place,
                                      const sheaf__evaluator *evaluator, int64_t count);
/* sheaf__evaluator_run - the data and their evaluation. */
sheaf_status *sheaf__evaluator_run(sheaf__evaluator *evaluator);
void sheaf__evaluator_close(sheaf__evaluator *evaluator);

/* sheaf__together_evaluate - processes that evaluate a model together have the same in hand, which
 * is proven before they load it: version and kind of machine, what is asked for, the model's config
 * and its tensors (names, types, shapes, first and last rows), all of the adapter, the tokenizer,
 * and the data. Collective of all, whatever came before in this one: `st`, which is consumed. The
 * status of all, naming the rank and host that failed or has something else. */
sheaf_status *sheaf__together_evaluate(sheaf_status *st, const sheaf__evaluator *evaluator);
