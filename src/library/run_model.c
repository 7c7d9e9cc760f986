/* run_model.c - see run_model.h. */
#include "library/run_model.h"

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/temporary.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/probe.h"
#include "train/rank.h"
#include "train/export.h"
#include "library/train_settings.h"

static bool is_run(const char *path)
{
    return sheaf__path_has(path, "settings", SHEAF_PATH_FILE) &&
           sheaf__path_has(path, "checkpoints", SHEAF_PATH_DIR);
}

sheaf_status *sheaf__run_copy(char **to, const char *from)
{
    if (from == NULL || from[0] == '\0')
        return NULL;
    *to = strdup(from);
    return *to == NULL ? sheaf__no_memory("settings of the run") : NULL;
}

void sheaf__run_reading_release(sheaf__run_reading *r)
{
    sheaf__settings_release(&r->state);
    free(r->out);
    free(r->fixed);
    free(r->step);
    if (r->held != NULL)
        closedir(r->held);
    *r = (sheaf__run_reading){ 0 };
}

/* OUT of OUT/checkpoints/step-N, or NULL; a link or a path that ends in "/" is fine. */
static sheaf_status *find_out(char **out, const char *step)
{
    char *whole = realpath(step, NULL), *checkpoints = NULL;
    *out = NULL;
    if (whole == NULL || !sheaf__path_has(whole, "manifest.json", SHEAF_PATH_FILE)) {
        free(whole);
        return NULL;
    }
    sheaf_status *st = sheaf__path_parent(&checkpoints, whole);
    TRY(st, sheaf__path_parent(out, checkpoints));
    if (st == NULL && !is_run(*out)) {
        free(*out);
        *out = NULL;
    }
    free(checkpoints);
    free(whole);
    return st;
}

/* Fixed settings come from the checkpoint, whose tensors were trained with them; those in
 * OUT/settings could be edited. Paths, and settings that may change, are only in that file. */
static sheaf_status *read_settings(sheaf__run_reading *r)
{
    char path[SHEAF_PATH_SIZE], fixed[SHEAF_PATH_SIZE], *all = NULL;
    size_t size;
    sheaf_status *st = NULL;
    sheaf__path_in(path, r->out, "settings");
    sheaf_train_options_default(&r->options);
    sheaf__train_settings(r->table, &r->options, false);
    if (!r->alone)
        st = sheaf__file_read_all(&all, &size, path, 1 << 20);
    if (st == NULL && r->fixed != NULL)
        st = sheaf__settings_resume(&r->state, r->table, r->fixed,
                                    sheaf__path_in(fixed, r->step, "manifest.json: settings"));
    if (st == NULL && r->fixed == NULL)
        st = sheaf__settings_resume(&r->state, r->table, all, path);
    else if (st == NULL && !r->alone)
        st = sheaf__settings_resume_rest(&r->state, r->table, all, path);
    TRY(st, sheaf__train_settings_resumed(&r->state, r->table, &r->options));
    r->options.base_name = r->options.model; /* as it was given */
    TRY(st, sheaf__run_paths_find(&r->state, r->table, &r->options, r->out, false));
    free(all);
    return st;
}

/* Reads the settings of the checkpoint at r->step; nothing if it is damaged or not of training:
 * opening it reports that. */
static sheaf_status *read_checkpoint(sheaf__run_reading *r)
{
    sheaf_checkpoint *checkpoint = NULL;
    json_t *progress = NULL;
    sheaf_status *st = sheaf__path_has(r->step, "manifest.json", SHEAF_PATH_FILE)
                           ? sheaf_checkpoint_open(&checkpoint, r->step)
                           : NULL;
    const char *text = checkpoint == NULL ? "{}" : checkpoint->manifest->progress;
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_UNSUPPORTED) /* of another version */
        st = sheaf__only_memory(st);
    TRY(st, sheaf__json_parse(&progress, text, strlen(text)));
    TRY(st, sheaf__run_copy(&r->fixed, json_string_value(json_object_get(progress, "settings"))));
    json_decref(progress);
    sheaf_checkpoint_close(checkpoint);
    return st;
}

