/* model.c - a model for generation: sheaf/generate.h. */
#include "library/model.h"

#include "base/base.h"
#include "base/numeric_env.h"
#include "comm/process.h"
#include "infer/batch_images.h"
#include "models/sums.h"
#include "plan/inputs.h"
#include "library/structs.h"
#include "library/train_settings.h"
#include "plan/fits.h"
#include "sheaf/generate.h"

/* ---- open and close ---- */

sheaf_status *sheaf__model_check_open(const sheaf_model_open_options *o, bool planning)
{
    if ((o->model == NULL && (!planning || o->config == NULL)) || o->tp < 0 || o->dp < 0 ||
        o->threads < 0 || o->positions < 0 || o->slices < 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_open_options"),
                              "a model%s, and no number below 0", planning ? ", or a config" : "");
    static const char what[] = "sheaf_model_open_options";
    sheaf_status *st = sheaf__check_count(what, "positions", o->positions, SHEAF__MOST_POSITIONS);
    TRY(st, sheaf__check_count(what, "threads", o->threads, SHEAF__MOST_THREADS));
    TRY(st, sheaf__check_count(what, "sums", o->sums, SHEAF_SUMS_MMA16));
    TRY(st, sheaf__check_count(what, "quantize", o->quantize, SHEAF_QUANTIZE_INT8));
    const sheaf__device_class *device;
    TRY(st, sheaf__device_find(&device, o->device));
    return TRY(st, sheaf__check_dtype(what, o->dtype));
}

/* A reference (library/evaluate.c) is opened by them later. */
static sheaf_status *copy_texts(sheaf_model *m)
{
    sheaf_model_open_options *o = &m->o;
    const char **const all[] = { &o->model,           &o->adapter, &o->config, &o->tokenizer,
                                 &o->prompt_template, &o->place,   &o->isa,    &o->date,
                                 &o->evaluates,       &o->device };
    _Static_assert(sizeof all / sizeof *all == sizeof m->text / sizeof *m->text, "room for them");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *text = *all[i];
        *all[i] = m->text[i] = text == NULL ? NULL : strdup(text);
        if (text != NULL && m->text[i] == NULL)
            return sheaf__no_memory(text);
    }
    return NULL;
}

/* The order that a run was trained in; where that is float16's on processors, which has no name,
 * pairs stands for it. */
static sheaf_sums sums_of_run(const sheaf_model *m)
{
    const sheaf_train_options *run = &m->run.r.options;
    const bool plain = m->run.r.out != NULL && run->dtype == SHEAF_F16 && m->o.dtype == SHEAF_F16;
    return plain && run->sums == SHEAF_SUMS_UNNAMED ? SHEAF_SUMS_PAIRS : run->sums;
}

