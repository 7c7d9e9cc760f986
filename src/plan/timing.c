/* timing.c - see timing.h. */
#include "plan/timing.h"

#include "base/base.h"
#include "base/thread.h"
#include "data/data_images.h"
#include "data/data_rows.h"
#include "infer/generate.h"
#include "models/team.h"
#include "plan/fits.h"

enum { MOST_TOKENS = 32, SECONDS = 4, TURNS = 100 }; /* that are measured, at most */

/* ---- prediction ---- */

static double part(double of, double whole)
{
    return whole > 0 ? of / whole : 0;
}

/* Rates that a short model lacks: recomputed ops have the rate of forward ones, other kinds that of
 * products, or of values. */
static const sheaf__work_sum *rate(const sheaf__work *measured, int kind, int way, int counted)
{
    const sheaf__work_sum *own = &measured->sum[kind][way][counted],
                          *forward = &measured->sum[kind][SHEAF__WORK_FORWARD][counted];
    if (own->runs > 0 || forward->runs > 0)
        return own->runs > 0 ? own : forward;
    return &measured->sum[counted ? SHEAF__WORK_PRODUCTS : SHEAF__WORK_ELEMENTS]
                         [SHEAF__WORK_FORWARD][counted];
}

sheaf_time sheaf_time_predict(const sheaf__work *measured, const sheaf__work *work, double times)
{
    sheaf_time t = { 0 };
    double ops = 0, runs = 0, ran = 0;
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        for (int i = 0; i < 2 * SHEAF__WORK_WAYS; i++) {
            const sheaf__work_sum *needed = &work->sum[kind][i / 2][i % 2],
                                  *own = &measured->sum[kind][i / 2][i % 2],
                                  *of = rate(measured, kind, i / 2, i % 2);
            const double scale = times * (i % 2 == 1 ? part(needed->flops, of->flops)
                                                     : part(needed->bytes, of->bytes));
            t.kind[kind] += scale * (of->seconds - of->waiting);
            t.waiting += scale * of->waiting;
            ops += own->seconds;
            ran += own->runs;
            runs += needed->runs;
        }
    const double scale = part(work->trained, measured->trained),
                 beside = measured->all - ops - measured->update;
    t.update = scale * (measured->update - measured->update_waiting);
    t.waiting += scale * measured->update_waiting;
    t.beside = times * part(runs, ran) * (beside > 0 ? beside : 0);
    t.step = t.update + t.beside + t.waiting;
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        t.step += t.kind[kind];
    return t;
}

/* ---- a step ---- */

static void add_sum(sheaf__work_sum *to, const sheaf__work_sum *from, double times)
{
    to->runs += times * from->runs;
    to->flops += times * from->flops;
    to->bytes += times * from->bytes;
    to->seconds += times * from->seconds;
    to->waiting += times * from->waiting;
}

/* Only the rows tell which of their tokens attend to each other, and the dry device does not read
 * them: then bytes must be enough. */
static void forget_pairs(sheaf__work *work)
{
    for (int way = 0; way < SHEAF__WORK_WAYS; way++) {
        sheaf__work_sum *of = work->sum[SHEAF__WORK_ATTENTION][way];
        add_sum(&of[0], &of[1], 1);
        of[1] = (sheaf__work_sum){ 0 };
    }
}

static double tokens_of(const sheaf__plan_inputs *q)
{
    const sheaf__subset *set = &q->sets.train;
    const int64_t rows = set->data == NULL ? 0 : sheaf__subset_rows(set);
    double tokens = rows > 0 ? 0 : (double)q->seq;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t sample = sheaf__subset_row(set, i, 0, false),
                      side[] = { sheaf_data_side(set->data, sample, 0),
                                 sheaf_data_side(set->data, sample, 1) };
        tokens +=
            (double)sheaf_data_tokens(set->data, side, sheaf_data_sides(set->data)) / (double)rows;
    }
    return tokens * (double)q->o.micro_batch * (double)q->o.accumulate;
}

static sheaf_status *find_step(sheaf__timing *out, const sheaf__plan_inputs *q,
                               const sheaf_events *events)
{
    const int steps = q->sets.data == NULL ? 1 : 4; /* their mean counts, if rows differ */
    const int64_t micros = (q->o.accumulate + q->o.dp - 1) / q->o.dp;
    sheaf__count exchange[SHEAF__TRAFFICS];
    sheaf__trial measured;
    sheaf__work work = { 0 };
    sheaf_train_options o = q->o;
    sheaf__job job = sheaf__plan_inputs_job(q);
    sheaf_data *made = NULL;
    o.accumulate = o.dp;
    job.options = &o;
    job.eval = (sheaf__subset){ 0 };
    sheaf_status *st = sheaf__trial_run_short(&measured, q, events);
    TRY(st, sheaf__trial_data(&job.train, &made, q));
    for (int s = 0; s < steps; s++)
        TRY(st, sheaf_plan_step(exchange, NULL, &work, &job, 0, s));
    if (st == NULL && sheaf_data_is_packed(job.train.data)) {
        forget_pairs(&measured.work);
        forget_pairs(&work);
    }
    sheaf_data_close(made);
    out->is = sheaf_time_predict(&measured.work, &work, (double)micros / steps);
    out->tokens = tokens_of(q);
    return st;
}

