/* sampler.c - see sampler.h. */
#include "library/sampler.h"

#include "base/base.h"
#include "base/json_write.h"
#include "checkpoint/store/manifest.h"
#include "comm/activity.h"
#include "infer/answer.h"
#include "plan/inputs.h"

/* ---- the prompts ---- */

enum { MALLOC = 32 }; /* bytes beside what is asked for */

static int64_t text_bytes(const char *text)
{
    return text == NULL ? 0 : (int64_t)strlen(text) + MALLOC;
}

static int64_t messages_bytes(const sheaf__prompt_about *about)
{
    int64_t sum = about->messages == 0 ? 0 : MALLOC;
    for (int64_t i = 0; i < about->messages; i++)
        sum += (int64_t)sizeof *about->message + (int64_t)about->message[i].size + MALLOC / 2;
    return sum;
}

static int64_t pictures_bytes(const sheaf__prompt_about *about, const sheaf__prompt *prompt)
{
    int64_t sum = text_bytes(about->image) + prompt->pictures * (int64_t)sizeof *prompt->picture +
                  (prompt->embed != NULL ? 2 + (int64_t)sizeof *prompt->position : 0) * prompt->n;
    for (int64_t i = 0; i < about->nviewed; i++)
        sum += (int64_t)sizeof *about->viewed + text_bytes(about->viewed[i].path);
    return sum;
}

static int64_t prompts_bytes(const sheaf__prompts *p)
{
    int64_t sum = p->capacity * (int64_t)(sizeof *p->prompt + sizeof *p->about);
    for (int64_t i = 0; i < p->count; i++)
        sum += text_bytes(p->about[i].text) + text_bytes(p->about[i].expected) + MALLOC +
               messages_bytes(&p->about[i]) + pictures_bytes(&p->about[i], &p->prompt[i]) +
               p->prompt[i].n * (int64_t)sizeof *p->prompt[i].ids;
    return sum;
}

/* Each has a copy of its tokenizer, too. */
static sheaf_status *open_judges(sheaf__run_sampler *s, const sheaf_train_options *o,
                                 const sheaf_events *events)
{
    sheaf_status *st = NULL;
    s->judge = calloc((size_t)s->rewards.count, sizeof *s->judge);
    if (s->judge == NULL)
        return sheaf__no_memory("rewards");
    for (int k = 0; k < s->rewards.count && st == NULL; k++)
        if (s->rewards.of[k].kind == SHEAF__REWARD_MODEL)
            st = sheaf__reward_model_open(&s->judge[s->sampler.judges++], s->rewards.of[k].text, o,
                                          s->plans, events);
    return st;
}

static sheaf__to_score to_score(const sheaf__prompt_about *about, const char *completion)
{
    return (sheaf__to_score){ about->message, about->messages, about->text,
                              completion == NULL ? "" : completion };
}

/* What a judge is: its base, its adapter, and how it lays conversations out. */
static sheaf_status *add_print(sheaf_text *prints, const sheaf__reward_model *judge)
{
    char base[33] = "", print[33] = "", *config = NULL;
    sheaf__hashed *hashed = NULL;
    if (judge->opened.weights == NULL) /* of a plan */
        return NULL;
    sheaf_status *st = sheaf__fingerprint(base, judge->opened.schema, judge->opened.weights);
    if (judge->opened.adapter != NULL) {
        sheaf_lora_options options = judge->opened.lora->options;
        options.base_name = NULL; /* the base's path then */
        TRY(st, sheaf_lora_options_json(&config, &options));
        TRY(st, sheaf__hashed_new(&hashed, judge->opened.adapter, NULL));
        TRY(st, sheaf__hashed_all(hashed, 1));
        TRY(st, sheaf__hashed_weights(print, hashed));
    }
    sheaf__text_add(prints, "%s%s%s%s", base, print, config == NULL ? "" : config,
                    judge->texts.chat == NULL ? ""
                                              : sheaf__chat_template_program(judge->texts.chat));
    sheaf__hashed_free(hashed);
    free(config);
    return st;
}