/* Opens all but the weights. */
static sheaf_status *prepare(sheaf_model *m, sheaf_model_open_options *o)
{
    sheaf_status *st = sheaf__run_model_open(&m->opened, &m->run,
                                             &(sheaf__open_options){ .all = m->all,
                                                                     .model = o->model,
                                                                     .config = o->config,
                                                                     .slices = o->slices,
                                                                     .adapter = o->adapter,
                                                                     .quantize = o->quantize,
                                                                     .events = o->events });
    TRY(st, sheaf__run_model_ranks(&m->run, o->slices, o->tp));
    if (st == NULL && m->opened.config.scores && o->evaluates == NULL)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", o->model),
                                       "a model that writes"),
                        "a reward model"),
            "sheaf eval, which gives its scores");
    if (st != NULL)
        return st;
    const bool of_run = sheaf__run_model_text_defaults(&m->run, &o->tokenizer, &o->prompt_template,
                                                       &o->date, &(const char *){ "" });
    const bool words = o->evaluates == NULL || sheaf__family_for(&m->opened.config)->towers != NULL;
    const int64_t most = m->opened.config.max_position;
    if (o->positions_fit && o->positions > most)
        o->positions = most;
    sheaf__warn_positions(&m->opened.config, "prompt and answer", o->positions, o->events);
    m->positions = o->positions > 0 || o->late ? o->positions : sheaf_plan_seq(&m->opened.config);
    o->dtype = sheaf__run_model_dtype(&m->run, o->dtype, &m->opened.config, o->events);
    sheaf__sums_note(o->device, o->sums, sums_of_run(m), o->dtype, o->events);
    st = sheaf__sums_choose(&o->sums, m->all, o->device, sums_of_run(m), o->dtype);
    if (st != NULL)
        return st;
    sheaf__sums_slow(o->device, o->sums, o->dtype, o->events);
    const bool specials = o->specials == 0 ? m->run.r.options.specials : o->specials > 0;
    st = sheaf__codec_open(
        &m->codec, &m->opened.config,
        &(sheaf__codec_options){ .folder = words ? sheaf__run_model_tokenizer(&m->run) : NULL,
                                 .tokenizer = words ? o->tokenizer : NULL,
                                 .version = words ? o->prompt_template : NULL,
                                 .chat = m->run.adapter != NULL ? m->run.adapter : o->adapter,
                                 .asks = o->asks,
                                 .of_run = of_run,
                                 .date = words ? o->date : NULL,
                                 .specials = specials,
                                 .today = o->evaluates == NULL && sheaf__all_count(m->all) <= 1,
                                 .max_length = m->positions,
                                 .events = o->evaluates != NULL &&
                                                   sheaf__ends_with(o->evaluates, ".safetensors")
                                               ? NULL
                                               : o->events });
    if (o->evaluates == NULL)
        TRY(st, sheaf__generation_config_read(&m->generation, m->run.folder, o->events));
    TRY(st, sheaf_in(sheaf__placement_read(&m->placement, o->place, m->opened.schema), "place"));
    if (st == NULL && o->evaluates == NULL)
        sheaf__generation_config_stops(&m->codec, &m->generation);
    return st;
}

sheaf_status *sheaf_model_open(sheaf_model **out, const sheaf_model_open_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_model_open_options o;
    sheaf_model *m = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_open_options");
    TRY(st, sheaf__model_check_open(&o, false));
    if (st == NULL && (m = calloc(1, sizeof *m)) == NULL)
        st = sheaf__no_memory(o.model);
    if (m != NULL) {
        pthread_mutex_init(&m->loading, NULL);
        m->all = o.processes;
        m->o = o;
        m->o.tp = o.tp > 0 ? o.tp : 1;
        m->o.dp = o.dp > 0 ? o.dp : 1;
        st = copy_texts(m);
        TRY(st, prepare(m, &m->o));
    }
    st = sheaf__all_agree(o.processes, st);
    if (st == NULL && !o.late)
        st = sheaf_model_load(m);
    if (st == NULL)
        *out = m;
    else
        sheaf_model_close(m);
    return st;
}

sheaf_status *sheaf_model_info(sheaf_model_facts *to, const sheaf_model *m)
{
    const sheaf__codec *w = &m->codec;
    const sheaf_config *config = &m->opened.config;
    const sheaf_model_facts facts = { .family = sheaf_family_name(config->family),
                                      .sums = sheaf__sums_name(m->o.dtype, m->o.sums),
                                      .positions = m->positions,
                                      .max_new =
                                          m->generation.max_new > 0 ? m->generation.max_new : 0,
                                      .pictures = !w->images ? 0
                                                  : w->placed
                                                      ? sheaf__family_for(config)->image.most
                                                      : 1 };
    sheaf_status *st = sheaf__struct_check(to, "sheaf_model_facts");
    if (st == NULL)
        sheaf__struct_fill(to, &facts, sizeof facts);
    return st;
}

/* ---- the weights ---- */

