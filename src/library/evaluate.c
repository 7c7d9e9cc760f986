/* evaluate.c - loss and accuracy of a model, or a training run, on data: sheaf/evaluate.h.
 *
 * Settings that affect the loss default to the run's: type of activations, slices, tokenizer,
 * template, date, query, the order of bfloat16 sums, for texts loss_on, specials and on_long, and
 * the settings of an objective that is the run's. */
#include "sheaf/evaluate.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/numeric_env.h"
#include "base/output.h"
#include "comm/process.h"
#include "formats/safetensors.h"
#include "inputs/template.h"
#include "library/model.h"
#include "library/structs.h"
#include "library/train_settings.h"
#include "plan/fits.h"
#include "train/pairs.h"
#include "train/rank.h"
#include "train/sets.h"

typedef struct work {
    sheaf_model *m;
    sheaf_model_evaluate_options o; /* with the run's settings or defaults */
    sheaf_data *rows;
    sheaf__evaluation result;
    /* of an objective: */
    sheaf__settings settings;
    sheaf_train_options train;
    sheaf__objective objective;
    bool refers;       /* a reference is given, not that of the run */
    double *reference; /* S of the reference, by row; of a reward model the scores */
    sheaf__pair_sums sums;
    _Atomic(sheaf_status *) failed; /* of the logits callback */
    atomic_int enough;
    /* with o.save_logits: */
    sheaf_file file;       /* open in all writing processes */
    int64_t at;            /* offset of the logits in it */
    bool created, started; /* errors of this process; of all */
    char *partial;         /* its path */
    int lock;              /* of the process that created it */
} work;

/* ---- a file of logits, renamed once it is complete ---- */

static sheaf_status *check_logits(const char *path)
{
    struct stat about;
    if (path == NULL)
        return NULL;
    if (lstat(path, &about) != 0)
        return sheaf_in(sheaf__path_check_new(path, false), "`save-logits`");
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`save-logits %s`", path),
                                      "a file that does not exist"),
                       "something there already");
}

static sheaf_status *create_logits(work *w)
{
    const sheaf_safetensors_spec spec = {
        .name = "logits",
        .dtype = SHEAF_F32,
        .ndim = 3,
        .shape = { sheaf_data_rows(w->rows), sheaf_data_seq(w->rows), w->m->opened.config.vocab }
    };
    char *header = NULL;
    size_t size = 0;
    int64_t bytes = 0;
    sheaf_status *st = sheaf__safetensors_plan(&header, &size, &w->at, &spec, 1);
    TRY(st, sheaf__safetensors_bytes(&bytes, &spec));
    TRY(st, sheaf__file_create_partial(&w->file, &w->partial, &w->lock, w->o.save_logits));
    w->created = st == NULL;
    TRY(st, sheaf__file_reserve(&w->file, w->at + bytes));
    TRY(st, sheaf__file_write_at(&w->file, header, size, 0));
    free(header);
    return st;
}

/* `st`: earlier status, consumed. */
static sheaf_status *close_logits(work *w, sheaf_status *st)
{
    if (w->file.path == NULL)
        return st;
    TRY(st, sheaf__file_sync(&w->file));
    return sheaf__first_of(st, sheaf__file_close(&w->file));
}

/* Removes the file after a failure. */
static sheaf_status *drop_logits(work *w, sheaf_status *st)
{
    st = close_logits(w, st);
    if (st != NULL && w->created)
        unlink(w->partial);
    return st;
}

/* The first rank of every group writes; each process has the file open. */
static sheaf_status *begin_logits(work *w)
{
    sheaf_comm *all = w->m->all;
    const bool first = sheaf__all_first(all);
    sheaf_status *st = sheaf__all_agree(all, first ? create_logits(w) : NULL);
    TRY(st, sheaf__all_share(all, &w->partial));
    TRY(st, sheaf__all_broadcast(all, &w->at, sizeof w->at));
    if (st == NULL && !first &&
        sheaf__all_number(all) % (w->m->placement.stages * w->m->o.tp) == 0) {
        st = sheaf__file_open_write(&w->file, w->partial);
        if (st != NULL)
            sheaf_try_this(st, "an output on a file system that all hosts share");
    }
    st = sheaf__all_agree(all, st);
    w->started = st == NULL;
    return w->started ? NULL : drop_logits(w, st);
}

