/* evaluate.c - loss and accuracy of a model on data: see evaluation.h. */
#include "base/base.h"
#include "library/evaluation.h"

#include "base/inside.h"
#include "comm/process.h"
#include "inputs/template.h"
#include "library/take.h"
#include "library/train_settings.h"
#include "models/crew.h"
#include "plan/fits.h"

/* Rows of tokens have no words. */
static bool needs_words(const sheaf__evaluator *e)
{
    return e->words || sheaf__family_for(&e->opened.config)->towers != NULL;
}

static void take_from_run(sheaf__evaluator *e)
{
    const sheaf_train_options *run = &e->run.r.options;
    e->o.dtype = sheaf__run_model_dtype(&e->run, e->o.dtype, &e->opened.config, e->notes);
    sheaf__sums_note(e->o.bf16_sums, e->o.dtype, e->notes);
    e->o.bf16_sums = sheaf__sums_of(e->o.bf16_sums, e->run.r.options.sums, e->o.dtype);
    e->of_run = sheaf__run_model_words(&e->run, &e->o.tokenizer, &e->o.prompt_template, &e->o.date,
                                       &e->o.query);
    if (e->o.loss_on == SHEAF_LOSS_UNNAMED)
        e->o.loss_on = run->loss_on;
    if (e->o.specials == 0)
        e->o.specials = run->specials ? 1 : -1;
    if (e->o.on_long == SHEAF_LONG_UNNAMED)
        e->o.on_long = run->on_long;
    /* else a length only refuses */
    if (e->o.seq == 0 && (e->o.on_long == SHEAF_LONG_CUT || e->o.on_long == SHEAF_LONG_SKIP))
        e->o.seq = run->seq;
}

sheaf_status *sheaf__evaluator_open(sheaf__evaluator *e)
{
    e->o.tp = e->o.tp > 0 ? e->o.tp : 1;
    e->o.micro_batch = e->o.micro_batch > 0 ? e->o.micro_batch : 4;
    sheaf_status *st = sheaf__run_model_open(&e->opened, &e->run,
                                             &(sheaf__open_options){ .all = e->all,
                                                                     .model = e->o.model,
                                                                     .config = e->o.config,
                                                                     .slices = e->o.slices,
                                                                     .adapter = e->o.adapter,
                                                                     .events = e->notes });
    TRY(st, sheaf__run_model_ranks(&e->run, e->o.slices, e->o.tp));
    if (st != NULL)
        return st;
    e->given_template = e->o.prompt_template;
    e->given_date = e->o.date;
    e->given_query = e->o.query;
    take_from_run(e);
    const bool words = needs_words(e);
    return sheaf__wording_open(
        &e->wording, &e->opened.config,
        &(sheaf__wording_options){
            .folder = words ? e->run.folder : NULL,
            .tokenizer = words ? e->o.tokenizer : NULL,
            .version = words ? e->o.prompt_template : NULL,
            .of_run = e->of_run,
            .date = words ? e->o.date : NULL,
            .specials = e->o.specials > 0,
            .events = sheaf__ends_with(e->o.data, ".safetensors") && !e->words ? NULL : e->notes });
}

static sheaf_status *open_rows(sheaf__evaluator *e)
{
    sheaf_status *st = sheaf_data_open(
        &e->rows, e->o.data,
        &(sheaf_data_options){ .config = &e->opened.config,
                               .seq = e->o.seq,
                               .events = e->o.events,
                               .folder = e->run.folder,
                               .tokenizer = e->o.tokenizer,
                               .prompt_template = e->wording.images
                                                      ? sheaf__wording_template(&e->wording)
                                                      : e->o.prompt_template,
                               .of_run = e->of_run,
                               .date = e->o.date,
                               .query = e->o.query,
                               .loss_on = e->o.loss_on,
                               .on_long = e->o.on_long,
                               .on_bad = e->o.on_bad,
                               .fields = e->o.fields,
                               .specials = e->o.specials > 0,
                               .cache = e->o.data_cache,
                               .micro_batch = e->o.micro_batch,
                               .threads = e->o.threads,
                               .stop = e->stop });
    if (st == NULL) /* of an answer a template tells where it begins, also to rows of tokens */
        sheaf_data_note_unused(e->rows, e->o.data, e->words ? NULL : e->given_template,
                               e->words ? NULL : e->given_date, e->given_query, e->o.events);
    return st;
}

sheaf_status *sheaf__evaluator_layout(sheaf_plan_generation *out, sheaf__placement *place,
                                      const sheaf__evaluator *e, int64_t count)
{
    *out = (sheaf_plan_generation){ .schema = e->opened.schema,
                                    .lora = e->opened.lora,
                                    .place = place,
                                    .tp = e->o.tp,
                                    .groups = e->o.dp,
                                    .threads = e->o.threads,
                                    .dtype = e->o.dtype,
                                    .batch = e->o.micro_batch < count ? e->o.micro_batch : count };
    return sheaf_in(sheaf__placement_read(place, e->o.place, e->opened.schema), "place");
}