sheaf_status *sheaf__run_read(sheaf__run_reading *r, bool *is, const char *path, bool newest)
{
    *is = false;
    if (path == NULL || path[0] == '\0' || sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return NULL;
    const bool run = is_run(path);
    sheaf_status *st = run ? sheaf__run_copy(&r->out, path) : find_out(&r->out, path);
    TRY(st, run ? sheaf__step_newest(&r->step, &r->held, path) : sheaf__run_copy(&r->step, path));
    if (st == NULL && r->step != NULL && r->held == NULL)
        r->held = sheaf__step_open(r->step);
    if (st == NULL && r->step != NULL)
        st = read_checkpoint(r);
    r->alone = r->out == NULL && r->fixed != NULL;
    if (st == NULL && r->alone)
        st = sheaf__run_copy(&r->out, path);
    if (st != NULL || r->out == NULL)
        return st;
    *is = true;
    st = read_settings(r);
    const bool done =
        run && !newest &&
        sheaf__path_has(r->out, r->options.method == SHEAF_METHOD_LORA ? "adapter" : "model",
                        SHEAF_PATH_DIR);
    if (done) {
        free(r->step);
        r->step = NULL;
    }
    if (st == NULL && r->step == NULL && !done)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", r->out),
                                        newest ? "a checkpoint" : "a result, or a checkpoint"),
                         newest ? "none yet" : "neither yet");
    return st;
}

sheaf_status *sheaf__run_read_adapter(sheaf__run_reading *r, bool *is, const char *path)
{
    char *whole = path == NULL ? NULL : realpath(path, NULL), *out = NULL;
    *is = false;
    sheaf__run_reading_release(r); /* of what was looked at before */
    sheaf_status *st = whole != NULL && sheaf__ends_with(whole, "/adapter")
                           ? sheaf__path_parent(&out, whole)
                           : NULL;
    if (st == NULL && out != NULL && is_run(out)) {
        st = sheaf__only_memory(sheaf__run_read(r, is, out, false));
        *is = *is && st == NULL && r->options.method == SHEAF_METHOD_LORA && r->step == NULL;
    }
    if (!*is)
        sheaf__run_reading_release(r);
    free(out);
    free(whole);
    return st;
}

static char *given(const char *text)
{
    return text == NULL || text[0] == '\0' ? NULL : strdup(text);
}

sheaf_status *sheaf__run_model_base(char **model, char **config, const char *path)
{
    sheaf__run_reading r = { 0 };
    bool is;
    sheaf_status *st = sheaf__run_read(&r, &is, path, false);
    if (st == NULL && !is)
        st = sheaf__run_read_adapter(&r, &is, path);
    *model = st == NULL && is ? given(r.options.model) : NULL;
    *config = st == NULL && is ? given(r.options.config) : NULL;
    sheaf__run_reading_release(&r);
    return st;
}

static const char *config_of(const sheaf__run_reading *r, const sheaf__open_options *how)
{
    return how->config != NULL ? how->config : r->options.config;
}

/* ---- the adapter of a checkpoint, as a folder ---- */

