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
    /* of several processes: */
    int64_t sent;             /* number of the newest pictures that all processes have; 0: none */
    sheaf__picture *received; /* these pictures, in all processes but the first */
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
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--save %s", path),
                                       "a file that does not exist, or the one of --load"),
                        "something there already"),
            "--load %s too, to go on with it", path);
    return sheaf_in(sheaf__path_check_new(path, false), "--save");
}

/* Only the first process has files and pictures. */
static sheaf_status *take_files(sheaf_chat *c, const sheaf_chat_options *o)
{
    sheaf_status *st = o->load == NULL ? NULL : sheaf_in(sheaf_chat_load(c, o->load), "--load");
    if (st == NULL && o->nimages > 1 && !c->codec.placed)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "--image"),
                                        "one: %s reads no more in a conversation",
                                        sheaf_family_name(c->codec.config->family)),
                         "%" PRId64, o->nimages);
    for (int64_t i = 0; i < o->nimages && st == NULL; i++)
        st = sheaf_chat_show(c, o->images[i]);
    if (st == NULL && o->system != NULL)
        st = sheaf_in(sheaf_chat_system(c, o->system), "--system");
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
    free(c->received);
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
        *role = c->talk.said[i].role;
    return c->talk.said[i].content;
}

/* ---- several processes ----
 *
 * The first has the input, the files, the pictures and the conversation. It sends each prompt to
 * the others as tokens, and they answer it with the first, so that hosts need not see the same
 * pictures and files. Each call of the first is matched by sheaf_chat_serve() in all others. */

enum { WAIT, ASK, END };

/* The message of the first. Pointers in the prompt only mark the arrays that follow. */
typedef struct order {
    int64_t kind, number; /* number of the prompt in the conversation */
    int64_t sends;        /* the pixels of its pictures follow */
    sheaf__prompt prompt;
} order;

static const char memory_for[] = "what the first process asks";

/* ids, position, embed and expert, in one block. */
static size_t block_size(const sheaf__prompt *p)
{
    return (size_t)p->n * 10;
}

static void pack(int32_t *ids, const sheaf__prompt *p)
{
    const size_t n = (size_t)p->n;
    uint8_t *embed = (uint8_t *)(ids + 2 * n);
    memcpy(ids, p->ids, n * sizeof *ids);
    if (p->position != NULL)
        memcpy(ids + n, p->position, n * sizeof *ids);
    if (p->embed != NULL)
        memcpy(embed, p->embed, n);
    if (p->expert != NULL)
        memcpy(embed + n, p->expert, n);
}

static void unpack(sheaf__prompt *p, const int32_t *ids, const sheaf__picture *picture)
{
    const uint8_t *embed = (const uint8_t *)(ids + 2 * p->n);
    p->ids = ids;
    p->position = p->position != NULL ? ids + p->n : NULL;
    p->embed = p->embed != NULL ? embed : NULL;
    p->expert = p->expert != NULL ? embed + p->n : NULL;
    p->picture = p->pictures > 0 ? picture : NULL;
    p->written = NULL;
    p->laid_out = true;
}

/* Allocates the pictures in the other processes. Sizes are sent without pointers. */
static sheaf_status *make_room(sheaf_chat *c, const sheaf__prompt *p, bool mine,
                               const sheaf__tower *tower, int towers)
{
    const size_t n = (size_t)p->pictures;
    sheaf__picture *sizes = calloc(n + 1, sizeof *sizes);
    sheaf_status *st =
        sheaf__all_agree(c->model->all, sizes == NULL ? sheaf__no_memory(memory_for) : NULL);
    if (st == NULL && mine)
        memcpy(sizes, p->picture, n * sizeof *sizes);
    for (size_t i = 0; i < n && st == NULL; i++)
        for (int k = 0; k < SHEAF__MOST_TOWERS; k++)
            sizes[i].of[k].pixels = NULL;
    TRY(st, sheaf__all_broadcast(c->model->all, sizes, n * sizeof *sizes));
    if (st == NULL && !mine) {
        free(c->received);
        c->received = sheaf__picture_room_like(sizes, p->pictures, tower, towers);
    }
    free(sizes);
    return st;
}

/* Broadcasts the prompt of `o` from the first: *block is its memory. If one process cannot allocate
 * it, all fail. */