/* Shows the prompts to the judges, and adds to *prints what these are. */
static sheaf_status *ask_judges(sheaf_text *prints, sheaf__run_sampler *s,
                                const sheaf_events *events)
{
    const sheaf_train_options *o = s->options;
    const int64_t first = s->prompts[0].count, n = first + s->prompts[1].count,
                  most = o->objective.group.max_new;
    sheaf__to_score *of = malloc(((size_t)n + 1) * sizeof *of);
    sheaf_status *st = of == NULL ? sheaf__no_memory("prompts") : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++)
        of[i] =
            to_score(i < first ? &s->prompts[0].about[i] : &s->prompts[1].about[i - first], ".");
    for (int k = 0; k < s->sampler.judges && st == NULL; k++) {
        const sheaf__opened *opened = &s->judge[k].opened;
        st = sheaf__reward_model_read(&s->sampler.judge[k], &s->judge[k], of, n, most, o->date,
                                      events);
        TRY(st, add_print(prints, &s->judge[k]));
        sheaf__warn_positions(&opened->config, s->judge[k].path, s->sampler.judge[k].seq, events);
    }
    free(of);
    return st == NULL && prints->failed ? sheaf__no_memory("prompts") : st;
}

/* A picture that is known by its path alone is looked at, so that it stays what it is. */
static sheaf_status *look_at(sheaf__prompt_about *about, const sheaf_config *config)
{
    sheaf__viewing viewing;
    if (about->image == NULL || about->nviewed > 0)
        return NULL;
    sheaf__viewing_of(&viewing, config);
    about->viewed = calloc(1, sizeof *about->viewed);
    if (about->viewed == NULL)
        return sheaf__no_memory("pictures");
    about->nviewed = 1;
    return sheaf__view_file(about->viewed, about->image, &viewing);
}

static sheaf_status *read_prompts(sheaf__run_sampler *s, int set, const char *data,
                                  const sheaf_events *events)
{
    sheaf__prompts *prompts = &s->prompts[set];
    sheaf_status *st =
        sheaf__prompts_read(prompts, &s->codec,
                            &(sheaf_prompts_options){ .size = sizeof(sheaf_prompts_options),
                                                      .data = data,
                                                      .fields = s->options->fields,
                                                      .on_bad = s->options->on_bad,
                                                      .events = events });
    for (int64_t i = 0; i < prompts->count && st == NULL; i++) {
        prompts->prompt[i].look = i + 1;
        st = look_at(&prompts->about[i], prompts->config);
        if (st == NULL && prompts->prompt[i].embed != NULL && s->sampler.judges > 0)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`reward %s`", s->judge->path),
                               "prompts without pictures, which reward models do not see"),
                "some in prompt %" PRId64, i + 1);
    }
    return st;
}

/* Of the pictures of a prompt. */
static sheaf_hash hash_of(sheaf_hasher *hasher, const sheaf__prompt_about *about)
{
    for (int64_t i = 0; i < about->nviewed; i++) {
        const sheaf__viewed *v = &about->viewed[i];
        sheaf__hasher_add(hasher, &v->hash, sizeof v->hash);
        sheaf__hasher_add(hasher, &v->pieces, sizeof v->pieces);
        sheaf__hasher_add(hasher, &v->frame, sizeof v->frame);
        sheaf__hasher_add(hasher, &v->joins, sizeof v->joins);
    }
    return about->nviewed > 0 ? sheaf__hasher_end(hasher) : (sheaf_hash){ 0 };
}