sheaf_status *sheaf__run_check_base(const char *progress, const sheaf__opened *opened,
                                    const sheaf__origin_from *from, const char *path, bool result)
{
    sheaf_text cure = { 0 };
    sheaf__origin origin = { 0 };
    json_t *root = NULL;
    sheaf__text_add(&cure, path == NULL ? "give the model that the run was trained on"
                                        : "with the right one: `model BASE` `adapter ");
    if (path != NULL) {
        sheaf__text_word(&cure, path);
        sheaf__text_add(&cure, "`");
    }
    if (result) {
        sheaf__text_add(&cure, "; to use its adapter on another all the same: sheaf convert ");
        sheaf__text_word(&cure, path);
        sheaf__text_add(&cure, "/adapter COPY --to peft, and `adapter COPY`");
    }
    const sheaf__origin_words words = { .code = SHEAF_E_LAYOUT,
                                        .what = "the base of the run",
                                        .began = "with which the run began",
                                        .cure = cure.failed ? "the right one" : cure.at,
                                        .base_only = result };
    sheaf_status *st = sheaf__origin_begin(&origin, opened, from);
    if (st == NULL && origin.weights[0] == '\0')
        st = sheaf__hashed_all(opened->hashed, 0);
    TRY(st, sheaf__origin_end(&origin));
    if (st == NULL && progress != NULL)
        st = sheaf__json_parse(&root, progress, strlen(progress));
    TRY(st, sheaf__origin_check(&origin, root, &words));
    sheaf__hashed_stop(opened->hashed);
    sheaf__origin_release(&origin);
    sheaf__text_release(&cure);
    json_decref(root);
    return st;
}

/* The same of the checkpoint or the run at `path`. */
static sheaf_status *check_base(const sheaf__run_model *run, const sheaf_checkpoint *checkpoint,
                                const sheaf__opened *opened, const char *path, bool result)
{
    const sheaf__origin_from from = { .model = run->folder,
                                      .tokenizer = run->r.options.tokenizer,
                                      .tokens = run->tokenizer.tokens,
                                      .out = run->r.out };
    return sheaf_in(
        sheaf__run_check_base(checkpoint == NULL ? NULL : checkpoint->manifest->progress, opened,
                              &from, path, result),
        "%s", path);
}

/* Signals that end the process are blocked while the folder exists. */
static sheaf_status *make_temporary(sheaf__run_model *run)
{
    sigset_t ends;
    run->temporary = malloc(PATH_MAX);
    if (run->temporary == NULL)
        return sheaf__no_memory("adapter of the checkpoint");
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGUSR2);
    sigaddset(&ends, SIGXCPU);
    pthread_sigmask(SIG_BLOCK, &ends, &run->signals);
    sheaf_status *st = sheaf__temporary_make(run->temporary, PATH_MAX, &run->lock, "adapter", true);
    if (st == NULL)
        return NULL;
    pthread_sigmask(SIG_SETMASK, &run->signals, NULL);
    sheaf_try_this(st, "TMPDIR, a folder that can be written");
    free(run->temporary);
    run->temporary = NULL;
    return st;
}

static sheaf_status *write_adapter(sheaf__run_model *run, const sheaf__opened *base)
{
    sheaf_checkpoint *checkpoint = NULL;
    sheaf_source *masters = NULL;
    sheaf_status *st = sheaf_checkpoint_open(&checkpoint, run->r.step);
    TRY(st, check_base(run, checkpoint, base, run->r.step, false));
    TRY(st, sheaf__checkpoint_source(&masters, checkpoint));
    TRY(st, make_temporary(run));
    TRY(st, sheaf__path_join(&run->adapter, run->temporary, "adapter"));
    TRY(st, sheaf__export_adapter(run->adapter, true, base->lora, run->folder, masters, base->base,
                                  checkpoint->manifest->progress, NULL, &(sheaf__chat_files){ 0 }));
    if (masters != NULL)
        masters->close(masters);
    sheaf_checkpoint_close(checkpoint);
    return st;
}

static sheaf_status *export_step(sheaf__run_model *run, const sheaf__open_options *how)
{
    sheaf__run_base trained = { 0 };
    sheaf_status *st = sheaf__run_base_open(
        &trained, &run->r.options,
        &(sheaf__open_options){
            .model = run->folder, .config = config_of(&run->r, how), .as_stored = true });
    run->tokenizer = trained.tokenizer;
    trained.tokenizer = (sheaf__run_tokenizer){ 0 };
    TRY(st, write_adapter(run, &trained.opened));
    sheaf__run_base_release(&trained);
    return st;
}

