/* evaluate.c - loss and accuracy of a model on data: sheaf/evaluate.h. */
#include "sheaf/evaluate.h"

#include "inputs/template.h"
#include "library/model.h"
#include "library/take.h"
#include "library/train_settings.h"
#include "plan/fits.h"
#include "train/evaluate.h"

typedef struct work {
    const sheaf_model_evaluate_options *o;
    sheaf__opened opened;
    sheaf__run_model run;
    sheaf__wording wording;
    sheaf_data *data;
    sheaf_dtype dtype;
    int tp;
    int64_t micro_batch;
    sheaf__evaluation result; /* of the first rank */
} work;

static sheaf_status *take(void *self, int64_t row, int64_t position, const float *logits)
{
    const work *w = self;
    return w->o->take(w->o->context, row, position, logits, w->opened.config.vocab);
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    const bool first = sheaf__is_first(model->context);
    sheaf__evaluation result;
    sheaf_status *st = sheaf__evaluate(
        &result, model, w->data,
        &(sheaf__evaluate_options){ .micro_batch = w->micro_batch,
                                    .padded = w->o->take != NULL,
                                    .take = first && w->o->take != NULL ? take : NULL,
                                    .self = w,
                                    .stop = sheaf__control_stop(w->o->control),
                                    .events = first ? w->o->events : NULL });
    if (st == NULL && first)
        w->result = result;
    return st;
}

/* The run's words stand where none are given. */
static sheaf_status *open_all(work *w, sheaf_model_evaluate_options *o)
{
    sheaf_status *st = sheaf__run_model_open(&w->opened, &w->run,
                                             &(sheaf__open_options){ .model = o->model,
                                                                     .config = o->config,
                                                                     .slices = 8,
                                                                     .adapter = o->adapter,
                                                                     .events = o->events });
    if (st != NULL)
        return st;
    sheaf__run_model_words(&w->run, &o->tokenizer, &o->prompt_template, &o->query);
    /* the data have their own words, but for those about images */
    const bool words = sheaf__family_for(&w->opened.config)->towers != NULL;
    st = sheaf__wording_open(
        &w->wording, &w->opened.config,
        &(sheaf__wording_options){ .folder = words ? w->run.folder : NULL,
                                   .tokenizer = words ? o->tokenizer : NULL,
                                   .version = words ? o->prompt_template : NULL });
    if (st != NULL)
        return st;
    return sheaf_data_open(
        &w->data, o->data,
        &(sheaf_data_options){ .config = &w->opened.config,
                               .seq = o->seq,
                               .events = o->events,
                               .folder = w->run.folder,
                               .tokenizer = o->tokenizer,
                               .prompt_template = w->wording.images
                                                      ? sheaf__template_name(w->wording.version)
                                                      : o->prompt_template,
                               .query = o->query,
                               .micro_batch = w->micro_batch,
                               .threads = o->threads,
                               .stop = sheaf__control_stop(o->control) });
}

static sheaf_status *compute(work *w)
{
    const sheaf_model_evaluate_options *o = w->o;
    const int64_t rows = sheaf_data_rows(w->data), seq = sheaf_data_seq(w->data);
    const sheaf_bf16_sums sums = sheaf__sums_of(SHEAF_SUMS_UNNAMED, w->run.sums, w->dtype);
    sheaf__placement place;
    sheaf_status *st = sheaf__placement_read(&place, o->place, w->opened.schema);
    if (st == NULL)
        st = sheaf_fits_evaluate(
            &(sheaf_plan_generation){ .schema = w->opened.schema,
                                      .lora = w->opened.lora,
                                      .place = &place,
                                      .tp = w->tp,
                                      .threads = o->threads,
                                      .dtype = w->dtype,
                                      .batch = w->micro_batch < rows ? w->micro_batch : rows,
                                      .seq = seq },
            w->data, o->take != NULL, &(sheaf_fits_how){ .force = o->force, .events = o->events });
    if (st != NULL)
        return st;
    return sheaf__crew_run(
        &w->opened,
        &(sheaf__crew_options){ .ranks = w->tp,
                                .place = o->place,
                                .threads = o->threads,
                                .dtype = w->dtype,
                                .sums = sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS,
                                .positions = seq,
                                .events = o->events },
        on_rank, w);
}

sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report,
                                   const sheaf_model_evaluate_options *options)
{
    sheaf_model_evaluate_options o;
    work w = { .o = &o };
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_evaluate_options");
    if (st == NULL)
        st = sheaf__take_report(report, "sheaf_model_evaluate_report");
    if (st == NULL && (o.model == NULL || o.data == NULL || o.tp < 0 || o.threads < 0 ||
                       o.micro_batch < 0 || o.seq < 0))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_evaluate_options"),
                            "a model, data, and no number below 0");
    if (st == NULL)
        st = sheaf__take_activations(&w.dtype, o.dtype);
    w.tp = o.tp > 0 ? o.tp : 1;
    w.micro_batch = o.micro_batch > 0 ? o.micro_batch : 4;
    if (st == NULL)
        st = open_all(&w, &o);
    if (st == NULL)
        st = compute(&w);
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_model_evaluate_report){ .loss = w.result.loss,
                                                           .tokens = w.result.tokens,
                                                           .correct = w.result.correct },
                           sizeof *report);
    sheaf_data_close(w.data);
    sheaf__wording_close(&w.wording);
    sheaf__opened_close(&w.opened);
    sheaf__run_model_release(&w.run);
    return st;
}