static sheaf_status *share(int32_t **block, sheaf_chat *c, order *o, bool mine)
{
    sheaf_comm *all = c->model->all;
    sheaf__prompt *p = &o->prompt;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &c->model->opened.config);
    sheaf_status *st = o->sends ? make_room(c, p, mine, tower, towers) : NULL;
    const sheaf__picture *picture = mine ? p->picture : c->received;
    *block = calloc(block_size(p), 1);
    TRY(st, sheaf__all_agree(all, *block == NULL || (o->sends && picture == NULL)
                                      ? sheaf__no_memory(memory_for)
                                      : NULL));
    if (st == NULL && mine)
        pack(*block, p);
    TRY(st, sheaf__all_broadcast(all, *block, block_size(p)));
    for (int64_t i = 0; i < p->pictures && o->sends; i++)
        for (int k = 0; k < towers && st == NULL; k++)
            st = sheaf__all_broadcast(all, (float *)picture[i].of[k].pixels,
                                      (size_t)sheaf__view_numbers(&picture[i].of[k], &tower[k]) *
                                          sizeof(float));
    if (st == NULL && o->sends)
        c->sent = p->look;
    if (st == NULL && !mine)
        unpack(p, *block, picture);
    return st;
}

/* All processes answer this prompt: sheaf__model_answer() and an agreement follow. */
static sheaf_status *send(sheaf_chat *c, const sheaf__prompt *p)
{
    order o = { .kind = ASK,
                .number = c->answers,
                .sends = p->pictures > 0 && p->look != c->sent,
                .prompt = *p };
    int32_t *block = NULL;
    if (sheaf__all_count(c->model->all) == 1)
        return NULL;
    sheaf_status *st = sheaf__all_broadcast(c->model->all, &o, sizeof o);
    TRY(st, share(&block, c, &o, true));
    free(block);
    return st;
}

static sheaf_status *anyone(sheaf_comm *all, bool *over, bool mine)
{
    int flag = mine;
    sheaf_status *st = sheaf_comm_any(all, &flag);
    *over = flag != 0;
    return st;
}

sheaf_status *sheaf_chat_wait(sheaf_chat *c, bool *over)
{
    SHEAF__NUMERIC_ENV;
    order o = { .kind = WAIT };
    *over = false;
    if (sheaf__all_count(c->model->all) == 1)
        return NULL;
    sheaf_status *st = sheaf__all_broadcast(c->model->all, &o, sizeof o);
    return st == NULL ? anyone(c->model->all, over, false) : st;
}

sheaf_status *sheaf_chat_end(sheaf_chat *c, sheaf_status *st)
{
    SHEAF__NUMERIC_ENV;
    order o = { .kind = END };
    if (sheaf__all_count(c->model->all) == 1)
        return st;
    sheaf_status *lost = sheaf__all_broadcast(c->model->all, &o, sizeof o);
    if (lost == NULL)
        return sheaf__all_agree(c->model->all, st);
    if (st == NULL)
        return lost;
    sheaf_status_free(lost);
    return st;
}

static sheaf_status *follow(sheaf_chat *c, order *o)
{
    sheaf__answer_options a = c->how;
    sheaf_answer *said = NULL;
    int32_t *block = NULL;
    sheaf_status *st = share(&block, c, o, false);
    if (st == NULL) {
        a.generate.number = o->number;
        st = sheaf__all_agree(c->model->all,
                              sheaf__model_answer(&said, c->model, &o->prompt, 1, &a));
        sheaf_answer_free(said);
    }
    free(block);
    return st;
}

sheaf_status *sheaf_chat_serve(sheaf_chat *c)
{
    SHEAF__NUMERIC_ENV;
    sheaf_comm *all = c->model->all;
    const atomic_int *stop = c->how.generate.stop_now;
    order o = { .kind = WAIT };
    bool over = false;
    sheaf_status *st = NULL;
    while (st == NULL && o.kind != END) {
        st = sheaf__all_broadcast(all, &o, sizeof o);
        if (st == NULL && o.kind == WAIT)
            st = anyone(all, &over, stop != NULL && atomic_load(stop) != 0);
        else if (st == NULL && o.kind == ASK)
            st = follow(c, &o);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_PEER) {
            sheaf_status_free(
                st); /* the first has the same status and decides whether the chat continues */
            st = NULL;
        }
    }
    return st == NULL ? sheaf__all_agree(all, NULL) : st;
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
    SHEAF__NUMERIC_ENV;
    sheaf__answer_options a;
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
    TRY(st, send(c, &prompt));
    TRY(st, sheaf__all_agree(c->model->all, sheaf__model_answer(out, c->model, &prompt, 1, &a)));
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
