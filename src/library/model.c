/* model.c - a model that answers: sheaf/generate.h. */
#include "library/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "infer/prompts.h"
#include "library/stop_ids.h"
#include "library/take.h"
#include "library/train_settings.h"
#include "plan/fits.h"
#include "sheaf/generate.h"

sheaf_status *sheaf__take_activations(sheaf_dtype *out, const char *name)
{
    const sheaf_dtype *named;
    *out = SHEAF_F32;
    return sheaf__take_dtype(&named, out, name);
}

/* ---- open and close ---- */

static sheaf_status *load(sheaf_model *m, const sheaf_model_open_options *o, sheaf_dtype dtype)
{
    sheaf__placement place;
    const sheaf_bf16_sums sums = sheaf__sums_of(SHEAF_SUMS_UNNAMED, m->run.sums, dtype);
    const sheaf__crew_options crew = { .ranks = o->tp > 0 ? o->tp : 1,
                                       .place = o->place,
                                       .threads = o->threads,
                                       .dtype = dtype,
                                       .sums =
                                           sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS,
                                       .positions = m->positions,
                                       .events = o->events };
    sheaf_status *st = sheaf__placement_read(&place, o->place, m->opened.schema);
    if (st == NULL)
        st = sheaf_fits_generate(&(sheaf_plan_generation){ .schema = m->opened.schema,
                                                           .lora = m->opened.lora,
                                                           .place = &place,
                                                           .tp = crew.ranks,
                                                           .threads = o->threads,
                                                           .dtype = dtype,
                                                           .batch = 1,
                                                           .seq = m->positions,
                                                           .images = m->wording.images },
                                 &(sheaf_fits_how){ .force = o->force, .events = o->events });
    return st == NULL ? sheaf__crowd_open(&m->crowd, &m->opened, &crew) : st;
}

sheaf_status *sheaf_model_open(sheaf_model **out, const sheaf_model_open_options *options)
{
    sheaf_model_open_options o;
    sheaf_dtype dtype;
    sheaf_model *m = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_open_options");
    if (st == NULL && (o.model == NULL || o.tp < 0 || o.threads < 0 || o.positions < 0))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_open_options"),
                            "a model, and no number below 0");
    if (st == NULL)
        st = sheaf__take_activations(&dtype, o.dtype);
    if (st == NULL && (m = calloc(1, sizeof *m)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s", o.model);
    if (st == NULL)
        st = sheaf__run_model_open(&m->opened, &m->run,
                                   &(sheaf__open_options){ .model = o.model,
                                                           .config = o.config,
                                                           .slices = 8,
                                                           .adapter = o.adapter,
                                                           .events = o.events });
    if (st == NULL) {
        sheaf__run_model_words(&m->run, &o.tokenizer, &o.prompt_template, NULL);
        m->positions = o.positions > 0 ? o.positions : sheaf_plan_seq(&m->opened.config);
        st = sheaf__wording_open(&m->wording, &m->opened.config,
                                 &(sheaf__wording_options){ .folder = m->run.folder,
                                                            .tokenizer = o.tokenizer,
                                                            .version = o.prompt_template,
                                                            .max_length = m->positions,
                                                            .events = o.events });
    }
    if (st == NULL &&
        ((o.tokenizer != NULL && (m->tokenizer = strdup(o.tokenizer)) == NULL) ||
         (o.prompt_template != NULL && (m->version = strdup(o.prompt_template)) == NULL)))
        st = sheaf_fail(SHEAF_E_MEMORY, "%s", o.model);
    if (st == NULL)
        st = sheaf__stop_ids(m->stop, &m->nstop, m->run.folder, &m->wording);
    if (st == NULL)
        st = load(m, &o, dtype);
    if (st == NULL)
        *out = m;
    else
        sheaf_model_close(m);
    return st;
}

void sheaf_model_close(sheaf_model *m)
{
    if (m == NULL)
        return;
    sheaf__crowd_close(m->crowd);
    sheaf__wording_close(&m->wording);
    sheaf__opened_close(&m->opened);
    sheaf__run_model_release(&m->run);
    free(m->tokenizer);
    free(m->version);
    free(m);
}

/* ---- one prompt ---- */

typedef struct asking {
    const sheaf_model_generate_options *o;
    sheaf__generate_options how;
    const sheaf__prompt *prompt;
    sheaf_status *(*load)(void *self, int64_t prompt, const sheaf__picture *picture);
    void *self;               /* of load */
    sheaf__continuation *out; /* of the first rank */
} asking;

static sheaf_status *load_image(void *self, int64_t prompt, const sheaf__picture *picture)
{
    const asking *a = self;
    return a->load(a->self, prompt, picture);
}

static void tell(void *self, int64_t prompt, const sheaf__continuation *so_far)
{
    const asking *a = self;
    (void)prompt;
    if (so_far->n > 0)
        a->o->told(a->o->context, so_far->ids[so_far->n - 1]);
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    const asking *a = self;
    const bool first = sheaf__is_first(model->context);
    sheaf__generate_options how = a->how;
    sheaf__continuation own = { 0 };
    sheaf_status *st = NULL;
    how.told = first && a->o->told != NULL ? tell : NULL;
    if (!first && (own.ids = malloc((size_t)how.max_new * sizeof *own.ids)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "an answer");
    st = sheaf__agree_all(model->context, st);
    if (st == NULL)
        st = sheaf__generate(first ? a->out : &own, model, a->prompt, 1, &how);
    free(own.ids);
    return st;
}

sheaf_status *sheaf__model_check(const sheaf_model_generate_options *o)
{
    const char *const what = "sheaf_model_generate_options";
    if (o->max_new < 0 || o->max_new > 10000000 || o->top_k < 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "no number below 0");
    /* of what is not 0, logits stay finite and something is left to choose from */
    if (!(o->temperature == 0 || (o->temperature >= 1e-6 && o->temperature <= 1e6)) ||
        !(o->top_p == 0 || (o->top_p >= 1e-6 && o->top_p <= 1)) ||
        !(o->repetition_penalty == 0 ||
          (o->repetition_penalty >= 1e-6 && o->repetition_penalty <= 1e6)))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "temperature and repetition_penalty from 1e-6 to 1e6, top_p to 1");
    return NULL;
}

sheaf_status *sheaf__model_ask(sheaf_answer **out, sheaf_model *m, const sheaf__prompt *prompt,
                               const sheaf_model_generate_options *o,
                               sheaf_status *(*load)(void *self, int64_t prompt,
                                                     const sheaf__picture *picture),
                               void *self, int64_t number)
{
    const int64_t max_new = o->max_new > 0 ? o->max_new : 64;
    asking a = { .o = o, .prompt = prompt, .load = load, .self = self };
    a.how =
        (sheaf__generate_options){ .sampling = { .greedy = o->temperature == 0,
                                                 .temperature = (float)o->temperature,
                                                 .top_k = o->top_k,
                                                 .top_p = (float)o->top_p,
                                                 .repetition_penalty = (float)o->repetition_penalty,
                                                 .seed = o->seed },
                                   .max_new = max_new,
                                   .batch = 1,
                                   .stop = m->stop,
                                   .nstop = m->nstop,
                                   .number = number,
                                   .load = load != NULL ? load_image : NULL,
                                   .self = &a,
                                   .stop_now = sheaf__control_stop(o->control) };
    if (prompt->n + max_new > m->positions)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt and answer"),
                                          "at most %" PRId64 " positions, as the model was opened",
                                          m->positions),
                           "%" PRId64 " and %" PRId64, prompt->n, max_new);
    sheaf_answer *answer = calloc(1, sizeof *answer);
    if (answer != NULL)
        answer->said.ids = malloc((size_t)max_new * sizeof *answer->said.ids);
    sheaf_status *st =
        answer == NULL || answer->said.ids == NULL ? sheaf_fail(SHEAF_E_MEMORY, "an answer") : NULL;
    if (st == NULL) {
        a.out = &answer->said;
        st = sheaf__crowd_do(m->crowd, on_rank, &a);
    }
    if (st == NULL)
        *out = answer;
    else
        sheaf_answer_free(answer);
    return st;
}