static sheaf_status *check_memory(const sheaf__evaluator *e)
{
    sheaf__placement place;
    sheaf_plan_generation asked;
    double share;
    if (!sheaf__process_asks(e->all, &share))
        return NULL;
    sheaf_status *st = sheaf__evaluator_layout(&asked, &place, e, sheaf_data_rows(e->rows));
    asked.seq = sheaf_data_seq(e->rows);
    TRY(st, sheaf_fits_evaluate(
                &asked, e->rows, e->o.take != NULL,
                &(sheaf_fits_how){ .force = e->o.force, .share = share, .events = e->o.events }));
    return st;
}

static sheaf_status *take(void *self, int64_t row, int64_t position, const float *logits)
{
    const sheaf__evaluator *e = self;
    sheaf__numbers before = sheaf__callback_begin();
    sheaf_status *st = e->o.take(e->o.context, row, position, logits, e->opened.config.vocab);
    sheaf__numbers_restore(&before);
    return st;
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    sheaf__evaluator *e = self;
    const bool first = sheaf__is_first(model->context), logits = e->o.take != NULL,
               takes = logits && sheaf__is_first_of_group(model->context);
    sheaf__evaluation result;
    sheaf_status *st = e->before == NULL ? NULL : e->before(e->self, model);
    if (e->before != NULL)
        st = sheaf__agree_groups(model->context, st);
    TRY(st, sheaf__evaluate(&result, model, e->rows,
                            &(sheaf__evaluate_options){ .micro_batch = e->o.micro_batch,
                                                        .padded = logits,
                                                        .take = takes ? take : NULL,
                                                        .self = e,
                                                        .stop = e->stop,
                                                        .events = first ? e->o.events : NULL }));
    if (st == NULL && sheaf__crew_keeps(model->context))
        e->result = result;
    return st == NULL && e->after != NULL ? e->after(e->self, model) : st;
}

sheaf_status *sheaf__evaluator_run(sheaf__evaluator *e)
{
    sheaf_status *st = open_rows(e);
    TRY(st, check_memory(e));
    if (st == NULL) {
        e->positions = sheaf_data_seq(e->rows);
        st = e->ready == NULL ? NULL : e->ready(e->self);
    }
    st = sheaf__together_evaluate(st, e);
    if (st != NULL)
        return st;
    return sheaf__crew_run(&e->opened,
                           &(sheaf__crew_options){ .all = e->all,
                                                   .transport = e->transport,
                                                   .ranks = e->o.tp,
                                                   .groups = e->o.dp,
                                                   .place = e->o.place,
                                                   .threads = e->o.threads,
                                                   .dtype = e->o.dtype,
                                                   .isa = e->o.isa,
                                                   .sums = e->o.bf16_sums == SHEAF_SUMS_TILES
                                                               ? SHEAF__TILES
                                                               : SHEAF__PAIRS,
                                                   .positions = e->positions,
                                                   .events = e->o.events },
                           on_rank, e);
}

void sheaf__evaluator_close(sheaf__evaluator *e)
{
    sheaf_data_close(e->rows);
    sheaf__wording_close(&e->wording);
    sheaf__opened_close(&e->opened);
    sheaf__run_model_release(&e->run);
}

/* ---- of another program ---- */

static sheaf_status *check(const sheaf_model_evaluate_options *o)
{
    static const char what[] = "sheaf_model_evaluate_options";
    const bool sound = o->model != NULL && o->data != NULL && o->tp >= 0 && o->dp >= 0 &&
                       o->threads >= 0 && o->micro_batch >= 0 && o->seq >= 0 && o->specials >= -1 &&
                       o->specials <= 1 && o->slices >= 0;
    if (sound && o->dp > 1 && o->take != NULL) /* which would be called by several at once */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "dp 1 beside take"), "%d",
                           o->dp);
    if (!sound)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "a model, data, specials from -1 to 1, and no other number below 0");
    sheaf_status *st = sheaf__take_count(what, "seq", o->seq, SHEAF__MOST_POSITIONS);
    TRY(st, sheaf__take_count(what, "threads", o->threads, SHEAF__MOST_THREADS));
    TRY(st, sheaf__take_count(what, "loss_on", o->loss_on, SHEAF_LOSS_ALL));
    TRY(st, sheaf__take_count(what, "on_long", o->on_long, SHEAF_LONG_SKIP));
    TRY(st, sheaf__take_count(what, "on_bad", o->on_bad, SHEAF_BAD_SKIP));
    TRY(st, sheaf__take_count(what, "bf16_sums", o->bf16_sums, SHEAF_SUMS_TILES));
    return st == NULL ? sheaf__take_type(what, o->dtype) : st;
}

sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report,
                                   const sheaf_model_evaluate_options *options)
{
    SHEAF__INSIDE;
    sheaf__evaluator e = { 0 };
    sheaf_status *st =
        sheaf__take_options(&e.o, sizeof e.o, options, "sheaf_model_evaluate_options");
    TRY(st, sheaf__take_report(report, "sheaf_model_evaluate_report"));
    TRY(st, check(&e.o));
    e.stop = sheaf__control_stop(e.o.control);
    e.notes = e.o.events;
    TRY(st, sheaf__evaluator_open(&e));
    TRY(st, sheaf__evaluator_run(&e));
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_model_evaluate_report){ .loss = e.result.loss,
                                                           .tokens = e.result.tokens,
                                                           .correct = e.result.correct },
                           sizeof *report);
    sheaf__evaluator_close(&e);
    return st;
}