/* ---- the tensors of a checkpoint, in place of the base's ---- */

static sheaf_status *lay_step(sheaf__opened *opened, sheaf__run_model *run)
{
    const char *path = run->step->dir;
    sheaf_source *stepped = NULL;
    sheaf__selection selection = { 0 };
    sheaf_status *st =
        sheaf__select(&selection, opened->schema, opened->lora, &run->r.options, NULL);
    TRY(st, sheaf__opened_quantise(opened, run->r.options.quantize, sheaf__selected, &selection));
    sheaf__selection_release(&selection);
    TRY(st, check_base(run, run->step, opened, path, false));
    TRY(st, sheaf_in(sheaf__checkpoint_source(&run->masters, run->step), "%s", path));
    TRY(st,
        sheaf_in(sheaf__stepped_source(&stepped, run->masters,
                                       opened->widened != NULL ? opened->widened : opened->base),
                 "%s", path));
    if (st == NULL)
        opened->weights = stepped;
    return st;
}

/* ---- the result of a run that has one ---- */

static sheaf_status *check_result(const sheaf__opened *opened, const sheaf__run_model *run)
{
    sheaf_checkpoint *checkpoint = NULL;
    char *step = NULL;
    DIR *held = NULL;
    sheaf_status *st = sheaf__step_newest(&step, &held, run->r.out);
    if (st == NULL && step != NULL)
        sheaf_status_free(
            sheaf_checkpoint_open(&checkpoint, step)); /* a damaged one has no settings */
    TRY(st, check_base(run, checkpoint, opened, run->r.out, true));
    sheaf_checkpoint_close(checkpoint);
    if (held != NULL)
        closedir(held);
    free(step);
    return st;
}

/* ---- both ---- */

/* The base named by the settings. */
static sheaf_status *take_base(sheaf__run_model *run)
{
    const char *model = run->r.options.model, *out = run->r.out;
    const bool named = model != NULL && model[0] != '\0';
    if (!named && !run->r.alone)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s/settings", out), "the key 'model'");
    if (!named || sheaf__path_kind(model) == SHEAF_PATH_NONE) {
        sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: the base of this run", out);
        if (named)
            sheaf_expected(st, "a model at %s, as its settings say%s", model,
                           model[0] == '/' ? "" : " (seen from the folder it was trained in)");
        else
            sheaf_expected(st, "the run's settings beside it, which name it");
        return sheaf_try_this(sheaf_found(st, named ? "nothing there" : "none"),
                              "where it lies now: `model BASE` `adapter %s`",
                              run->r.step != NULL ? run->r.step : out);
    }
    run->folder = run->base = strdup(model);
    return run->base == NULL ? sheaf__no_memory(out) : NULL;
}

/* The run has a result, or an adapter to export to a folder, or tensors that replace the base's. */
static sheaf_status *take_result(sheaf__run_model *run, const sheaf__open_options *how)
{
    const bool lora = run->r.options.method == SHEAF_METHOD_LORA;
    const char *step = run->r.step;
    sheaf_status *st;
    if (step != NULL) {
        st = lora ? export_step(run, how) : sheaf__run_copy(&run->config, config_of(&run->r, how));
        if (st == NULL && !lora)
            st = sheaf_checkpoint_open(&run->step, step);
        if (st == NULL)
            sheaf_note(how->events, "%s, on %s", step, run->folder);
        return st;
    }
    st =
        sheaf__path_join(lora ? &run->adapter : &run->base, run->r.out, lora ? "adapter" : "model");
    if (st == NULL && !lora)
        run->folder = run->base;
    if (st == NULL && lora)
        sheaf_note(how->events, "%s, on %s", run->adapter, run->folder);
    else if (st == NULL)
        sheaf_note(how->events, "%s", run->base);
    return st;
}

