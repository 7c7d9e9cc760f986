/* chat.c - a conversation with a loaded model: sheaf/generate.h. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/numeric_env.h"
#include "comm/all.h"
#include "infer/dialogue.h"
#include "library/model.h"
#include "library/structs.h"
#include "schema/family.h"

struct sheaf_chat {
    sheaf_model *model; /* borrowed */
    sheaf__codec codec; /* always by a template */
    sheaf__dialogue talk;
    sheaf__answer_options how; /* options->answers; without a codec: being opened */
    int64_t answers;
};

static sheaf_status *new_chat(sheaf_chat **out, sheaf_model *m)
{
    sheaf_chat *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return sheaf__no_memory("a chat");
    c->model = m;
    c->talk.codec = &c->codec;
    /* only the first lays out prompts, so clocks cannot differ */
    sheaf_status *st = sheaf__codec_set_today(&m->codec);
    TRY(st, sheaf__codec_open_chat(&c->codec, &m->codec, m->o.events));
    TRY(st, sheaf__codec_check_tokenizer(&c->codec));
    if (st == NULL)
        *out = c;
    else
        sheaf_chat_close(c);
    return st;
}

/* Can the file be created? Better known before the first answer. */
static sheaf_status *check_save(const char *path, const char *load)
{
    if ((load == NULL || strcmp(path, load) != 0) && sheaf__path_kind(path) != SHEAF_PATH_NONE)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`save %s`", path),
                                       "a file that does not exist, or the one of `load`"),
                        "something there already"),
            "`load %s` too, to go on with it", path);
    return sheaf_in(sheaf__path_check_new(path, false), "`save`");
}

/* Only the first process has files and pictures. */
static sheaf_status *take_files(sheaf_chat *c, const sheaf_chat_options *o)
{
    sheaf_status *st = o->load == NULL ? NULL : sheaf_in(sheaf_chat_load(c, o->load), "`load`");
    if (st == NULL && o->nimages > 1 && sheaf__family_for(c->codec.config)->image.most == 1)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`image`"),
                                        "one: %s reads no more in a conversation",
                                        sheaf_family_name(c->codec.config->family)),
                         "%" PRId64, o->nimages);
    for (int64_t i = 0; i < o->nimages && st == NULL; i++)
        st = sheaf_chat_show(c, o->images[i]);
    if (st == NULL && o->system != NULL)
        st = sheaf_in(sheaf_chat_system(c, o->system), "`system`");
    return st == NULL && o->save != NULL ? check_save(o->save, o->load) : st;
}

/* The options of an answer; NULL: those that it was opened with. */
static sheaf_status *take_asking(sheaf__answer_options *out, const sheaf_chat *c,
                                 const sheaf_model_generate_options *options)
{
    sheaf_model_generate_options o;
    if (options == NULL && c->how.codec != NULL) {
        *out = c->how;
        return NULL;
    }
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_model_generate_options");
    TRY(st, sheaf__no_prompt(&o, true, "the chat has them"));
    TRY(st, sheaf__model_answer_options(out, c->model, &o, true));
    out->codec = &c->codec;
    return st;
}

sheaf_status *sheaf_chat_open(sheaf_chat **out, sheaf_model *m, const sheaf_chat_options *options)
{
    SHEAF__NUMERIC_ENV;
    const sheaf__prompts none = { 0 };
    sheaf_chat_options o;
    sheaf_chat *c = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_chat_options");
    TRY(st, new_chat(&c, m));
    if (st == NULL && sheaf__all_first(m->all))
        st = take_files(c, &o);
    TRY(st, take_asking(&c->how, c, o.answers));
    st = sheaf__consistency_generate(st, m, &none, c == NULL ? NULL : &c->how);
    if (st == NULL && !sheaf__codec_keeps_turns(&c->codec))
        sheaf_note(m->o.events, "template %s: every question is asked alone",
                   sheaf__codec_template(&c->codec));
    TRY(st, sheaf_model_load(m));
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
    sheaf__codec_close(&c->codec);
    free(c);
}