/* `st`: earlier status, consumed. */
static sheaf_status *finish_logits(work *w, sheaf_status *st)
{
    sheaf_comm *all = w->m->all;
    if (!w->started)
        return st;
    sheaf__activity_phase(sheaf_comm_activity(all), "finishing");
    st = sheaf__all_agree(all, close_logits(w, st));
    if (st == NULL && sheaf__all_first(all)) {
        st = check_logits(w->o.save_logits); /* never replaces a file, also one created meanwhile */
        TRY(st, sheaf__rename_new(w->partial, w->o.save_logits));
    }
    return drop_logits(w, sheaf__all_agree(all, st));
}

static sheaf_status *hand_on(work *w, int64_t row, int64_t position, const float *logits)
{
    const int64_t vocab = w->m->opened.config.vocab;
    if (w->o.save_logits != NULL)
        return sheaf__file_write_at(&w->file, logits, (size_t)vocab * 4,
                                    w->at + (row * sheaf_data_seq(w->rows) + position) * vocab * 4);
    sheaf__numeric_env before = sheaf__callback_env();
    sheaf_status *st = w->o.take(w->o.context, row, position, logits, vocab);
    sheaf__numeric_env_restore(&before);
    return st;
}

/* A failure stops all ranks between two rows, like a request, so that none waits for it. */
static sheaf_status *take(void *self, int64_t row, int64_t position, const float *logits)
{
    work *w = self;
    const atomic_int *stop = sheaf__control_stop(w->o.control);
    if (stop != NULL && atomic_load(stop) != 0)
        atomic_store(&w->enough, 1);
    if (atomic_load(&w->enough) != 0)
        return NULL;
    sheaf_status *none = NULL, *st = hand_on(w, row, position, logits);
    if (st != NULL && !atomic_compare_exchange_strong(&w->failed, &none, st))
        sheaf_status_free(st); /* another group failed first */
    if (st != NULL)
        atomic_store(&w->enough, 1);
    return NULL;
}

/* ---- an objective ---- */

/* w->o.settings, over the defaults or the run's. */
static sheaf_status *read_settings(work *w, bool of_run)
{
    const sheaf_train_options *run = &w->m->run.r.options;
    sheaf__setting train[SHEAF__MAX_SETTINGS], table[SHEAF__MAX_SETTINGS] = { { 0 } };
    sheaf__settings_release(&w->settings);
    sheaf_train_options_default(&w->train);
    sheaf__train_settings(train, &w->train, true);
    sheaf__objective_settings(table, train);
    if (of_run) {
        w->train.objective = run->objective;
        w->train.label_smoothing = run->label_smoothing;
    }
    char *text = strdup(w->o.settings);
    return text == NULL ? sheaf__no_memory("settings")
                        : sheaf__settings_read(&w->settings, table, text, "settings");
}

static sheaf_status *read_objective(work *w)
{
    const sheaf__run_reading *run = &w->m->run.r;
    if (!sheaf__is_given(w->o.settings))
        return NULL;
    sheaf_status *st = read_settings(w, false);
    w->refers = st == NULL && sheaf__is_given(w->train.objective.reference);
    if (st == NULL && run->out != NULL && sheaf__is_given(run->options.objective.name) &&
        sheaf__is_given(w->train.objective.name) &&
        strcmp(run->options.objective.name, w->train.objective.name) == 0)
        st = read_settings(w, true);
    TRY(st, sheaf__objective_read(&w->objective, &w->train.objective, w->train.label_smoothing));
    w->train.loss_on = w->o.loss_on;
    TRY(st, sheaf__objective_check(&w->objective, &w->train));
    if (st == NULL && w->objective.grouped)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`objective %s`", w->objective.name),
                           "an objective whose evaluation needs no rewards"),
            "one that learns from rewards");
    const bool scores = w->m->opened.config.scores;
    if (st == NULL && sheaf__objective_prefers(&w->objective) && w->objective.scores != scores)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`objective %s`", w->objective.name),
                           scores ? "reward, of a reward model" : "a reward model"),
            scores ? "a reward model" : "one that gives logits");
    return st;
}

/* Preferences and scores give no logits, and no answers. */
static sheaf_status *check_wishes(const work *w)
{
    const bool logits = w->o.take != NULL || w->o.save_logits != NULL,
               prefers = sheaf__objective_prefers(&w->objective);
    if ((!prefers && !w->m->opened.config.scores) || (!logits && w->o.prompts == NULL))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, logits ? "`save-logits`" : "`match`");
    return prefers ? sheaf_expected(st, "none with `objective %s`", w->objective.name)
                   : sheaf_expected(st, "none of a reward model, which gives scores");
}