sheaf_plan_generation sheaf__model_layout(const sheaf_model *m, int64_t batch, int64_t seq)
{
    return (sheaf_plan_generation){ .schema = m->opened.schema,
                                    .lora = m->opened.lora,
                                    .forms = sheaf__opened_forms(&m->opened),
                                    .place = &m->placement,
                                    .tp = m->o.tp,
                                    .groups = m->o.dp,
                                    .threads = m->o.threads,
                                    .device = m->o.device,
                                    .transport = m->all != NULL ? SHEAF_TRANSPORT_MPI
                                                                : SHEAF_TRANSPORT_THREADS,
                                    .dtype = m->o.dtype,
                                    .batch = batch,
                                    .seq = seq };
}

static sheaf_status *fits(const sheaf_model *m, int64_t batch, int64_t seq, int64_t prompt,
                          sheaf__picture_counts pictures)
{
    double share;
    if (!sheaf__process_checks_memory(m->all, &share))
        return NULL;
    sheaf_plan_generation request = sheaf__model_layout(m, batch, seq);
    request.prompt = prompt;
    request.pictures = pictures;
    return sheaf_fits_generate(
        &request,
        &(sheaf_fits_options){ .force = m->o.force, .share = share, .events = m->o.events });
}

static sheaf_status *load(sheaf_model *m, int64_t batch)
{
    const sheaf__team_options team = {
        .all = m->all,
        .transport = m->all != NULL ? SHEAF_TRANSPORT_MPI : SHEAF_TRANSPORT_THREADS,
        .ranks = m->o.tp,
        .groups = m->o.dp,
        .place = m->o.place,
        .threads = m->o.threads,
        .dtype = m->o.dtype,
        .isa = m->o.isa,
        .device = m->o.device,
        .sums = m->o.evaluates == NULL ? sheaf__sums_in_groups(m->o.sums) : m->o.sums,
        .positions = m->positions,
        .sequences = batch,
        .events = m->o.events
    };
    const int ranks = m->o.dp * m->placement.stages * m->o.tp;
    if (m->cache == NULL && (m->cache = calloc((size_t)ranks, sizeof *m->cache)) == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%d ranks", ranks);
    for (int r = 0; r < ranks; r++)
        m->cache[r].prefix.least = m->positions;
    return sheaf__model_ranks_open(&m->ranks, &m->opened, &team);
}

/* Of an image at the towers' own size; of one that gives rows by its size as many as leave room
 * for a token. */
static sheaf__picture_counts largest_picture(const sheaf_model *m)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &m->opened.config);
    sheaf__picture_counts one = sheaf__counts_ordinary(&m->opened.config, m->codec.images);
    for (int t = 0; t < towers; t++) {
        const int64_t square = tower[t].merge * tower[t].merge, most = (m->positions - 1) * square;
        if (square > 0 && one.patches[t] > most)
            one.patches[t] = most > 0 ? most : square;
    }
    return one;
}

sheaf_status *sheaf__model_load_batch(sheaf_model *m, int64_t batch)
{
    sheaf_status *st = NULL;
    pthread_mutex_lock(&m->loading);
    if (m->ranks == NULL) {
        if (m->positions == 0)
            m->positions = sheaf_plan_seq(&m->opened.config);
        st = fits(m, batch, m->positions, 0, largest_picture(m));
        TRY(st, load(m, batch));
    }
    pthread_mutex_unlock(&m->loading);
    return sheaf__all_agree(m->all, st);
}

sheaf_status *sheaf_model_load(sheaf_model *m)
{
    SHEAF__NUMERIC_ENV;
    return sheaf__model_load_batch(m, 1);
}

sheaf_status *sheaf__model_load_for(sheaf_model *m, int64_t positions)
{
    sheaf_status *st = NULL;
    pthread_mutex_lock(&m->loading);
    if (m->ranks == NULL) {
        m->positions = positions > m->positions ? positions : m->positions;
        st = load(m, 0);
    } else if (positions > m->positions) {
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "rows"),
                                        "at most %" PRId64 " positions, as the model was opened",
                                        (int64_t)m->positions),
                         "%" PRId64, positions);
    }
    pthread_mutex_unlock(&m->loading);
    return sheaf__all_agree(m->all, st);
}