sheaf_status *sheaf_chat_show(sheaf_chat *c, const char *image)
{
    SHEAF__NUMERIC_ENV;
    return sheaf__dialogue_picture(&c->talk, image, atomic_fetch_add(&c->model->looks, 1) + 1);
}

void sheaf_chat_reset(sheaf_chat *c)
{
    sheaf__dialogue_reset(&c->talk);
}

sheaf_status *sheaf_chat_system(sheaf_chat *c, const char *text)
{
    SHEAF__NUMERIC_ENV;
    return sheaf__dialogue_system(&c->talk, text);
}

static sheaf_status *missing(const char *what)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a chat"), "%s", what), "NULL");
}

sheaf_status *sheaf_chat_save(sheaf_chat *c, const char *path)
{
    SHEAF__NUMERIC_ENV;
    return path == NULL ? missing("a path") : sheaf__dialogue_save(&c->talk, path);
}

sheaf_status *sheaf_chat_load(sheaf_chat *c, const char *path)
{
    SHEAF__NUMERIC_ENV;
    if (path == NULL)
        return missing("a path");
    return sheaf__dialogue_load(&c->talk, path, atomic_fetch_add(&c->model->looks, 1) + 1);
}

const char *sheaf_chat_file(const sheaf_chat *c)
{
    return c->talk.file;
}

const char *sheaf_chat_said(const sheaf_chat *c, int64_t i, const char **role)
{
    if (i < 0 || i >= c->talk.count)
        return NULL;
    if (role != NULL)
        *role = c->talk.message[i].role;
    return c->talk.message[i].content;
}

/* ---- questions ---- */

static sheaf_status *make_prompt(sheaf__prompt *prompt, void **block, const sheaf_chat *c,
                                 const char *question, const sheaf__answer_options *a, bool alone)
{
    sheaf_status *st = alone ? sheaf__dialogue_ask_alone(prompt, block, &c->talk, question)
                             : sheaf__dialogue_ask(prompt, block, &c->talk, question);
    return st == NULL ? sheaf__model_room(c->model, prompt, a) : st;
}

/* Adds advice to `st`, the error of a question. */
static sheaf_status *advise(sheaf_status *st, const sheaf_chat *c, const char *question,
                            const sheaf__answer_options *a)
{
    sheaf__prompt prompt;
    void *block = NULL;
    if (sheaf_status_code(st) == SHEAF_E_UNSUPPORTED &&
        sheaf__family_for(c->codec.config)->image.needed)
        return sheaf_try_this(st, "a picture first (/image FILE in sheaf chat)");
    if (sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    sheaf_status *alone = make_prompt(&prompt, &block, c, question, a, true);
    if (alone == NULL)
        sheaf_try_this(st, "a new conversation (/reset in sheaf chat), or a larger `max-length`");
    sheaf_status_free(alone);
    free(block);
    return st;
}

sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *c, const char *question,
                             const sheaf_model_generate_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf__answer_options a;
    sheaf__prompt prompt;
    void *block = NULL;
    *out = NULL;
    sheaf_status *st = question == NULL ? missing("a question") : take_asking(&a, c, options);
    if (st != NULL)
        return st;
    a.generate.number = c->answers;
    a.generate.followed = sheaf__all_count(c->model->all) > 1;
    st = make_prompt(&prompt, &block, c, question, &a, false);
    if (st != NULL)
        st = advise(st, c, question, &a);
    TRY(st, sheaf__model_answer(out, c->model, &prompt, 1, &a));
    free(block);
    if (st != NULL)
        return st;
    st = sheaf__dialogue_add_turn(&c->talk, question, (*out)->text);
    c->answers++;
    if (st != NULL) {
        sheaf_answer_free(*out);
        *out = NULL;
    }
    return st;
}