/* ---- generation ---- */

typedef struct generation {
    sheaf_plan_generation request; /* of the short model */
    const sheaf_data *data;
    int64_t max_new;
    bool processor;
    sheaf__prompt *prompt;          /* [request.batch] */
    struct sheaf_plan_passes found; /* of the first rank */
    double plain[2]; /* seconds of both where no op is timed, as a share of those found */
} generation;

static sheaf_status *load_images(void *self, int64_t prompt, const sheaf__picture *picture,
                                 int64_t n)
{
    const generation *g = self;
    return sheaf_data_row_pixels(picture, n, g->data, prompt);
}

/* Rows that were made up, as prompts. */
static void take_prompts(sheaf__prompt *out, const sheaf_data *data)
{
    for (int64_t r = 0; r < data->rows; r++) {
        const int64_t at = r * data->seq;
        out[r] = (sheaf__prompt){ .ids = data->token + at, .n = data->seq };
        if (data->position != NULL)
            out[r].position = data->position + at;
        if (data->images != NULL) {
            out[r].embed = data->images->embed + at;
            out[r].expert = data->images->expert + at;
        }
    }
}

static void add_work(sheaf__work *to, const sheaf__work *from, double times)
{
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        for (int way = 0; way < SHEAF__WORK_WAYS; way++)
            for (int i = 0; i < 2; i++)
                add_sum(&to->sum[kind][way][i], &from->sum[kind][way][i], times);
    to->all += times * from->all;
}

/* Adds what it takes to generate so many tokens of each. timed: with all ops, which takes longer.
 */
static sheaf_status *answer(sheaf__work *to, sheaf__model *model, generation *g, int64_t max_new,
                            bool timed)
{
    sheaf__context *c = model->context;
    sheaf__work work = { .processor = g->processor };
    sheaf__continuation *out = calloc((size_t)g->request.batch, sizeof *out);
    int32_t *ids = calloc((size_t)(g->request.batch * max_new), sizeof *ids);
    sheaf_status *st = out == NULL || ids == NULL ? sheaf__no_memory("answers") : NULL;
    for (int64_t i = 0; st == NULL && i < g->request.batch; i++)
        out[i].ids = ids + i * max_new;
    st = sheaf__agree_all(c, st);
    const double began = sheaf__work_now(&work);
    c->work = timed ? &work : NULL;
    TRY(st, sheaf__generate(out, model, g->prompt, g->request.batch,
                            &(sheaf__generate_options){ .sampling.greedy = true,
                                                        .max_new = max_new,
                                                        .batch = g->request.batch,
                                                        .load = load_images,
                                                        .self = g }));
    c->work = NULL;
    work.all = sheaf__work_now(&work) - began;
    add_work(to, &work, 1);
    free(out);
    free(ids);
    return st;
}

/* Prompts with one token and with many, by turns: what is more is the tokens'. The first turn warms
 * up; the first rank's clock decides for all. */
static sheaf_status *time_model(void *self, sheaf__model *model)
{
    generation *g = self;
    const sheaf__context *c = model->context;
    sheaf__work prompts = { 0 }, token = { 0 }, plain[2] = { { .all = 0 } };
    const double began = sheaf__work_now(&prompts);
    sheaf_status *st = NULL;
    for (int turn = 0, over = 0; st == NULL && !over; turn++) {
        if (turn == 1)
            prompts = token = plain[0] = plain[1] = (sheaf__work){ 0 };
        st = answer(&prompts, model, g, 1, true);
        TRY(st, answer(&token, model, g, g->max_new, true));
        TRY(st, answer(&plain[0], model, g, 1, false));
        TRY(st, answer(&plain[1], model, g, g->max_new, false));
        over = sheaf__is_first(c) && turn > 0 &&
               (turn == TURNS || sheaf__work_now(&prompts) - began >= SECONDS);
        if (sheaf__model_comm(c) != NULL)
            TRY(st, sheaf_comm_any(sheaf__model_comm(c), &over));
    }
    add_work(&token, &prompts, -1);
    if (sheaf__is_first(c) && st == NULL) {
        g->found = (struct sheaf_plan_passes){ prompts, token };
        g->plain[0] = plain[0].all / prompts.all;
        g->plain[1] = (plain[1].all - plain[0].all) / token.all;
    }
    return st;
}