/* The reference of the objective: the model as its run began, or without its adapter. */
static sheaf_status *open_reference(sheaf_model **out, const work *w)
{
    const sheaf_model *m = w->m;
    const sheaf_train_options *run = &m->run.r.options;
    const bool of_run = m->run.r.out != NULL,
               whole = of_run && run->method != SHEAF_METHOD_LORA && m->run.r.step == NULL;
    sheaf_model_open_options o = m->o; /* of the run or the model the same type, order and ranks */
    o.model = whole ? run->model : m->run.folder;
    o.adapter = of_run && !w->objective.base && sheaf__is_given(run->adapter) ? run->adapter : NULL;
    if (w->objective.folder != NULL) {
        const bool adapter =
            sheaf__path_has(w->objective.folder, "adapter_config.json", SHEAF_PATH_FILE);
        o.model = !adapter ? w->objective.folder : of_run ? run->model : m->run.folder;
        o.adapter = adapter ? w->objective.folder : NULL;
    }
    o.config = o.config == NULL && of_run && sheaf__is_given(run->config) ? run->config : o.config;
    o.slices = m->opened.schema->slices;
    o.late = true;
    o.events = NULL;
    if (of_run && !whole && o.quantize == SHEAF_QUANTIZE_NONE)
        o.quantize = run->quantize;
    if (of_run || m->opened.lora != NULL || w->objective.folder != NULL) {
        sheaf_status *st = sheaf_model_open(out, &o);
        if (w->objective.folder != NULL)
            st = sheaf_in(TRY(st, sheaf__reference_check((*out)->opened.schema, m->opened.schema)),
                          "%s", w->objective.folder);
        return sheaf_in(st, "the reference");
    }
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`objective %s`", w->objective.name),
                                   "the folder of a run, or an adapter: its reference is the model "
                                   "without it"),
                    "a model alone"),
        "`adapter DIR`");
}

static sheaf__subset all_rows(const work *w)
{
    return (sheaf__subset){ .data = w->rows };
}

static sheaf__evaluate_options how_of(const work *w, const sheaf__model *model)
{
    return (sheaf__evaluate_options){ .micro_batch = w->o.micro_batch,
                                      .stop = sheaf__control_stop(w->o.control),
                                      .events =
                                          sheaf__is_first(model->context) ? w->o.events : NULL };
}

/* Sums of the reference's rows, or scores. */
static sheaf_status *refer_on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    const sheaf__subset all = all_rows(w);
    const sheaf__evaluate_options how = how_of(w, model);
    const size_t bytes = (size_t)sheaf_data_rows(w->rows) * sizeof(double);
    double *sum = malloc(bytes);
    sheaf_status *st = sheaf__agree_groups(
        model->context, sum == NULL ? sheaf__no_memory("sums of the reference") : NULL);
    TRY(st, w->objective.reference
                ? sheaf__pairs_sums(
                      sum, &(sheaf__pair_reading){ model, &all, &w->objective, &w->train, &how }, 0)
                : sheaf__evaluate_scores(sum, model, w->rows, &how));
    if (st == NULL && sheaf__team_keeps_result(model->context))
        memcpy(w->reference, sum, bytes);
    free(sum);
    return st;
}

static sheaf_status *take_sums(work *w)
{
    w->reference = malloc((size_t)sheaf_data_rows(w->rows) * sizeof *w->reference);
    return sheaf__all_agree(w->m->all,
                            w->reference == NULL ? sheaf__no_memory("sums of rows") : NULL);
}

/* Before the model itself is loaded, so that one is in memory at a time. */
static sheaf_status *refer(work *w, int64_t positions)
{
    sheaf_model *reference = NULL;
    bool given = false;
    sheaf_status *st = take_sums(w);
    TRY(st, sheaf__all_agree(w->m->all, sheaf__pairs_given(&given, w->reference, w->rows)));
    if (st == NULL && given)
        return NULL;
    TRY(st, open_reference(&reference, w));
    TRY(st, sheaf__model_load_for(reference, positions));
    TRY(st, sheaf__model_ranks_do(reference->ranks, refer_on_rank, w));
    sheaf_model_close(reference);
    return st;
}

/* Is it a reward model that gives each record a score? */
static bool scores(const work *w)
{
    return w->m->opened.config.scores && !sheaf__objective_prefers(&w->objective);
}