/* Adds the bytes that the prompts take. */
static sheaf_status *give_rows(sheaf_data **out, int64_t *bytes, sheaf__prompts *prompts,
                               const sheaf_config *config, const char *prints)
{
    const int64_t rows = prompts->count;
    sheaf_data_prompt *of = malloc(((size_t)rows + 1) * sizeof *of);
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = of == NULL || hasher == NULL ? sheaf__no_memory("prompts") : NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        const sheaf__prompt *p = &prompts->prompt[i];
        of[i] = (sheaf_data_prompt){ .ids = p->ids,
                                     .position = p->position,
                                     .n = p->n,
                                     .answer = prompts->about[i].expected,
                                     .embed = p->embed,
                                     .expert = p->expert,
                                     .picture = p->picture,
                                     .pictures = p->pictures,
                                     .hash = hash_of(hasher, &prompts->about[i]) };
    }
    TRY(st, sheaf_data_prompts(out, config, of, rows, prints,
                               &(sheaf_data_pictures){ sheaf__prompts_load, prompts }));
    *bytes += prompts_bytes(prompts);
    sheaf__hasher_free(hasher);
    free(of);
    return st;
}

static sheaf_status *open_prompts(void *self, sheaf_data *out[2], int64_t *bytes,
                                  const sheaf_train_options *o, const sheaf_config *config,
                                  const sheaf_events *events)
{
    sheaf__run_sampler *s = self;
    const sheaf__group_options *group = &o->objective.group;
    const bool own = o->tokens_in == NULL;
    const char *const data[] = { o->data, o->eval_data };
    sheaf_text judges = { 0 };
    sheaf__run_sampler_close(s);
    s->options = o;
    sheaf_status *st =
        sheaf__rewards_open(&s->rewards, group->reward, group->reward_weights, group->reward_time);
    memcpy(s->rewards.stop, s->stop, sizeof s->stop);
    TRY(st, open_judges(s, o, events));
    if (!sheaf__is_given(o->data)) { /* of a plan */
        TRY(st, ask_judges(&judges, s, events));
        sheaf__text_release(&judges);
        return st;
    }
    TRY(st, sheaf__codec_open(&s->codec, config,
                              &(sheaf__codec_options){ .folder = own ? o->model : o->tokens_in,
                                                       .tokenizer = own ? o->tokenizer : NULL,
                                                       .version = o->prompt_template,
                                                       .date = o->date,
                                                       .specials = o->specials,
                                                       .events = events }));
    s->codec.keeps = s->sampler.judges > 0;
    for (int i = 0; i < 2 && st == NULL; i++)
        st = sheaf__is_given(data[i]) ? read_prompts(s, i, data[i], events) : NULL;
    TRY(st, s->sampler.judges > 0 ? ask_judges(&judges, s, events) : NULL);
    *bytes = 0;
    for (int i = 0; i < 2 && st == NULL; i++) {
        if (!sheaf__is_given(data[i]))
            continue;
        sheaf_text prints = { 0 };
        if (s->prompts[i].rows != NULL) /* with their pictures */
            sheaf__text_add(&prints, "%s", sheaf_data_hash(s->prompts[i].rows));
        if (judges.at != NULL)
            sheaf__text_add(&prints, "%s", judges.at);
        st = prints.failed ? sheaf__no_memory("prompts")
                           : give_rows(&out[i], bytes, &s->prompts[i], config, prints.at);
        sheaf__text_release(&prints);
        if (st == NULL)
            sheaf__warn_positions(config, data[i], sheaf_data_longest(out[i]) + group->max_new,
                                  events);
    }
    sheaf__text_release(&judges);
    return st;
}

/* ---- a batch ---- */

/* Completion i of the batch continues this prompt. */
static const sheaf__prompt *prompt_of(const sheaf__run_sampler *s, const sheaf__sampler_batch *b,
                                      int64_t i)
{
    return &s->prompts[b->set].prompt[b->prompt[i / b->each]];
}

static const sheaf__prompt_about *about_of(const sheaf__run_sampler *s,
                                           const sheaf__sampler_batch *b, int64_t i)
{
    return &s->prompts[b->set].about[b->prompt[i / b->each]];
}