/* What is asked, as the one prompt of *prompts. */
static sheaf_status *read_prompt(sheaf__prompts *prompts, const sheaf_model *m,
                                 const sheaf_model_generate_options *o)
{
    const char *const what = "sheaf_model_generate_options";
    sheaf_text list = { 0 };
    if ((o->text == NULL) == (o->tokens == NULL) || (o->tokens != NULL && o->ntokens < 1))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text, or tokens");
    if (o->image != NULL && o->text == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text that asks about the image");
    for (int64_t i = 0; o->text == NULL && i < o->ntokens; i++)
        sheaf__text_add(&list, "%s%" PRId32, i == 0 ? "" : ",", o->tokens[i]);
    sheaf_status *st =
        list.failed
            ? sheaf_fail(SHEAF_E_MEMORY, "prompt")
            : sheaf__prompts_read(
                  prompts, &m->wording,
                  &(sheaf__prompts_from){ .text = o->text, .tokens = list.at, .image = o->image });
    sheaf__text_release(&list);
    return st;
}

sheaf_status *sheaf_model_generate(sheaf_answer **out, sheaf_model *m,
                                   const sheaf_model_generate_options *options)
{
    sheaf_model_generate_options o;
    sheaf_answer *answer = NULL;
    sheaf__prompts prompts = { 0 };
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_generate_options");
    if (st == NULL)
        st = sheaf__model_check(&o);
    if (st == NULL)
        st = read_prompt(&prompts, m, &o);
    if (st == NULL)
        st = sheaf__model_ask(&answer, m, prompts.prompt, &o, sheaf__prompts_load, &prompts, 0);
    if (st == NULL)
        st = sheaf__wording_answer(&answer->text, &m->wording, answer->said.ids, answer->said.n);
    sheaf__prompts_release(&prompts);
    if (st == NULL)
        *out = answer;
    else
        sheaf_answer_free(answer);
    return st;
}

const int32_t *sheaf_answer_tokens(const sheaf_answer *answer, int64_t *n)
{
    *n = answer->said.n;
    return answer->said.ids;
}

const char *sheaf_answer_text(const sheaf_answer *answer)
{
    return answer->text;
}

void sheaf_answer_free(sheaf_answer *answer)
{
    if (answer == NULL)
        return;
    free(answer->said.ids);
    free(answer->text);
    free(answer);
}