static sheaf_status *give_scores(work *w)
{
    const int64_t n = sheaf_data_rows(w->rows);
    sheaf__pair_sums *s = &w->sums;
    sheaf_status *st = NULL;
    w->result = (sheaf__evaluation){ .tokens = n };
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const double score = w->reference[i];
        sheaf__numeric_env before = sheaf__callback_env();
        st = w->o.score == NULL ? NULL : w->o.score(w->o.context, i, score);
        sheaf__numeric_env_restore(&before);
        s->least = i == 0 || score < s->least ? score : s->least;
        s->most = i == 0 || score > s->most ? score : s->most;
        s->reward[0] += score / (double)n;
    }
    return st;
}

/* ---- the evaluation ---- */

static sheaf_status *open_rows(work *w)
{
    sheaf_model_evaluate_options *o = &w->o;
    const sheaf_model *m = w->m;
    const sheaf_train_options *run = &m->run.r.options;
    const bool answers = o->prompts != NULL;
    const char *version = o->prompt_template, *date = o->date, *query = o->query;
    const bool of_run =
        sheaf__run_model_text_defaults(&m->run, &o->tokenizer, &version, &date, &query);
    if (o->loss_on == SHEAF_LOSS_UNNAMED)
        o->loss_on = run->loss_on;
    if (o->on_long == SHEAF_LONG_UNNAMED)
        o->on_long = run->on_long;
    /* else a length only refuses */
    if (o->seq == 0 && (o->on_long == SHEAF_LONG_CUT || o->on_long == SHEAF_LONG_SKIP))
        o->seq = run->seq;
    sheaf_status *st = sheaf_data_open(
        &w->rows, o->data,
        &(sheaf_data_options){ .config = &m->opened.config,
                               .seq = o->seq,
                               .events = o->events,
                               .folder = sheaf__run_model_tokenizer(&m->run),
                               .tokenizer = o->tokenizer,
                               .prompt_template =
                                   m->codec.images ? sheaf__codec_template(&m->codec) : version,
                               .of_run = of_run,
                               .date = date,
                               .query = query,
                               .loss_on = o->loss_on,
                               .on_long = o->on_long,
                               .on_bad = o->on_bad,
                               .fields = o->fields,
                               .specials = o->specials == 0 ? run->specials : o->specials > 0,
                               .pairs = w->objective.pairs,
                               .judged = w->objective.judged,
                               .scores = m->opened.config.scores,
                               .cache = o->data_cache,
                               .micro_batch = o->micro_batch,
                               .threads = m->o.threads,
                               .stop = sheaf__control_stop(o->control) });
    if (st == NULL) /* the template also shows where an answer begins in rows of tokens */
        sheaf_data_note_unused(w->rows, o->data, answers ? NULL : o->prompt_template,
                               answers ? NULL : o->date, o->query, o->events);
    return st;
}

static sheaf_status *check_memory(const work *w)
{
    const sheaf_model *m = w->m;
    double share;
    if (!sheaf__process_checks_memory(m->all, &share))
        return NULL;
    const int64_t rows = sheaf_data_rows(w->rows);
    const sheaf_plan_generation request = sheaf__model_layout(
        m, w->o.micro_batch < rows ? w->o.micro_batch : rows, sheaf_data_seq(w->rows));
    return sheaf_fits_evaluate(
        &request, w->rows, w->o.take != NULL || w->o.save_logits != NULL,
        &(sheaf_fits_options){ .force = m->o.force, .share = share, .events = w->o.events });
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    const bool logits = w->o.take != NULL || w->o.save_logits != NULL,
               takes = logits && sheaf__is_first_of_group(model->context);
    const sheaf__subset all = all_rows(w);
    sheaf__evaluate_options how = how_of(w, model);
    sheaf__evaluation result;
    sheaf__pair_sums sums = { 0 };
    how.padded = logits;
    how.take = takes ? take : NULL;
    how.self = w;
    how.stop = logits ? &w->enough : how.stop;
    sheaf_status *st =
        sheaf__objective_prefers(&w->objective)
            ? sheaf__pairs_evaluate(
                  &result, &sums,
                  &(sheaf__pair_reading){ model, &all, &w->objective, &w->train, &how },
                  w->reference)
            : sheaf__evaluate(&result, model, w->rows, &how);
    if (st == NULL && sheaf__team_keeps_result(model->context)) {
        w->result = result;
        w->sums = sums;
    }
    return st;
}

/* The router's loss is one of all layers together, and a stage has some of them. */
static sheaf_status *check_router(const sheaf_model *m)
{
    if (m->opened.config.router_loss <= 0 || m->placement.stages == 1)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "output_router_logits: true");
    sheaf_expected(st, "all layers on one stage, as the router's loss is one of all");
    sheaf_found(st, "%d stages", m->placement.stages);
    return sheaf_try_this(st, "`tp` or `dp` in place of `place`; answers, which have no loss, are "
                              "given by stages");
}

