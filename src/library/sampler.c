/* sampler.c - see sampler.h. */
#include "library/sampler.h"

#include "base/base.h"
#include "base/json_write.h"
#include "comm/activity.h"
#include "infer/answer.h"

/* ---- the prompts ---- */

enum { MALLOC = 32 }; /* bytes beside what is asked for */

static int64_t text_bytes(const char *text)
{
    return text == NULL ? 0 : (int64_t)strlen(text) + MALLOC;
}

static int64_t prompts_bytes(const sheaf__prompts *p)
{
    int64_t sum = p->capacity * (int64_t)(sizeof *p->prompt + sizeof *p->about);
    for (int64_t i = 0; i < p->count; i++)
        sum += text_bytes(p->about[i].text) + text_bytes(p->about[i].expected) + MALLOC +
               p->prompt[i].n * (int64_t)sizeof *p->prompt[i].ids;
    return sum;
}

static sheaf_status *open_prompts(void *self, sheaf_data **out, int64_t *bytes,
                                  const sheaf_train_options *o, const sheaf_config *config,
                                  const sheaf_events *events)
{
    sheaf__run_sampler *s = self;
    const sheaf__group_options *group = &o->objective.group;
    const bool own = o->tokens_in == NULL;
    sheaf__run_sampler_close(s);
    s->options = o;
    sheaf_status *st =
        sheaf__rewards_open(&s->rewards, group->reward, group->reward_weights, group->reward_time);
    memcpy(s->rewards.stop, s->stop, sizeof s->stop);
    TRY(st, sheaf__codec_open(&s->codec, config,
                              &(sheaf__codec_options){ .folder = own ? o->model : o->tokens_in,
                                                       .tokenizer = own ? o->tokenizer : NULL,
                                                       .version = o->prompt_template,
                                                       .date = o->date,
                                                       .specials = o->specials,
                                                       .events = events }));
    TRY(st, sheaf__prompts_read(&s->prompts, &s->codec,
                                &(sheaf_prompts_options){ .size = sizeof(sheaf_prompts_options),
                                                          .data = o->data,
                                                          .fields = o->fields,
                                                          .on_bad = o->on_bad,
                                                          .events = events },
                                NULL));
    const int64_t rows = st == NULL ? s->prompts.count : 0;
    const int32_t **ids = malloc(((size_t)rows + 1) * sizeof *ids);
    int64_t *n = malloc(((size_t)rows + 1) * sizeof *n);
    const char **answer = malloc(((size_t)rows + 1) * sizeof *answer);
    if (st == NULL && (ids == NULL || n == NULL || answer == NULL))
        st = sheaf__no_memory("prompts");
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        ids[i] = s->prompts.prompt[i].ids;
        n[i] = s->prompts.prompt[i].n;
        answer[i] = s->prompts.about[i].expected;
        if (s->prompts.prompt[i].pictures > 0 || s->prompts.prompt[i].embed != NULL)
            st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`reward`"),
                                "prompts without pictures");
    }
    TRY(st, sheaf_data_prompts(out, config, ids, n, answer, rows));
    *bytes = prompts_bytes(&s->prompts);
    free(ids);
    free(n);
    free(answer);
    return st;
}

/* ---- a batch ---- */

/* Completion i of the batch continues this prompt. */
static int64_t prompt_of(const sheaf__sampler_batch *b, int64_t i)
{
    return b->prompt[i / b->each];
}

static void put_ids(sheaf_json_writer *j, const char *key, const int32_t *ids, int64_t n)
{
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        sheaf__json_put_int(j, NULL, ids[i]);
    sheaf__json_close(j, ']');
}

static void put_line(sheaf_json_writer *j, const sheaf__prompt *prompt,
                     const sheaf__continuation *one, const char *text, double reward,
                     const sheaf__sampler_batch *b, int64_t i)
{
    sheaf__json_begin(j);
    sheaf__json_put(j, "step:d group:d reward:f truncated:b text:s", b->step,
                    b->group + i / b->each, reward, one->ending == SHEAF_ENDS_LENGTH, text);
    put_ids(j, "prompt_ids", prompt->ids, prompt->n);
    put_ids(j, "completion_ids", one->ids, one->n);
    sheaf__json_open(j, "logps", '[');
    for (int64_t t = 0; t < one->n; t++)
        sheaf__json_put_real(j, NULL, (double)one->logprob[t]);
    sheaf__json_close(j, ']');
    sheaf__json_end(j);
    sheaf__text_bytes(&j->text, "\n", 1);
}