static sheaf_status *take_run(sheaf__run_model *run, const sheaf__open_options *how,
                              bool as_adapter)
{
    const bool whole = run->r.options.method != SHEAF_METHOD_LORA && run->r.step == NULL;
    sheaf_status *st = NULL;
    if (st == NULL && as_adapter && whole) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`adapter %s`", run->r.out),
                            "a run of method lora, or a checkpoint");
        return sheaf_try_this(sheaf_found(st, "a run whose result is a whole model"),
                              "`model %s`/model", run->r.out);
    }
    if (st == NULL && !as_adapter && !whole)
        st = take_base(run);
    return st == NULL ? take_result(run, how) : st;
}

/* Is --model a run, or else --adapter? */
static sheaf_status *find_run(sheaf__run_model *run, const sheaf__open_options *how)
{
    const bool adapter = how->adapter != NULL && how->adapter[0] != '\0';
    const char *const path[] = { how->model, how->adapter };
    sheaf_status *st = NULL;
    bool is = false, result = false;
    for (int i = 0; i < 2 && st == NULL && !is; i++) {
        sheaf__run_reading_release(&run->r);
        st = sheaf__run_read(&run->r, &is, path[i], false);
        result = st == NULL && !is;
        if (result)
            st = sheaf__run_read_adapter(&run->r, &is, path[i]);
        if (st == NULL && is && i == 0 && adapter) {
            const char *base = run->r.options.model;
            st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`adapter`"),
                                "none: `model` is a run, which has its own");
            sheaf_try_this(sheaf_found(st, "%s", how->adapter), "`model %s` `adapter %s`",
                           base != NULL ? base : "BASE", how->adapter);
        } else if (st == NULL && is && !(result && i == 1))
            st = take_run(run, how, i == 1);
    }
    if (!is)
        sheaf__run_reading_release(&run->r);
    return st;
}

/* Open files stay readable, so the folder is removed now: a killed process leaves nothing. */
static void remove_temporary(sheaf__run_model *run)
{
    if (run->temporary == NULL)
        return;
    sheaf_status_free(sheaf__remove_tree(run->temporary));
    close(run->lock);
    free(run->temporary);
    run->temporary = NULL;
    pthread_sigmask(SIG_SETMASK, &run->signals, NULL);
}

sheaf_status *sheaf__run_model_open(sheaf__opened *out, sheaf__run_model *run,
                                    const sheaf__open_options *how)
{
    sheaf__open_options replaced = *how;
    *run = (sheaf__run_model){ .folder = how->model };
    *out = (sheaf__opened){ 0 };
    sheaf_status *st = find_run(run, how);
    replaced.model = run->folder;
    replaced.as_stored = how->quantize == SHEAF_QUANTIZE_NONE;
    const bool lora = run->r.out != NULL && run->r.options.method == SHEAF_METHOD_LORA;
    if (how->quantize == SHEAF_QUANTIZE_NONE && lora)
        replaced.quantize = run->r.options.quantize;
    const int slices = run->r.options.slices;
    if (replaced.slices == 0)
        replaced.slices = slices > 0 ? slices : SHEAF__DEFAULT_SLICES;
    if (st == NULL && slices > 0 && how->slices == 0 && slices != SHEAF__DEFAULT_SLICES)
        sheaf_note(how->events, "%d slice%s, as in the run (`slices` changes it)", slices,
                   slices == 1 ? "" : "s");
    const bool result = run->adapter != NULL && run->temporary == NULL;
    if (run->adapter != NULL)
        replaced.adapter = run->adapter;
    replaced.hashed = result || run->step != NULL;
    replaced.base_known = run->adapter != NULL; /* checked against the run itself */
    if (run->step != NULL) {                    /* no adapter, trained on a base without one */
        replaced.adapter = NULL;
        replaced.config = run->config;
        replaced.for_training = true;
        replaced.scores = sheaf__objective_scores(run->r.options.objective.name);
    }
    TRY(st, sheaf__open_model(out, &replaced));
    remove_temporary(run);
    const char *beside =
        run->tokenizer.folder != NULL ? NULL : sheaf__opened_tokenizer(out, replaced.adapter);
    TRY(st, sheaf__run_copy(&run->tokenizer.folder, beside));
    if (st == NULL && result)
        st = check_result(out, run);
    return st == NULL && run->step != NULL ? lay_step(out, run) : st;
}