static sheaf_status *measure(generation *g, const sheaf__plan_inputs *q, const sheaf_events *events)
{
    const sheaf_train_options *o = &q->o;
    sheaf_lora_options fresh;
    sheaf__open_options how;
    sheaf__opened opened = { 0 };
    sheaf__placement place;
    sheaf_status *st = sheaf__train_options_open(&how, &fresh, o);
    how.config_only = true;
    how.layers = SHEAF__SHORT_LAYERS;
    how.fresh = NULL;
    TRY(st, sheaf__open_model(&opened, &how));
    TRY(st, sheaf__placement_read(&place, NULL, opened.schema));
    TRY(st, sheaf__opened_quantise(&opened, o->quantize, NULL, NULL));
    TRY(st, sheaf__made_source(&opened.weights, opened.schema, opened.forms));
    g->request.schema = opened.schema;
    g->request.forms = opened.weights;
    g->request.place = &place;
    TRY(st, sheaf_fits_generate(&g->request,
                                &(sheaf_fits_options){ .force = o->force, .events = events }));
    TRY(st, sheaf__team_run(&opened,
                            &(sheaf__team_options){ .ranks = o->tp,
                                                    .threads = o->threads,
                                                    .dtype = o->dtype,
                                                    .sums = o->sums,
                                                    .isa = o->isa,
                                                    .device = o->device,
                                                    .positions = g->request.prompt + g->max_new,
                                                    .sequences = g->request.batch },
                            time_model, g));
    if (opened.weights != NULL)
        opened.weights->close(opened.weights);
    opened.weights = NULL;
    sheaf__opened_close(&opened);
    sheaf_lora_options_release(&fresh);
    return sheaf_in(st, "measuring a model of %d layers", SHEAF__SHORT_LAYERS);
}

static sheaf_status *check_generation(const sheaf__plan_inputs *q)
{
    const bool stages = q->place.stages > 1;
    if (!stages && q->opened.lora == NULL)
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "time of generation"),
                       stages ? "layers on one stage" : "a model without an adapter");
    sheaf_found(st, "%s", stages ? q->place_text : q->o.adapter);
    return sheaf_try_this(
        st, "%s", stages ? "`place 1`" : "the model alone, which a merged adapter is as fast as");
}

static sheaf_time scaled(sheaf_time t, double by)
{
    t.step *= by;
    t.update *= by;
    t.beside *= by;
    t.waiting *= by;
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        t.kind[kind] *= by;
    return t;
}

static sheaf_status *find_answers(sheaf__timing *out, const sheaf__plan_inputs *q,
                                  const sheaf_events *events)
{
    const bool sees = sheaf__image_positions(&q->opened.config) > 0;
    struct sheaf_plan_passes work = { 0 };
    generation g = { .processor = sheaf__trial_by_processor(&q->o) };
    sheaf_plan_generation whole;
    sheaf_plan unused;
    sheaf_data *made = NULL;
    out->batch = q->o.micro_batch;
    out->max_new = q->max_new > 0 ? q->max_new : 1;
    g.max_new = 1 + (out->max_new < 5             ? 4
                     : out->max_new < MOST_TOKENS ? out->max_new - 1
                                                  : MOST_TOKENS);
    sheaf_status *st = check_generation(q);
    TRY(st, sheaf__plan_inputs_generation(&whole, q, out->max_new));
    if (st == NULL) {
        whole.pictures = sheaf__counts_ordinary(&q->opened.config, sees ? out->batch : 0);
        whole.work = &work;
        g.request = whole;
        g.request.work = NULL;
        g.request.seq = whole.prompt + g.max_new;
        g.prompt = calloc((size_t)out->batch, sizeof *g.prompt);
        st = g.prompt == NULL ? sheaf__no_memory("prompts") : NULL;
    }
    TRY(st, sheaf_plan_generate(&unused, &whole));
    TRY(st, sheaf_data_synthetic(&made, &q->opened.config, out->batch, whole.prompt));
    if (st == NULL) {
        take_prompts(g.prompt, made);
        g.data = made;
        st = measure(&g, q, events);
    }
    if (st == NULL) {
        out->tokens = (double)(whole.batch * whole.prompt);
        out->is = scaled(sheaf_time_predict(&g.found.prompts, &work.prompts, 1), g.plain[0]);
        out->next = scaled(sheaf_time_predict(&g.found.token, &work.token, 1), g.plain[1]);
    }
    sheaf_data_close(made);
    free(g.prompt);
    return st;
}

sheaf_status *sheaf__timing_find(sheaf__timing *out, const sheaf__plan_inputs *q,
                                 const sheaf_events *events)
{
    *out = (sheaf__timing){ 0 };
    sheaf_note(events, "measuring a model of %d layers for some seconds", SHEAF__SHORT_LAYERS);
    return q->place_text != NULL ? find_answers(out, q, events) : find_step(out, q, events);
}
