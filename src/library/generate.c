/* generate.c - one or many prompts of a program: sheaf/generate.h. */
#include <jansson.h>

#include "base/base.h"
#include "base/numeric_env.h"
#include "base/json.h"
#include "comm/all.h"
#include "comm/activity.h"
#include "infer/prompts.h"
#include "library/model.h"
#include "plan/inputs.h"
#include "library/structs.h"

static sheaf_status *read_messages(sheaf__prompts *prompts, const sheaf_model *m,
                                   const sheaf_model_prompt *p, const char *system,
                                   const char *const *image, int64_t images)
{
    json_t *list = NULL;
    sheaf_status *st = sheaf__json_parse_line(&list, p->messages, strlen(p->messages));
    if (st != NULL)
        return sheaf_in(st, "messages");
    json_t *record = json_pack("{s:o}", "messages", list);
    st = record == NULL
             ? sheaf__no_memory("messages")
             : sheaf__prompts_messages(prompts, &m->codec, record, false, system, image, images);
    json_decref(record);
    return st;
}

static sheaf_status *read_tokens(sheaf__prompts *prompts, const sheaf_model_prompt *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->ntokens; i++)
        json_array_append_new(list, json_integer(p->tokens[i]));
    sheaf_status *st = json_array_size(list) < (size_t)p->ntokens
                           ? sheaf__no_memory("prompt")
                           : sheaf__prompts_add_ids(prompts, list, NULL);
    json_decref(list);
    return st;
}

/* Appends one to *prompts. */
static sheaf_status *read_prompt(sheaf__prompts *prompts, const sheaf_model *m,
                                 const sheaf_model_prompt *p, const char *system)
{
    const char *const what = "a prompt";
    const int kinds = (p->text != NULL) + (p->tokens != NULL) + (p->messages != NULL);
    if (kinds != 1 || (p->tokens != NULL && p->ntokens < 1))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text, or tokens, or messages");
    if (p->nimages < 0 || (p->nimages > 0 && p->images == NULL))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "nimages of images"),
                           "nimages %" PRId64, p->nimages);
    if (p->tokens != NULL && (p->nimages > 0 || system != NULL))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a text%s",
                              p->nimages > 0 ? " that asks about the image"
                                             : " with the system message");
    if (p->tokens != NULL)
        return read_tokens(prompts, p);
    if (p->messages != NULL)
        return read_messages(prompts, m, p, system, p->images, p->nimages);
    return sheaf__prompts_add_text(prompts, &m->codec, p->text, system, p->images, p->nimages);
}

static sheaf_status *ask(sheaf_answer **out, sheaf_model *m, const sheaf__prompts *prompts,
                         sheaf__answer_options *a)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < prompts->count && st == NULL; i++) {
        st = sheaf__model_room(m, &prompts->prompt[i], a);
        if (prompts->count > 1)
            st = sheaf_in(st, "prompt %" PRId64, i + 1);
    }
    if (st != NULL)
        return st;
    a->generate.load = sheaf__prompts_load;
    a->generate.self = (void *)prompts;
    return sheaf__model_answer(out, m, prompts->prompt, prompts->count, a);
}

/* `o`: must have no prompts. */
static sheaf_status *answer_all(sheaf_answer **out, sheaf_model *m,
                                const sheaf_model_prompt *prompt, int64_t count,
                                const sheaf_model_generate_options *o)
{
    sheaf__answer_options a;
    sheaf__prompts prompts = { .config = &m->opened.config };
    sheaf_status *st = sheaf__model_answer_options(&a, m, o, count > 0 && prompt->tokens == NULL);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        sheaf_model_prompt p;
        st = sheaf__struct_read(&p, sizeof p, (const char *)prompt + (size_t)i * prompt->size,
                                "sheaf_model_prompt");
        TRY(st, read_prompt(&prompts, m, &p, o->system));
        if (count > 1)
            st = sheaf_in(st, "prompt %" PRId64, i + 1);
    }
    TRY(st, ask(out, m, &prompts, &a));
    sheaf__prompts_release(&prompts);
    return st;
}