static void put_ids(sheaf_json_writer *j, const char *key, const int32_t *ids, int64_t n)
{
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        sheaf__json_put_int(j, NULL, ids[i]);
    sheaf__json_close(j, ']');
}

static void put_line(sheaf_json_writer *j, const sheaf__run_sampler *s,
                     const sheaf__continuation *one, const char *text, double reward,
                     const sheaf__sampler_batch *b, int64_t i)
{
    const sheaf__prompt *prompt = prompt_of(s, b, i);
    sheaf__json_begin(j);
    sheaf__json_put(j, "step:d contract:i group:d reward:f truncated:b prompt:s text:s", b->step,
                    SHEAF__CONTRACT, b->group + i / b->each, reward,
                    one->ending == SHEAF_ENDS_LENGTH, about_of(s, b, i)->text, text);
    put_ids(j, "prompt_ids", prompt->ids, prompt->n);
    put_ids(j, "completion_ids", one->ids, one->n);
    sheaf__json_open(j, "logps", '[');
    for (int64_t t = 0; t < one->n; t++)
        sheaf__json_put_real(j, NULL, (double)one->logprob[t]);
    sheaf__json_close(j, ']');
    sheaf__json_end(j);
    sheaf__text_bytes(&j->text, "\n", 1);
}

/* The scores of all reward models: score[judges][rows]. */
static sheaf_status *score_all(double *score, const sheaf__run_sampler *s, char *const *own,
                               const sheaf__sampler_batch *b, const sheaf__context *c)
{
    const int64_t rows = b->count * b->each;
    const sheaf__evaluate_options how = { .micro_batch = s->options->micro_batch };
    sheaf__to_score *of = malloc((size_t)rows * sizeof *of);
    sheaf_status *st = sheaf__agree_groups(c, of == NULL ? sheaf__no_memory("rewards") : NULL);
    for (int64_t i = 0; i < rows && st == NULL; i++)
        of[i] = to_score(about_of(s, b, i), own[i]);
    for (int k = 0; k < s->sampler.judges && st == NULL; k++)
        st = sheaf__reward_model_score(score + k * rows, &s->judge[k], b->judge[k], of, rows, &how);
    free(of);
    return st;
}

/* On the first rank: the rewards, and lines. */
static sheaf_status *judge(char **text, const sheaf__run_sampler *s, const sheaf__answers *said,
                           char *const *own, const double *score, const sheaf__sampler_batch *b)
{
    const int64_t rows = b->count * b->each;
    sheaf_json_writer j = { .compact = true };
    sheaf__judged *of = calloc((size_t)rows, sizeof *of);
    double *reward = calloc((size_t)rows, sizeof *reward);
    sheaf_status *st = of == NULL || reward == NULL ? sheaf__no_memory("rewards") : NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        const sheaf__prompt_about *about = about_of(s, b, i);
        of[i] = (sheaf__judged){ .prompt = about->text,
                                 .completion = own[i],
                                 .expected = about->expected,
                                 .truncated = said->output[i].ending == SHEAF_ENDS_LENGTH,
                                 .equal = sheaf__codec_answers_equal(&s->codec, own[i],
                                                                     about->expected, false),
                                 .viewed = about->viewed,
                                 .nviewed = about->nviewed,
                                 .step = b->step };
    }
    TRY(st, sheaf__rewards_judge(reward, &s->rewards, of, rows, score));
    for (int64_t i = 0; i < rows && st == NULL; i++)
        put_line(&j, s, &said->output[i], own[i], reward[i], b, i);
    free(of);
    free(reward);
    if (st == NULL)
        return sheaf__text_take(text, &j.text);
    sheaf__text_release(&j.text);
    return st;
}

