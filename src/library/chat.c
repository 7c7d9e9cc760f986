/* chat.c - a conversation with a loaded model: sheaf/generate.h. */
#include "base/base.h"
#include "base/inside.h"
#include "comm/all.h"
#include "infer/dialogue.h"
#include "library/worker.h"
#include "library/model.h"
#include "library/take.h"

struct sheaf_chat {
    sheaf_model *model;     /* borrowed */
    sheaf__wording wording; /* always by a template */
    sheaf__dialogue talk;
    int64_t answers;
    sheaf__leader leader;
};

sheaf_status *sheaf_chat_open(sheaf_chat **out, sheaf_model *m, const char *image)
{
    SHEAF__INSIDE;
    sheaf_chat *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return sheaf__no_memory("a chat");
    c->model = m;
    c->leader.all = m->all;
    c->talk.wording = &c->wording;
    /* the first alone lays prompts out: there are no clocks that could differ */
    sheaf_status *st = sheaf__wording_today(&m->wording);
    TRY(st, sheaf__wording_converse(&c->wording, &m->wording, m->events));
    TRY(st, sheaf__wording_needed(&c->wording));
    if (st == NULL && image != NULL)
        st = sheaf_chat_look(c, image);
    if (st == NULL)
        *out = c;
    else
        sheaf_chat_close(c);
    return st;
}

void sheaf_chat_close(sheaf_chat *c)
{
    if (c == NULL)
        return;
    sheaf__dialogue_release(&c->talk);
    sheaf__wording_close(&c->wording);
    sheaf__leader_release(&c->leader);
    free(c);
}

sheaf_status *sheaf_chat_look(sheaf_chat *c, const char *image)
{
    SHEAF__INSIDE;
    return sheaf__dialogue_look(&c->talk, image, atomic_fetch_add(&c->model->looks, 1) + 1);
}

void sheaf_chat_reset(sheaf_chat *c)
{
    sheaf__dialogue_reset(&c->talk);
}

sheaf_status *sheaf_chat_system(sheaf_chat *c, const char *text)
{
    SHEAF__INSIDE;
    return sheaf__dialogue_system(&c->talk, text);
}

static sheaf_status *missing(const char *what)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a chat"), "%s", what), "NULL");
}

sheaf_status *sheaf_chat_save(sheaf_chat *c, const char *path)
{
    SHEAF__INSIDE;
    return path == NULL ? missing("a path") : sheaf__dialogue_save(&c->talk, path);
}

sheaf_status *sheaf_chat_load(sheaf_chat *c, const char *path)
{
    SHEAF__INSIDE;
    if (path == NULL)
        return missing("a path");
    return sheaf__dialogue_load(&c->talk, path, atomic_fetch_add(&c->model->looks, 1) + 1);
}

const char *sheaf_chat_said(const sheaf_chat *c, int64_t i, const char **role)
{
    if (i < 0 || i >= c->talk.count)
        return NULL;
    if (role != NULL)
        *role = c->talk.said[i].role;
    return c->talk.said[i].content;
}

const char *sheaf__chat_file(const sheaf_chat *c)
{
    return c->talk.file;
}

const sheaf__wording *sheaf__chat_wording(const sheaf_chat *c)
{
    return &c->wording;
}

sheaf_status *sheaf__chat_ask(sheaf_answer **out, sheaf_chat *c, const char *question,
                              const sheaf__asking *asking)
{
    sheaf__asking a = *asking;
    sheaf__prompt prompt;
    void *block = NULL;
    *out = NULL;
    a.wording = &c->wording;
    a.number = c->answers;
    sheaf_status *st = sheaf__dialogue_ask(&prompt, &block, &c->talk, question);
    TRY(st, sheaf__model_room(c->model, &prompt, &a));
    TRY(st, sheaf__leader_ask(&c->leader, &c->model->opened.config, &prompt, a.number));
    TRY(st, sheaf__all_agree(c->model->all, sheaf__model_answer(out, c->model, &prompt, 1, &a)));
    free(block);
    if (st != NULL)
        return st;
    st = sheaf__dialogue_keep(&c->talk, question, (*out)->text);
    c->answers++;
    if (st != NULL) {
        sheaf_answer_free(*out);
        *out = NULL;
    }
    return st;
}

static bool has_room(const sheaf_chat *c, const char *question, const sheaf__asking *asking,
                     bool alone)
{
    sheaf__prompt prompt;
    void *block = NULL;
    sheaf_status *st = alone ? sheaf__dialogue_ask_alone(&prompt, &block, &c->talk, question)
                             : sheaf__dialogue_ask(&prompt, &block, &c->talk, question);
    TRY(st, sheaf__model_room(c->model, &prompt, asking));
    const bool fits = st == NULL;
    free(block);
    sheaf_status_free(st);
    return fits;
}

bool sheaf__chat_is_full(const sheaf_chat *c, const char *question, const sheaf__asking *asking)
{
    return !has_room(c, question, asking, false) && has_room(c, question, asking, true);
}

sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *c, const char *question,
                             const sheaf_model_generate_options *options)
{
    SHEAF__INSIDE;
    sheaf_model_generate_options o;
    sheaf__asking a;
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_generate_options");
    if (st == NULL && (o.text != NULL || o.tokens != NULL || o.image != NULL || o.nimages != 0 ||
                       o.system != NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_model_generate_options"),
                            "neither text nor tokens nor images nor system: the chat has them");
    if (st == NULL && question == NULL)
        st = missing("a question");
    TRY(st, sheaf__model_asking(&a, c->model, &o));
    return st == NULL ? sheaf__chat_ask(out, c, question, &a) : st;
}