/* On the first rank: their texts, rewards and lines. */
static sheaf_status *judge(char **text, const sheaf__run_sampler *s, sheaf__answers *said,
                           const sheaf__sampler_batch *b)
{
    const int64_t rows = b->count * b->each;
    sheaf_json_writer j = { .compact = true };
    char **own = calloc((size_t)rows, sizeof *own);
    sheaf__judged *of = calloc((size_t)rows, sizeof *of);
    double *reward = calloc((size_t)rows, sizeof *reward);
    sheaf_status *st =
        own == NULL || of == NULL || reward == NULL ? sheaf__no_memory("rewards") : NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        const sheaf__prompt_about *about = &s->prompts.about[prompt_of(b, i)];
        st = sheaf__answers_end(&own[i], said, i);
        of[i] = (sheaf__judged){ .prompt = about->text,
                                 .completion = own[i],
                                 .expected = about->expected,
                                 .truncated = said->output[i].ending == SHEAF_ENDS_LENGTH,
                                 .equal = sheaf__codec_answers_equal(&s->codec, own[i],
                                                                     about->expected, false),
                                 .step = b->step };
    }
    TRY(st, sheaf__rewards_judge(reward, &s->rewards, of, rows));
    for (int64_t i = 0; i < rows && st == NULL; i++)
        put_line(&j, &s->prompts.prompt[prompt_of(b, i)], &said->output[i], own[i], reward[i], b,
                 i);
    for (int64_t i = 0; i < rows && own != NULL; i++)
        free(own[i]);
    free(own);
    free(of);
    free(reward);
    if (st == NULL)
        return sheaf__text_take(text, &j.text);
    sheaf__text_release(&j.text);
    return st;
}

static sheaf_status *sample(void *self, char **text, sheaf__model *model,
                            const sheaf__sampler_batch *b)
{
    const sheaf__run_sampler *s = self;
    const sheaf__group_options *group = &s->options->objective.group;
    const int64_t rows = b->count * b->each, most = group->max_new;
    const double temperature = group->temperature > 0 ? group->temperature : 1;
    const sheaf__answer_options how = {
        .codec = &s->codec,
        .generate = { .sampling = { .temperature = (float)temperature,
                                    .top_p = (float)group->top_p,
                                    .seed = s->options->seed },
                      .max_new = most,
                      .batch = rows < SHEAF__SAMPLED_TOGETHER ? rows : SHEAF__SAMPLED_TOGETHER,
                      .number = b->first,
                      .divided = true,
                      .trained_at = temperature },
        .logprobs = true,
    };
    sheaf__prompt *prompt = malloc((size_t)rows * sizeof *prompt);
    sheaf__answers said = { 0 };
    sheaf_status *st = prompt == NULL ? sheaf__no_memory("completions") : NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++)
        prompt[i] = s->prompts.prompt[prompt_of(b, i)];
    TRY(st, sheaf__answers_open(&said, &how, prompt, rows, 1, NULL, NULL));
    st = sheaf__agree_groups(model->context, st);
    TRY(st, sheaf__generate(said.output, model, prompt, rows, &said.how));
    st = sheaf__agree_groups(model->context, sheaf__first_of(st, said.failed));
    said.failed = NULL;
    if (st == NULL && sheaf__is_first(model->context)) {
        sheaf__activity_idle(model->context->activity, true); /* programs take their time */
        st = judge(text, s, &said, b);
        sheaf__activity_idle(model->context->activity, false);
    }
    sheaf__answers_release(&said);
    free(prompt);
    return st;
}

void sheaf__run_sampler_begin(sheaf__run_sampler *out, const atomic_int *stop,
                              const atomic_int *enough)
{
    *out =
        (sheaf__run_sampler){ .sampler = { out, open_prompts, sample }, .stop = { stop, enough } };
}

void sheaf__run_sampler_close(sheaf__run_sampler *s)
{
    sheaf__prompts_release(&s->prompts);
    sheaf__codec_close(&s->codec);
    sheaf__rewards_close(&s->rewards);
}