/* The texts of completions, their scores on all ranks, and lines on the first. */
static sheaf_status *value(char **text, const sheaf__run_sampler *s, sheaf__answers *said,
                           const sheaf__sampler_batch *b, const sheaf__context *c)
{
    const int64_t rows = b->count * b->each;
    const bool first = sheaf__is_first(c), scored = s->sampler.judges > 0;
    char **own = calloc((size_t)rows, sizeof *own);
    double *score = malloc((size_t)(rows * s->sampler.judges + 1) * sizeof *score);
    sheaf_status *st = own == NULL || score == NULL ? sheaf__no_memory("rewards") : NULL;
    for (int64_t i = 0; i < rows && st == NULL && (first || scored); i++)
        st = sheaf__answers_end(&own[i], said, i);
    if (scored) {
        st = sheaf__agree_groups(c, st);
        TRY(st, score_all(score, s, own, b, c));
    }
    if (st == NULL && first) {
        sheaf__activity_idle(c->activity, true); /* programs take their time */
        st = judge(text, s, said, own, score, b);
        sheaf__activity_idle(c->activity, false);
    }
    for (int64_t i = 0; i < rows && own != NULL; i++)
        free(own[i]);
    free(own);
    free(score);
    return st;
}

/* The prompts of a batch, as the engine asks for their pictures. */
typedef struct asked {
    sheaf__run_sampler *s;
    const sheaf__sampler_batch *b;
} asked;

static sheaf_status *load(void *self, int64_t i, const sheaf__picture *picture, int64_t n)
{
    const asked *a = self;
    return sheaf__prompts_load(&a->s->prompts[a->b->set], a->b->prompt[i / a->b->each], picture, n);
}

static sheaf_status *sample(void *self, char **text, sheaf__model *model,
                            const sheaf__sampler_batch *b)
{
    sheaf__run_sampler *s = self;
    const sheaf__group_options *group = &s->options->objective.group;
    asked asked = { s, b };
    const int64_t rows = b->count * b->each, most = group->max_new;
    const double temperature = group->temperature > 0 ? group->temperature : 1;
    const sheaf__answer_options how = {
        .codec = &s->codec,
        .generate = { .sampling = { .greedy = b->greedy,
                                    .temperature = (float)temperature,
                                    .top_p = (float)group->top_p,
                                    .seed = s->options->seed },
                      .max_new = most,
                      .batch = rows < SHEAF__SAMPLED_TOGETHER ? rows : SHEAF__SAMPLED_TOGETHER,
                      .number = b->first,
                      .divided = true,
                      .load = load,
                      .self = &asked,
                      .trained_at = temperature },
        .logprobs = true,
    };
    sheaf__prompt *prompt = malloc((size_t)rows * sizeof *prompt);
    sheaf__answers said = { 0 };
    sheaf_status *st = prompt == NULL ? sheaf__no_memory("completions") : NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++)
        prompt[i] = *prompt_of(s, b, i);
    TRY(st, sheaf__answers_open(&said, &how, prompt, rows, 1, NULL, NULL));
    st = sheaf__agree_groups(model->context, st);
    TRY(st, sheaf__generate(said.output, model, prompt, rows, &said.how));
    st = sheaf__agree_groups(model->context, sheaf__first_of(st, said.failed));
    said.failed = NULL;
    TRY(st, value(text, s, &said, b, model->context));
    sheaf__answers_release(&said);
    free(prompt);
    return st;
}

void sheaf__run_sampler_begin(sheaf__run_sampler *out, bool plans, const atomic_int *stop,
                              const atomic_int *enough)
{
    *out = (sheaf__run_sampler){ .sampler = { .self = out, .open = open_prompts, .sample = sample },
                                 .plans = plans,
                                 .stop = { stop, enough } };
}

void sheaf__run_sampler_close(sheaf__run_sampler *s)
{
    for (int k = 0; k < s->sampler.judges; k++)
        sheaf__reward_model_release(&s->judge[k]);
    s->sampler.judges = 0;
    free(s->judge);
    s->judge = NULL;
    for (int i = 0; i < 2; i++)
        sheaf__prompts_release(&s->prompts[i]);
    sheaf__codec_close(&s->codec);
    sheaf__rewards_close(&s->rewards);
}