sheaf_status *sheaf_model_generate(sheaf_answer **out, sheaf_model *m,
                                   const sheaf_model_generate_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_model_generate_options o;
    *out = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_generate_options");
    const sheaf_model_prompt prompt = { .size = sizeof prompt,
                                        .text = o.text,
                                        .tokens = o.tokens,
                                        .ntokens = o.ntokens,
                                        .images = o.images,
                                        .nimages = o.nimages };
    return TRY(st, answer_all(out, m, &prompt, 1, &o));
}

sheaf_status *sheaf__no_prompt(const sheaf_model_generate_options *o, bool system, const char *why)
{
    const bool any = o->text != NULL || o->tokens != NULL || o->nimages != 0;
    return !any && (!system || o->system == NULL)
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_generate_options"),
                                "neither text nor tokens nor images%s: %s",
                                system ? " nor system" : "", why);
}

sheaf_status *sheaf_model_generate_all(sheaf_answer **out, sheaf_model *m,
                                       const sheaf_model_prompt *prompt, int64_t count,
                                       const sheaf_model_generate_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_model_generate_options o;
    for (int64_t i = 0; i < count; i++)
        out[i] = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_generate_options");
    TRY(st, sheaf__no_prompt(&o, false, "the prompts have them"));
    if (st == NULL && count < 1)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "prompts"), "at least one");
    return TRY(st, answer_all(out, m, prompt, count, &o));
}

/* ---- prompts of a file ---- */

struct sheaf_prompts {
    sheaf_model *model; /* borrowed */
    sheaf__codec codec; /* copy of the model's, with the limit of the options */
    sheaf__prompts all;
    bool texts;                /* else tokens */
    sheaf__answer_options how; /* after sheaf_prompts_begin() */
};

sheaf_status *sheaf_prompts_open(sheaf_prompts **out, sheaf_model *m,
                                 const sheaf_prompts_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_prompts_options o;
    sheaf_prompts *p = calloc(1, sizeof *p);
    *out = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_prompts_options");
    if (st == NULL && p == NULL)
        st = sheaf__no_memory("prompts");
    if (st == NULL) {
        sheaf_data_note_unused(NULL, o.data, NULL, NULL, o.query, o.events);
        sheaf__run_model_text_defaults(&m->run, &(const char *){ "" }, &(const char *){ "" },
                                       &(const char *){ "" }, &o.query);
        p->model = m;
        p->codec = m->codec;
        if (o.max_length > 0)
            p->codec.max_length = o.max_length;
        st = sheaf__prompts_read(&p->all, &p->codec, &o);
        p->texts = o.tokens == NULL && p->all.rows == NULL;
    }
    st = sheaf__all_agree(m->all, st);
    if (st == NULL)
        *out = p;
    else
        sheaf_prompts_close(p);
    return st;
}

void sheaf_prompts_close(sheaf_prompts *p)
{
    if (p != NULL)
        sheaf__prompts_release(&p->all);
    free(p);
}

int64_t sheaf_prompts_count(const sheaf_prompts *p)
{
    return p->all.count;
}

sheaf_status *sheaf_prompts_info(sheaf_prompt_facts *to, const sheaf_prompts *p, int64_t i)
{
    sheaf_status *st = sheaf__struct_check(to, "sheaf_prompt_facts");
    if (st == NULL && (i < 0 || i >= p->all.count))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "prompt"), "0 to %" PRId64, p->all.count - 1);
    if (st != NULL)
        return st;
    const sheaf_prompt_facts facts = {
        .text = p->all.about[i].text,
        .expected = p->all.about[i].expected,
        .laid_out = p->codec.templated || p->all.prompt[i].laid_out,
    };
    sheaf__struct_fill(to, &facts, sizeof facts);
    return NULL;
}