static sheaf_status *serve(void *batch, sheaf__model *model)
{
    sheaf__model_set_sequences(model, *(const int64_t *)batch);
    return NULL;
}

/* m->loading is held. */
static sheaf_status *make_ready(sheaf_model *m, const sheaf__prompt *prompt, int64_t count,
                                const sheaf__answer_options *a)
{
    int64_t longest = 1, batch = a->generate.batch < count ? a->generate.batch : count;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < count; i++)
        longest = prompt[i].n > longest ? prompt[i].n : longest;
    const sheaf__picture_counts most =
        sheaf__prompts_images(prompt, count, batch, &m->opened.config);
    for (int64_t i = 0; i < count && st == NULL && m->ranks != NULL; i++)
        st = sheaf__model_room(m, &prompt[i], a);
    if (st != NULL || (m->ranks != NULL && batch == 1)) /* that was checked when it was loaded */
        return st;
    st = sheaf__all_agree(m->all, fits(m, batch, longest + a->generate.max_new, longest, most));
    if (st != NULL || m->ranks != NULL)
        return st == NULL ? sheaf__model_ranks_do(m->ranks, serve, &batch) : st;
    if (m->positions == 0)
        m->positions = longest + a->generate.max_new;
    return load(m, batch);
}

sheaf_status *sheaf__model_ready(sheaf_model *m, const sheaf__prompt *prompt, int64_t count,
                                 const sheaf__answer_options *a)
{
    pthread_mutex_lock(&m->loading);
    sheaf_status *st = make_ready(m, prompt, count, a);
    pthread_mutex_unlock(&m->loading);
    return st;
}

sheaf__rank_cache *sheaf__model_rank_cache(const sheaf_model *m, const sheaf__context *c)
{
    return &m->cache[(c->group * m->placement.stages + c->stage) * m->o.tp + c->rank];
}

static sheaf_status *forget(void *self, sheaf__model *model)
{
    const sheaf_model *m = self;
    sheaf__rank_cache_release(sheaf__model_rank_cache(m, model->context), model);
    return NULL;
}

void sheaf_model_close(sheaf_model *m)
{
    if (m == NULL)
        return;
    if (m->ranks != NULL)
        sheaf_status_free(sheaf__model_ranks_do(m->ranks, forget, m));
    sheaf__model_ranks_close(m->ranks);
    sheaf__token_bytes_close(&m->tokens);
    sheaf__codec_close(&m->codec);
    sheaf__opened_close(&m->opened);
    sheaf__run_model_release(&m->run);
    free(m->cache);
    for (size_t i = 0; i < sizeof m->text / sizeof *m->text; i++)
        free(m->text[i]);
    pthread_mutex_destroy(&m->loading);
    free(m);
}

/* ---- options ---- */

static bool is_sampling(double value, double most)
{
    return value == 0 || (value >= SHEAF__LEAST_SAMPLING && value <= most);
}

static sheaf_status *check_options(const sheaf_model_generate_options *o)
{
    const char *const what = "sheaf_model_generate_options";
    sheaf_status *st = sheaf__check_count(what, "max_new", o->max_new, SHEAF__MOST_NEW);
    if (st != NULL)
        return st;
    if (o->top_k < -1 || o->max_length < 0 || o->nstop < 0 || o->top_logprobs < 0 || o->batch < 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "no number below 0");
    if (!is_sampling(o->temperature, SHEAF__MOST_SAMPLING) || !is_sampling(o->top_p, 1) ||
        !is_sampling(o->repetition_penalty, SHEAF__MOST_SAMPLING))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "temperature and repetition_penalty from 1e-6 to 1e6, top_p to 1");
    for (int64_t i = 0; i < o->nstop; i++)
        if (o->stop == NULL || o->stop[i] == NULL || o->stop[i][0] == '\0')
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                                  "nstop texts in stop that are not empty");
    if (o->top_logprobs > 0 && !o->logprobs)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "logprobs, for top_logprobs");
    return NULL;
}

