/* judge.c - see judge.h. */
#include "library/judge.h"

#include "base/status.h"
#include "base/text.h"
#include "comm/process.h"
#include "inputs/template.h"
#include "library/train_settings.h"
#include "models/crew.h"
#include "plan/fits.h"

/* Rows of tokens have no words. */
static bool needs_words(const sheaf__judge *j)
{
    return j->words || sheaf__family_for(&j->opened.config)->towers != NULL;
}

static void take_from_run(sheaf__judge *j)
{
    const sheaf__run_texts *run = &j->run.texts;
    j->dtype = sheaf__run_model_dtype(&j->run, j->dtype, &j->opened.config, j->told);
    sheaf__sums_note(j->sums, j->dtype, j->told);
    j->sums = sheaf__sums_of(j->sums, j->run.sums, j->dtype);
    j->of_run =
        sheaf__run_model_words(&j->run, &j->tokenizer, &j->prompt_template, &j->date, &j->query);
    if (j->loss_on == SHEAF_LOSS_UNNAMED)
        j->loss_on = run->loss_on;
    if (!j->specials_given)
        j->specials = run->specials;
    if (j->on_long == SHEAF_LONG_UNNAMED)
        j->on_long = run->on_long;
    /* else a length only refuses */
    if (j->seq == 0 && (j->on_long == SHEAF_LONG_CUT || j->on_long == SHEAF_LONG_SKIP))
        j->seq = run->seq;
}

sheaf_status *sheaf__judge_open(sheaf__judge *j)
{
    sheaf_status *st = sheaf__run_model_open(&j->opened, &j->run,
                                             &(sheaf__open_options){ .all = j->all,
                                                                     .model = j->model,
                                                                     .config = j->config,
                                                                     .slices = j->slices,
                                                                     .adapter = j->adapter,
                                                                     .events = j->told });
    TRY(st, sheaf__run_model_ranks(&j->run, j->slices, j->tp));
    if (st != NULL)
        return st;
    j->given_template = j->prompt_template;
    j->given_date = j->date;
    j->given_query = j->query;
    take_from_run(j);
    const bool words = needs_words(j);
    return sheaf__wording_open(
        &j->wording, &j->opened.config,
        &(sheaf__wording_options){
            .folder = words ? j->run.folder : NULL,
            .tokenizer = words ? j->tokenizer : NULL,
            .version = words ? j->prompt_template : NULL,
            .of_run = j->of_run,
            .date = words ? j->date : NULL,
            .specials = j->specials,
            .events = sheaf__ends_with(j->data, ".safetensors") && !j->words ? NULL : j->told });
}

static sheaf_status *open_rows(sheaf__judge *j)
{
    sheaf_status *st = sheaf_data_open(
        &j->rows, j->data,
        &(sheaf_data_options){ .config = &j->opened.config,
                               .seq = j->seq,
                               .events = j->events,
                               .folder = j->run.folder,
                               .tokenizer = j->tokenizer,
                               .prompt_template = j->wording.images
                                                      ? sheaf__wording_template(&j->wording)
                                                      : j->prompt_template,
                               .of_run = j->of_run,
                               .date = j->date,
                               .query = j->query,
                               .loss_on = j->loss_on,
                               .on_long = j->on_long,
                               .on_bad = j->on_bad,
                               .fields = j->fields,
                               .specials = j->specials,
                               .cache = j->data_cache,
                               .micro_batch = j->micro_batch,
                               .threads = j->threads,
                               .stop = j->stop });
    if (st == NULL) /* of an answer a template tells where it begins, also to rows of tokens */
        sheaf_data_note_unused(j->rows, j->data, j->words ? NULL : j->given_template,
                               j->words ? NULL : j->given_date, j->given_query, j->events);
    return st;
}

static sheaf_status *check_memory(const sheaf__judge *j)
{
    const int64_t rows = sheaf_data_rows(j->rows);
    sheaf__placement place;
    double share;
    if (!sheaf__process_asks(j->all, &share))
        return NULL;
    sheaf_status *st = sheaf_in(sheaf__placement_read(&place, j->place, j->opened.schema), "place");
    if (st != NULL)
        return st;
    return sheaf_fits_evaluate(
        &(sheaf_plan_generation){ .schema = j->opened.schema,
                                  .lora = j->opened.lora,
                                  .place = &place,
                                  .tp = j->tp,
                                  .groups = j->dp,
                                  .threads = j->threads,
                                  .dtype = j->dtype,
                                  .batch = j->micro_batch < rows ? j->micro_batch : rows,
                                  .seq = sheaf_data_seq(j->rows) },
        j->rows, j->padded,
        &(sheaf_fits_how){ .force = j->force, .share = share, .events = j->events });
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    sheaf__judge *j = self;
    const bool first = sheaf__is_first(model->context),
               takes = j->padded && sheaf__is_first_of_group(model->context);
    sheaf__evaluation result;
    sheaf_status *st = j->before == NULL ? NULL : j->before(j->self, model);
    if (j->before != NULL)
        st = sheaf__agree_groups(model->context, st);
    TRY(st, sheaf__evaluate(&result, model, j->rows,
                            &(sheaf__evaluate_options){ .micro_batch = j->micro_batch,
                                                        .padded = j->padded,
                                                        .take = takes ? j->take : NULL,
                                                        .self = j->self,
                                                        .stop = j->stop,
                                                        .events = first ? j->events : NULL }));
    if (st == NULL && sheaf__crew_keeps(model->context))
        j->result = result;
    return st == NULL && j->after != NULL ? j->after(j->self, model) : st;
}

sheaf_status *sheaf__judge_run(sheaf__judge *j)
{
    sheaf_status *st = open_rows(j);
    TRY(st, check_memory(j));
    if (st == NULL) {
        j->positions = sheaf_data_seq(j->rows);
        st = j->ready == NULL ? NULL : j->ready(j->self);
    }
    st = sheaf__together_judge(st, j);
    if (st != NULL)
        return st;
    return sheaf__crew_run(
        &j->opened,
        &(sheaf__crew_options){ .all = j->all,
                                .transport = j->transport,
                                .ranks = j->tp,
                                .groups = j->dp,
                                .place = j->place,
                                .threads = j->threads,
                                .dtype = j->dtype,
                                .isa = j->isa,
                                .sums = j->sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS,
                                .positions = j->positions,
                                .events = j->events },
        on_rank, j);
}

void sheaf__judge_close(sheaf__judge *j)
{
    sheaf_data_close(j->rows);
    sheaf__wording_close(&j->wording);
    sheaf__opened_close(&j->opened);
    sheaf__run_model_release(&j->run);
}