const char *sheaf_prompts_image(const sheaf_prompts *p, int64_t i, int64_t k)
{
    if (i < 0 || i >= p->all.count || k < 0)
        return NULL;
    const sheaf__prompt_about *about = &p->all.about[i];
    return k < about->nviewed ? about->viewed[k].path : k == 0 ? about->image : NULL;
}

int64_t sheaf__prompts_positions(const sheaf_prompts *p, int64_t max_new)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < p->all.count; i++)
        longest = p->all.prompt[i].n > longest ? p->all.prompt[i].n : longest;
    return longest + max_new;
}

bool sheaf_prompts_match(const sheaf_prompts *p, int64_t i, const sheaf_answer *answer,
                         bool any_case)
{
    return i >= 0 && i < p->all.count &&
           sheaf__codec_answers_equal(&p->codec, sheaf_answer_text(answer),
                                      p->all.about[i].expected, any_case);
}

static int64_t positions_of(const sheaf__prompt *p)
{
    return p->position == NULL || p->n == 0 ? p->n : p->position[p->n - 1] + (int64_t)1;
}

/* Refuses prompts longer than the model was made for, unless max_length (0: not given) allows them;
 * warns if prompts with answers may exceed it. */
static sheaf_status *check_reach(const sheaf_config *config, const sheaf__prompts *p,
                                 int64_t max_new, int64_t max_length, const sheaf_events *events)
{
    int64_t most = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t n = positions_of(&p->prompt[i]);
        const bool full = max_length > 0 && p->prompt[i].n >= max_length;
        most = n > most ? n : most;
        if (!full && (n <= config->max_position || max_length > 0))
            continue;
        sheaf_status *st = p->count == 1 ? sheaf_fail(SHEAF_E_DATA, "the prompt")
                                         : sheaf_fail(SHEAF_E_DATA, "prompt %" PRId64, i + 1);
        if (full)
            return sheaf_found(
                sheaf_expected(st, "fewer positions than `max-length %" PRId64 "`", max_length),
                "%" PRId64, p->prompt[i].n);
        sheaf_expected(st, "at most %" PRId64 " positions, the model's %s", config->max_position,
                       sheaf_config_position_key(config));
        return sheaf_try_this(sheaf_found(st, "%" PRId64, n),
                              "a shorter one; `max-length %" PRId64
                              "` is more than the model was trained for",
                              n + max_new);
    }
    const int64_t end = max_length > 0 && most + max_new > max_length ? max_length : most + max_new;
    sheaf__warn_positions(config, "prompt and answer", end, events);
    return NULL;
}

sheaf_status *sheaf_prompts_begin(sheaf_prompts *p, const sheaf_model_generate_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_model_generate_options o;
    sheaf_model *m = p->model;
    sheaf__answer_options *a = &p->how;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_generate_options");
    TRY(st, sheaf__no_prompt(&o, true, "the prompts have them"));
    TRY(st, sheaf__model_answer_options(a, m, &o, p->texts));
    a->generate.load = sheaf__prompts_load;
    a->generate.self = &p->all;
    TRY(st, check_reach(&m->opened.config, &p->all, a->generate.max_new, a->generate.max_length,
                        a->generate.events));
    st = sheaf__consistency_generate(st, m, &p->all, a);
    return st == NULL ? sheaf__model_ready(m, p->all.prompt, p->all.count, a) : st;
}

sheaf_status *sheaf_prompts_answer(sheaf_answer **out, sheaf_prompts *p)
{
    SHEAF__NUMERIC_ENV;
    sheaf_model *m = p->model;
    sheaf__activity_idle(sheaf_comm_activity(m->all), false);
    sheaf_status *st = sheaf__model_answer(out, m, p->all.prompt, p->all.count, &p->how);
    sheaf__activity_idle(sheaf_comm_activity(m->all), true); /* printing may block on its reader */
    return st;
}
