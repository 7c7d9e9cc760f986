/* chat.c - a conversation with a loaded model: sheaf/generate.h. */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/inside.h"
#include "comm/all.h"
#include "infer/dialogue.h"
#include "library/model.h"
#include "library/take.h"
#include "library/worker.h"
#include "schema/family.h"

struct sheaf_chat {
    sheaf_model *model;     /* borrowed */
    sheaf__wording wording; /* always by a template */
    sheaf__dialogue talk;
    sheaf__asking how; /* of sheaf_chat_begin(); without a wording: there was none */
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
    TRY(st, sheaf__wording_converse(&c->wording, &m->wording, m->o.events));
    TRY(st, sheaf__wording_needed(&c->wording));
    if (st == NULL && image != NULL)
        st = sheaf_chat_look(c, image);
    if (st == NULL)
        *out = c;
    else
        sheaf_chat_close(c);
    return st;
}

/* Can a file be made there? Else the first answer would find out. */
static sheaf_status *check_save(const char *path, const char *load)
{
    char *folder = NULL;
    if ((load == NULL || strcmp(path, load) != 0) && sheaf__path_kind(path) != SHEAF_PATH_NONE)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--save %s", path),
                                       "a file that does not exist, or the one of --load"),
                        "something there already"),
            "--load %s too, to go on with it", path);
    sheaf_status *st = sheaf__path_parent(&folder, path);
    if (st != NULL)
        return st;
    const bool file = sheaf__path_kind(folder) == SHEAF_PATH_FILE;
    if (file || access(folder, W_OK | X_OK) != 0) {
        const int error = file ? ENOTDIR : errno;
        st = sheaf_fail(SHEAF_E_IO, "--save %s", path);
        sheaf_expected(st, "a folder that is there and may be written");
        sheaf_found(st, "%s: %s", folder, strerror(error));
        if (error == ENOENT)
            sheaf_try_this(st, "mkdir -p %s", folder);
    }
    free(folder);
    return st;
}

/* Files and pictures are the first process's. */
static sheaf_status *take_files(sheaf_chat *c, const sheaf_chat_options *o)
{
    sheaf_status *st = o->load == NULL ? NULL : sheaf_in(sheaf_chat_load(c, o->load), "--load");
    if (st == NULL && o->nimages > 1 && !c->wording.placed)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--image"),
                                        "one: %s reads no more in a conversation",
                                        sheaf_family_name(c->wording.config->family)),
                         "%" PRId64, o->nimages);
    for (int64_t i = 0; i < o->nimages && st == NULL; i++)
        st = sheaf_chat_look(c, o->images[i]);
    if (st == NULL && o->system != NULL)
        st = sheaf_in(sheaf_chat_system(c, o->system), "--system");
    return st == NULL && o->save != NULL ? check_save(o->save, o->load) : st;
}

/* The options of an answer; NULL: those that it began with. */
static sheaf_status *take_asking(sheaf__asking *out, const sheaf_chat *c,
                                 const sheaf_model_generate_options *options)
{
    sheaf_model_generate_options o;
    if (options == NULL && c->how.wording != NULL) {
        *out = c->how;
        return NULL;
    }
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_model_generate_options");
    TRY(st, sheaf__no_prompt(&o, true, "the chat has them"));
    TRY(st, sheaf__model_asking(out, c->model, &o, true));
    out->wording = &c->wording;
    return st;
}

sheaf_status *sheaf_chat_begin(sheaf_chat **out, sheaf_model *m, const sheaf_chat_options *options)
{
    SHEAF__INSIDE;
    const sheaf__prompts none = { 0 };
    sheaf_chat_options o;
    sheaf_chat *c = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_chat_options");
    TRY(st, sheaf_chat_open(&c, m, NULL));
    if (st == NULL && sheaf__all_first(m->all))
        st = take_files(c, &o);
    TRY(st, take_asking(&c->how, c, o.answers));
    st = sheaf__together_ask(st, m, &none, c == NULL ? NULL : &c->how);
    if (st == NULL && !sheaf__wording_remembers(&c->wording))
        sheaf_note(m->o.events, "template %s: every question is asked alone",
                   sheaf__wording_template(&c->wording));
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

const char *sheaf_chat_file(const sheaf_chat *c)
{
    return c->talk.file;
}

const char *sheaf_chat_said(const sheaf_chat *c, int64_t i, const char **role)
{
    if (i < 0 || i >= c->talk.count)
        return NULL;
    if (role != NULL)
        *role = c->talk.said[i].role;
    return c->talk.said[i].content;
}

static sheaf_status *make_prompt(sheaf__prompt *prompt, void **block, const sheaf_chat *c,
                                 const char *question, const sheaf__asking *a, bool alone)
{
    sheaf_status *st = alone ? sheaf__dialogue_ask_alone(prompt, block, &c->talk, question)
                             : sheaf__dialogue_ask(prompt, block, &c->talk, question);
    return st == NULL ? sheaf__model_room(c->model, prompt, a) : st;
}

/* `st`, why a question cannot be put, with what helps. */
static sheaf_status *advise(sheaf_status *st, const sheaf_chat *c, const char *question,
                            const sheaf__asking *a)
{
    sheaf__prompt prompt;
    void *block = NULL;
    if (sheaf_status_code(st) == SHEAF_E_UNSUPPORTED &&
        sheaf__family_for(c->wording.config)->image.needed)
        return sheaf_try_this(st, "/image FILE");
    if (sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    sheaf_status *alone = make_prompt(&prompt, &block, c, question, a, true);
    if (alone == NULL)
        sheaf_try_this(st, "/reset, which forgets what was said; or a larger --max-length");
    sheaf_status_free(alone);
    free(block);
    return st;
}

sheaf_status *sheaf_chat_ask(sheaf_answer **out, sheaf_chat *c, const char *question,
                             const sheaf_model_generate_options *options)
{
    SHEAF__INSIDE;
    sheaf__asking a;
    sheaf__prompt prompt;
    void *block = NULL;
    *out = NULL;
    sheaf_status *st = question == NULL ? missing("a question") : take_asking(&a, c, options);
    if (st != NULL)
        return st;
    a.generate.number = c->answers;
    st = make_prompt(&prompt, &block, c, question, &a, false);
    if (st != NULL)
        st = advise(st, c, question, &a);
    TRY(st, sheaf__leader_ask(&c->leader, &c->model->opened.config, &prompt, c->answers));
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

sheaf_status *sheaf_chat_serve(sheaf_chat *c)
{
    SHEAF__INSIDE;
    return sheaf__worker_run(c->model, &c->how);
}

sheaf_status *sheaf_chat_wait(sheaf_chat *c, bool *over)
{
    SHEAF__INSIDE;
    return sheaf__leader_wait(c->model->all, over);
}

sheaf_status *sheaf_chat_end(sheaf_chat *c, sheaf_status *st)
{
    SHEAF__INSIDE;
    return sheaf__leader_end(c->model->all, st);
}