static sheaf_status *evaluate(work *w)
{
    sheaf_model *m = w->m;
    w->o.micro_batch = w->o.micro_batch > 0 ? w->o.micro_batch : 4;
    sheaf_status *st = check_logits(w->o.save_logits);
    TRY(st, check_router(m));
    TRY(st, read_objective(w));
    TRY(st, check_wishes(w));
    TRY(st, open_rows(w));
    if (w->refers)
        TRY(st, sheaf__reference_check_data(w->train.objective.reference, w->rows));
    TRY(st, check_memory(w));
    int64_t positions = st == NULL ? sheaf_data_seq(w->rows) : 0;
    if (w->o.prompts != NULL) {
        const int64_t later = sheaf__prompts_positions(w->o.prompts, w->o.answers->max_new);
        positions = later > positions ? later : positions;
    }
    st = sheaf__consistency_evaluate(st, m, &w->o, w->rows, positions);
    if (w->objective.reference)
        TRY(st, refer(w, positions));
    TRY(st, sheaf__model_load_for(m, positions));
    if (w->o.prompts != NULL) /* errors in them are reported before rows are evaluated */
        TRY(st, sheaf_prompts_begin(w->o.prompts, w->o.answers));
    if (w->o.save_logits != NULL)
        TRY(st, begin_logits(w));
    TRY(st, scores(w) ? take_sums(w) : NULL);
    TRY(st, sheaf__model_ranks_do(m->ranks, scores(w) ? refer_on_rank : on_rank, w));
    TRY(st, scores(w) ? give_scores(w) : NULL);
    sheaf_status *failed = atomic_exchange(&w->failed, NULL);
    st = sheaf__first_of(failed, st);
    if (w->o.prompts != NULL)
        TRY(st, sheaf_prompts_answer(w->o.out, w->o.prompts));
    return finish_logits(w, st);
}

static sheaf_status *check(const sheaf_model_evaluate_options *o, int groups)
{
    static const char what[] = "sheaf_model_evaluate_options";
    const bool sound = o->data != NULL && o->micro_batch >= 0 && o->seq >= 0 && o->specials >= -1 &&
                       o->specials <= 1 &&
                       (o->prompts == NULL || (o->answers != NULL && o->out != NULL));
    if (sound && groups > 1 && o->take != NULL) /* several groups would call it at once */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "dp 1 beside take"), "%d",
                           groups);
    if (!sound)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "data, specials from -1 to 1, no other number below 0, and "
                              "answers and out beside prompts");
    sheaf_status *st = sheaf__check_count(what, "seq", o->seq, SHEAF__MOST_POSITIONS);
    TRY(st, sheaf__check_count(what, "loss_on", o->loss_on, SHEAF_LOSS_BEHIND));
    TRY(st, sheaf__check_count(what, "on_long", o->on_long, SHEAF_LONG_SKIP));
    return TRY(st, sheaf__check_count(what, "on_bad", o->on_bad, SHEAF_BAD_SKIP));
}

sheaf_status *sheaf_model_evaluate(sheaf_model_evaluate_report *report, sheaf_model *model,
                                   const sheaf_model_evaluate_options *options)
{
    SHEAF__NUMERIC_ENV;
    work w = { .m = model, .lock = -1 };
    sheaf_status *st =
        sheaf__struct_read(&w.o, sizeof w.o, options, "sheaf_model_evaluate_options");
    TRY(st, sheaf__struct_check(report, "sheaf_model_evaluate_report"));
    TRY(st, check(&w.o, model->o.dp));
    TRY(st, evaluate(&w));
    sheaf_model_evaluate_report found = { .loss = w.result.loss,
                                          .tokens = w.result.tokens,
                                          .correct = w.result.correct };
    if (sheaf__objective_prefers(&w.objective))
        found.values = sheaf__pairs_values(found.value, &w.objective, &w.sums, true);
    else if (model->opened.config.scores) {
        const sheaf_event_value all[] = { { "min_reward", w.sums.least },
                                          { "mean_reward", w.sums.reward[0] },
                                          { "max_reward", w.sums.most } };
        memcpy(found.value, all, sizeof all);
        found.values = sizeof all / sizeof *all;
    }
    if (st == NULL)
        sheaf__struct_fill(report, &found, sizeof *report);
    sheaf__settings_release(&w.settings);
    free(w.reference);
    sheaf_data_close(w.rows);
    free(w.partial);
    if (w.lock >= 0)
        close(w.lock);
    return st;
}
