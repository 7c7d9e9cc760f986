/* reward_model.c - see reward_model.h. */
#include "library/reward_model.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"

static sheaf_status *in(sheaf_status *st, const sheaf__reward_model *m)
{
    return sheaf_in(st, "`reward %s`", m->path);
}

/* The base of an adapter that is no run's (malloc'd): where its config says so, else that of the
 * run. NULL: `path` is no such adapter. */
static sheaf_status *base_of(char **base, const char *path, const char *model)
{
    char file[SHEAF_PATH_SIZE], *config = NULL;
    json_t *json = NULL;
    *base = NULL;
    if (!sheaf__path_has(path, "adapter_config.json", SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf__run_model_base(base, &config, path);
    free(config);
    if (st != NULL || *base != NULL) {
        free(*base);
        *base = NULL;
        return st;
    }
    st = sheaf__json_load(&json, sheaf__path_in(file, path, "adapter_config.json"));
    const char *name = json_string_value(json_object_get(json, "base_model_name_or_path"));
    const char *found = name != NULL && sheaf__path_kind(name) == SHEAF_PATH_DIR ? name : model;
    if (st == NULL && found == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "its adapter_config.json"),
                                        "a folder as base_model_name_or_path, where `model` is "
                                        "none"),
                         "%s", name == NULL ? "none" : name);
    if (st == NULL && (*base = strdup(found)) == NULL)
        st = sheaf__no_memory(path);
    json_decref(json);
    return st;
}

sheaf_status *sheaf__reward_model_open(sheaf__reward_model *m, const char *path,
                                       const sheaf_train_options *o, bool plans,
                                       const sheaf_events *events)
{
    char *base = NULL;
    m->path = path;
    sheaf_status *st = base_of(&base, path, o->model);
    TRY(st, sheaf__run_model_open(&m->opened, &m->run,
                                  &(sheaf__open_options){ .model = base != NULL ? base : path,
                                                          .adapter = base != NULL ? path : NULL,
                                                          .slices = o->slices,
                                                          .config_only = plans,
                                                          .events = events }));
    if (st == NULL && !m->opened.config.scores)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "its head"),
                                       "'score.weight' of one label, which gives a number "
                                       "(AutoModelForSequenceClassification)"),
                        "that of a model which gives logits"),
            "a model of `objective reward`, or ./ before the name of a command");
    if (st == NULL && m->run.r.step != NULL)
        st =
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a run"), "its result"), "none yet");
    free(base);
    return in(st, m);
}

sheaf_status *sheaf__reward_model_read(sheaf__judge *out, sheaf__reward_model *m,
                                       const sheaf__to_score *of, int64_t n, int64_t most,
                                       const char *date, const sheaf_events *events)
{
    enum { LONGER = 4 }; /* one of its own tokenizer, at most */
    const char *tokenizer = NULL, *version = NULL, *query = NULL, *dated = NULL;
    const bool of_run =
        sheaf__run_model_text_defaults(&m->run, &tokenizer, &version, &dated, &query);
    const sheaf_data_options how = { .config = &m->opened.config,
                                     .folder = sheaf__run_model_tokenizer(&m->run),
                                     .tokenizer = tokenizer,
                                     .prompt_template = version,
                                     .of_run = of_run,
                                     .date = dated != NULL ? dated : date,
                                     .specials = m->run.r.options.specials,
                                     .events = events };
    sheaf_data *rows = NULL;
    bool conversations = false;
    sheaf_status *st = n > 0 ? sheaf__text_sources_open(&m->texts, &how) : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        conversations = conversations || of[i].messages > 0;
        if (of[i].messages == 0 && of[i].prompt == NULL)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "its prompts"),
                                            "texts, which its own tokenizer reads"),
                             "token ids");
    }
    TRY(st, conversations ? sheaf__text_sources_chat(&m->texts, &how) : NULL);
    TRY(st, n > 0 ? sheaf__data_to_score(&rows, &m->texts.encoder, of, n) : NULL);
    const int64_t seq = rows == NULL ? 0 : sheaf_data_longest(rows) + most;
    m->most = seq + (LONGER - 1) * most;
    *out = (sheaf__judge){ .opened = &m->opened, .seq = seq, .positions = m->most };
    sheaf_data_close(rows);
    return in(st, m);
}

sheaf_status *sheaf__reward_model_score(double *out, const sheaf__reward_model *m,
                                        sheaf__model *model, const sheaf__to_score *of, int64_t n,
                                        const sheaf__evaluate_options *how)
{
    sheaf_data *rows = NULL;
    sheaf_status *st = sheaf__data_to_score(&rows, &m->texts.encoder, of, n);
    if (st == NULL && sheaf_data_longest(rows) > m->most)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "a completion"),
                                       "at most %" PRId64 " tokens of this model, with its prompt",
                                       m->most),
                        "%" PRId64, sheaf_data_longest(rows)),
            "a reward model whose tokenizer reads such texts in fewer tokens");
    st = sheaf__agree_groups(model->context, st);
    TRY(st, sheaf__evaluate_scores(out, model, rows, how));
    sheaf_data_close(rows);
    return in(st, m);
}

void sheaf__reward_model_release(sheaf__reward_model *m)
{
    sheaf__text_sources_release(&m->texts);
    sheaf__opened_close(&m->opened);
    sheaf__run_model_release(&m->run);
}