static void name(const char **what, const char *of_run)
{
    if (*what == NULL && of_run != NULL && of_run[0] != '\0')
        *what = of_run;
}

const char *sheaf__run_model_tokenizer(const sheaf__run_model *run)
{
    return run->tokenizer.folder != NULL ? run->tokenizer.folder : run->folder;
}

bool sheaf__run_model_text_defaults(const sheaf__run_model *run, const char **tokenizer,
                                    const char **version, const char **date, const char **query)
{
    const sheaf_train_options *o = &run->r.options;
    const bool own = *version == NULL;
    if (own || (o->prompt_template != NULL && strcmp(*version, o->prompt_template) == 0))
        name(date, o->date);
    name(tokenizer, run->tokenizer.folder != NULL ? NULL : o->tokenizer);
    name(version, o->prompt_template);
    name(query, o->query);
    return own && *version != NULL;
}

/* The config's, or float32; noted, unless the config says float32. */
static sheaf_dtype own_dtype(const sheaf_config *config, const sheaf_events *events)
{
    const sheaf_dtype own = config->dtype;
    if (config->dtype_named && (own == SHEAF_BF16 || own == SHEAF_F16)) {
        sheaf_note(events, "activations in %s, the model's own dtype", sheaf_dtype_torch_name(own));
        return own;
    }
    if (!config->dtype_named)
        sheaf_note(events, "activations in float32: the model's config names no dtype");
    return SHEAF_F32;
}

void sheaf__train_dtype(sheaf_train_options *o, const sheaf_events *events)
{
    sheaf__opened opened = { 0 };
    if (o->dtype != SHEAF_BOOL)
        return;
    sheaf_status *unread = sheaf__open_model(
        &opened, &(sheaf__open_options){
                     .model = o->model, .config = o->config, .slices = 1, .config_only = true });
    o->dtype = unread == NULL ? own_dtype(&opened.config, events) : SHEAF_F32;
    sheaf_status_free(unread);
    sheaf__opened_close(&opened);
}

sheaf_dtype sheaf__run_model_dtype(const sheaf__run_model *run, sheaf_dtype requested,
                                   const sheaf_config *config, const sheaf_events *events)
{
    if (requested != SHEAF_BOOL)
        return requested;
    if (run->r.out == NULL)
        return own_dtype(config, events);
    const sheaf_dtype of_run = run->r.options.dtype;
    if (of_run != SHEAF_F32)
        sheaf_note(events, "activations in %s, as in the run (`dtype` changes it)",
                   sheaf_dtype_torch_name(of_run));
    return of_run;
}

sheaf_status *sheaf__run_model_ranks(const sheaf__run_model *run, int slices, int tp)
{
    const int of_run = run->r.options.slices;
    int enough = 1;
    if (slices > 0 || of_run == 0 || tp <= of_run)
        return NULL;
    while (enough < tp)
        enough *= 2;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`tp`");
    sheaf_expected(st, "at most %d, the slices of the run", of_run);
    return sheaf_try_this(sheaf_found(st, "%d", tp),
                          "fewer ranks; `slices %d` takes so many, but adds in another order than "
                          "the run did",
                          enough);
}

void sheaf__run_model_release(sheaf__run_model *run)
{
    remove_temporary(run);
    if (run->masters != NULL)
        run->masters->close(run->masters);
    sheaf_checkpoint_close(run->step);
    sheaf__run_tokenizer_release(&run->tokenizer);
    free(run->base);
    free(run->adapter);
    free(run->config);
    sheaf__run_reading_release(&run->r);
    *run = (sheaf__run_model){ 0 };
}