sheaf_status *sheaf__model_tokens(const sheaf__token_bytes **out, sheaf_model *m)
{
    pthread_mutex_lock(&m->loading);
    sheaf_status *st = m->tokens.count > 0 ? NULL : sheaf__token_bytes_open(&m->tokens, &m->codec);
    if (st != NULL)
        sheaf__token_bytes_close(&m->tokens);
    pthread_mutex_unlock(&m->loading);
    *out = &m->tokens;
    return st;
}

/* The schema is compiled once more for each rank; here to refuse it before the model is loaded. */
static sheaf_status *set_schema(sheaf__answer_form *form, sheaf_model *m, const char *schema)
{
    sheaf__grammar_program program = { 0 };
    if (schema == NULL)
        return NULL;
    form->schema = schema;
    sheaf_status *st = sheaf__model_tokens(&form->tokens, m);
    TRY(st, sheaf__grammar_compile(&program, form));
    sheaf__grammar_program_release(&program);
    return st;
}

sheaf_status *sheaf__model_answer_options(sheaf__answer_options *out, sheaf_model *m,
                                          const sheaf_model_generate_options *o, bool texts)
{
    const int64_t vocab = m->opened.config.vocab,
                  own = o->model_defaults && m->generation.max_new > 0 ? m->generation.max_new : 64;
    sheaf_status *st = check_options(o);
    if (st == NULL && o->nstop > 0) /* else no text would ever match */
        st =
            sheaf_in(sheaf__codec_check_tokenizer(&m->codec), "sheaf_model_generate_options: stop");
    if (st != NULL)
        return st;
    *out = (sheaf__answer_options){
        .codec = &m->codec,
        .generate = { .sampling = { .greedy = o->temperature == 0,
                                    .sat = o->sat_order,
                                    .temperature = (float)o->temperature,
                                    .top_k = o->top_k < 0 ? 0 : o->top_k,
                                    .top_p = (float)o->top_p,
                                    .repetition_penalty = (float)o->repetition_penalty,
                                    .seed = o->seed },
                      .max_new = o->max_new > 0 ? o->max_new : own,
                      .max_length = o->as_long_as_fits ? m->positions : o->max_length,
                      .batch = o->batch > 0 ? o->batch : 8,
                      .best = o->top_logprobs < vocab ? o->top_logprobs : vocab,
                      .stop_now = sheaf__control_stop(o->control),
                      .events = o->events },
        .logprobs = o->logprobs,
        .stop = o->stop,
        .nstop = o->nstop,
        .on_token = o->on_token,
        .on_text = o->on_text,
        .context = o->context,
        .partial = o->partial
    };
    st = set_schema(&out->form, m, o->json_schema);
    if (st != NULL || !o->model_defaults)
        return st;
    sheaf__generation_config g = m->generation;
    if (texts && o->program_defaults && m->codec.placed && o->sampled == 0)
        sheaf__generation_config_family(&g, &m->codec.chat_encoder.form);
    sheaf__generation_config_sampling(&out->generate.sampling, &g, o,
                                      o->events != NULL ? o->events : m->o.events);
    return NULL;
}

sheaf_status *sheaf__model_room(const sheaf_model *m, const sheaf__prompt *prompt,
                                const sheaf__answer_options *a)
{
    const int64_t positions = m->positions;
    if (positions == 0 || a->generate.max_length > 0 ||
        prompt->n + a->generate.max_new <= positions)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt and answer"),
                                      "at most %" PRId64 " positions, as the model was opened",
                                      positions),
                       "%" PRId64 " and %" PRId64, prompt->n, a->generate.max_new);
}
