/* evaluate.c - loss and accuracy of a model on data: sheaf/evaluate.h. */
#include "sheaf/evaluate.h"

#include <string.h>

#include "base/status.h"
#include "base/inside.h"
#include "library/judge.h"
#include "library/model.h"
#include "library/take.h"
#include "library/train_settings.h"

typedef struct work {
    const sheaf_model_evaluate_options *o;
    sheaf__judge judge;
} work;

static sheaf_status *take(void *self, int64_t row, int64_t position, const float *logits)
{
    const work *w = self;
    sheaf__numbers before = sheaf__callback_begin();
    sheaf_status *st =
        w->o->take(w->o->context, row, position, logits, w->judge.opened.config.vocab);
    sheaf__numbers_restore(&before);
    return st;
}

static sheaf_status *check(const sheaf_model_evaluate_options *o)
{
    static const char what[] = "sheaf_model_evaluate_options";
    const bool sound = o->model != NULL && o->data != NULL && o->tp >= 0 && o->dp >= 0 &&
                       o->threads >= 0 && o->micro_batch >= 0 && o->seq >= 0 && o->specials >= -1 &&
                       o->specials <= 1;
    if (sound && o->dp > 1 && o->take != NULL) /* which would be called by several at once */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "dp 1 beside take"), "%d",
                           o->dp);
    if (!sound)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "a model, data, specials from -1 to 1, and no other number below 0");
    sheaf_status *st = sheaf__take_count(what, "seq", o->seq, SHEAF__MOST_POSITIONS);
    return st == NULL ? sheaf__take_count(what, "threads", o->threads, SHEAF__MOST_THREADS) : st;
}

/* One of the names that flags have; NULL leaves *out. */
static sheaf_status *choose(int *out, const char *name, const sheaf__choice *choices,
                            const char *what)
{
    int n = 0;
    if (name == NULL)
        return NULL;
    for (; choices[n].name != NULL; n++)
        if (strcmp(choices[n].name, name) == 0) {
            *out = choices[n].value;
            return NULL;
        }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "sheaf_model_evaluate_options: %s", what);
    sheaf_expected(st, "%s, %s or %s", choices[0].name, choices[1].name, choices[2].name);
    return sheaf_found(st, "%s", name);
}

static sheaf_status *fill(work *w)
{
    const sheaf_model_evaluate_options *o = w->o;
    int loss_on = SHEAF_LOSS_UNNAMED, on_long = SHEAF_LONG_UNNAMED;
    w->judge = (sheaf__judge){ .model = o->model,
                               .config = o->config,
                               .adapter = o->adapter,
                               .data = o->data,
                               .tokenizer = o->tokenizer,
                               .prompt_template = o->prompt_template,
                               .date = o->date,
                               .query = o->query,
                               .place = o->place,
                               .data_cache = o->data_cache,
                               .specials = o->specials > 0,
                               .specials_given = o->specials != 0,
                               .tp = o->tp > 0 ? o->tp : 1,
                               .dp = o->dp,
                               .threads = o->threads,
                               .micro_batch = o->micro_batch > 0 ? o->micro_batch : 4,
                               .seq = o->seq,
                               .force = o->force,
                               .padded = o->take != NULL,
                               .take = take,
                               .self = w,
                               .stop = sheaf__control_stop(o->control),
                               .events = o->events,
                               .told = o->events };
    sheaf_status *st = sheaf__take_activations(&w->judge.dtype, o->dtype);
    TRY(st, choose(&loss_on, o->loss_on, sheaf__loss_choices, "loss_on"));
    TRY(st, choose(&on_long, o->on_long, sheaf__long_choices, "on_long"));
    w->judge.loss_on = (sheaf_loss_on)loss_on;
    w->judge.on_long = (sheaf_on_long)on_long;
    return st;
}

sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report,
                                   const sheaf_model_evaluate_options *options)
{
    SHEAF__INSIDE;
    sheaf_model_evaluate_options o;
    work w = { .o = &o };
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_evaluate_options");
    TRY(st, sheaf__take_report(report, "sheaf_model_evaluate_report"));
    TRY(st, check(&o));
    TRY(st, fill(&w));
    TRY(st, sheaf__judge_open(&w.judge));
    TRY(st, sheaf__judge_run(&w.judge));
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_model_evaluate_report){ .loss = w.judge.result.loss,
                                                           .tokens = w.judge.result.tokens,
                                                           .correct = w.judge.result.correct },
                           sizeof *report);
    sheaf__judge_close(&w.judge);
    return st;
}
