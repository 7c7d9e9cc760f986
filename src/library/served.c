/* served.c - see served.h. */
#include "library/served.h"

#include "base/base.h"
#include "base/file.h"
#include "comm/all.h"
#include "library/model.h"

static sheaf_status *check_names(const sheaf__served *s)
{
    for (int i = 0; i < s->models; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(s->model[i].name, s->model[j].name) == 0)
                return sheaf_try_this(
                    sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`adapter`"),
                                               "models of different names, by which requests "
                                               "choose (a run's result has the run's)"),
                                "'%s' twice", s->model[i].name),
                    "another name for one of them, as by ln -s");
    return NULL;
}

/* An adapter shares the base in memory, so it is computed as that is. */
static sheaf_status *check_same(const sheaf__served_model *base, const sheaf__served_model *v)
{
    const sheaf_model_open_options *a = &base->model->o, *b = &v->model->o;
    if (a->dtype == b->dtype && a->sums == b->sums)
        return NULL;
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "adapter %s", v->name),
                                   "the type of the model, %s%s", sheaf_dtype_name(a->dtype),
                                   a->sums == b->sums ? "" : ", and its order of sums"),
                    "%s", sheaf_dtype_name(b->dtype)),
        "`dtype %s`, and `sums` where that is not enough: then all are computed so",
        sheaf_dtype_torch_name(b->dtype));
}

/* The last part of the path, of a run's result (RUN/adapter, RUN/model) that of the run. */
static sheaf_status *name_of(char **out, const char *path)
{
    char *run = NULL;
    sheaf_status *st = sheaf__path_name(out, path);
    if (st != NULL || (strcmp(*out, "adapter") != 0 && strcmp(*out, "model") != 0))
        return st;
    st = sheaf__path_parent(&run, path);
    if (st == NULL && sheaf__path_has(run, "settings", SHEAF_PATH_FILE)) {
        free(*out);
        *out = NULL;
        st = sheaf__path_name(out, run);
    }
    free(run);
    return st;
}

static sheaf_status *open_model(sheaf__served_model *v, const sheaf_model_open_options *model,
                                const char *adapter)
{
    const sheaf__prompts none = { 0 };
    sheaf_model_open_options o = *model;
    o.adapter = adapter;
    o.late = true;
    sheaf_status *st = name_of(&v->name, adapter != NULL ? adapter : model->model);
    TRY(st, sheaf_model_open(&v->model, &o));
    if (st != NULL)
        return st;
    v->config = &v->model->opened.config;
    v->codec = &v->model->codec;
    v->max_new = v->model->generation.max_new;
    st = sheaf__codec_set_today(&v->model->codec); /* the first process alone lays out prompts */
    st = sheaf__consistency_generate(st, v->model, &none,
                                     &(sheaf__answer_options){ .codec = v->codec });
    if (st == NULL) {
        v->no_chat = sheaf__codec_open_chat(&v->chat, v->codec, model->events);
        if (v->no_chat == NULL)
            v->no_chat = sheaf__codec_check_tokenizer(&v->chat);
    }
    return st;
}

sheaf_status *sheaf__served_open(sheaf__served *out, const sheaf_model_open_options *model,
                                 const char *const *adapter, int nadapters, int64_t places)
{
    const size_t n = (size_t)nadapters + 1;
    *out = (sheaf__served){ .model = calloc(n, sizeof *out->model),
                            .name = calloc(n, sizeof *out->name),
                            .opened = calloc(n, sizeof *out->opened) };
    sheaf_status *st = out->model == NULL || out->name == NULL || out->opened == NULL
                           ? sheaf__no_memory("serving")
                           : NULL;
    for (int i = 0; i <= nadapters && st == NULL; i++) {
        sheaf__served_model *v = &out->model[i];
        st = open_model(v, model, i == 0 ? NULL : adapter[i - 1]);
        out->models++;
        if (st == NULL && i > 0)
            st = check_same(&out->model[0], v);
        if (st == NULL) {
            out->name[i] = v->name;
            out->opened[i] = &v->model->opened;
        }
    }
    TRY(st, check_names(out));
    return TRY(st, sheaf__model_load_batch(out->model[0].model, places));
}

void sheaf__served_close(sheaf__served *s)
{
    for (int i = 0; i < s->models; i++) {
        sheaf__served_model *v = &s->model[i];
        sheaf__codec_close(&v->chat);
        sheaf_status_free(v->no_chat);
        sheaf_model_close(v->model);
        free(v->name);
    }
    free(s->model);
    free(s->name);
    free(s->opened);
    *s = (sheaf__served){ 0 };
}

sheaf_status *sheaf__served_options(sheaf__answer_options *out, const sheaf__served_model *v,
                                    const sheaf_model_generate_options *o, bool texts, bool chat)
{
    sheaf_status *st = sheaf__model_answer_options(out, v->model, o, texts);
    if (st == NULL && chat)
        out->codec = &v->chat;
    return st;
}

sheaf__engine_options sheaf__served_engine(const sheaf__served *s)
{
    const sheaf_model *base = s->model[0].model;
    return (sheaf__engine_options){ .ranks = base->ranks,
                                    .opened = s->opened,
                                    .name = s->name,
                                    .models = s->models,
                                    .processes = sheaf__all_count(base->all),
                                    .positions = base->positions };
}
