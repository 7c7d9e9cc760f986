/* session.c - see session.h. */
#include "library/session.h"

#include "base/base.h"
#include "base/file.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "library/run_model.h"
#include "library/sampler.h"
#include "library/train_settings.h"
#include "comm/watch/watch.h"
#include "models/sums.h"
#include "monitor/monitor.h"
#include "monitor/prometheus.h"
#include "monitor/provenance.h"
#include "ops/units.h"
#include "plan/fits.h"
#include "train/rank.h"
#include "train/options.h"

typedef struct session {
    const sheaf__session_options *how;
    const sheaf__run_driver *by;
    sheaf__process_join *join;
    sheaf_comm *group;             /* the processes of the run; NULL: this one is alone */
    char *stored, *fixed, *all;    /* settings of the run as it began (NULL: it begins now); of this
                                      one, see train/train.h */
    int64_t done;                  /* by the first process: steps that it has saved */
    char *base;                    /* the start of the run, for run.json */
    sheaf_monitor *monitor;        /* once OUT exists */
    sheaf__prometheus *prometheus; /* of the first process; NULL: none */
    int64_t steps;                 /* of the run, once they are known */
} session;

static void forward_event(void *self, const sheaf_event *event)
{
    const session *s = self;
    if (!sheaf__all_first(s->group)) /* told once */
        return;
    sheaf__prometheus_take(s->prometheus, event);
    if (s->monitor != NULL)
        sheaf_emit(sheaf_monitor_events(s->monitor), event);
    sheaf_emit(s->how->events, event);
}

static sheaf_status *write_settings(session *s)
{
    free(s->fixed);
    free(s->all);
    s->fixed = s->all = NULL;
    sheaf_status *st = sheaf__settings_text(&s->fixed, s->how->run->table, true);
    return st == NULL ? sheaf__settings_text(&s->all, s->how->run->table, false) : st;
}

/* A new run's settings name the template that was chosen for it, and have what little data made of
 * a recipe: they say all that the run depends on. One that goes on keeps the settings it began
 * with, also where they name none: its checkpoints hold the same. */
static sheaf_status *chosen(void *self, const char *prompt_template,
                            const sheaf_train_options *with, const char **settings,
                            const char **recipe)
{
    session *s = self;
    sheaf_train_options *o = s->how->run->options;
    if (s->stored != NULL || (prompt_template == NULL && o->yields == 0))
        return NULL;
    if (!sheaf__is_given(o->prompt_template))
        o->prompt_template = prompt_template;
    o->pack = with->pack;
    o->accumulate = with->accumulate;
    o->micro_batch = with->micro_batch;
    o->warmup = with->warmup;
    o->warmup_ratio = with->warmup_ratio;
    sheaf_status *st = write_settings(s);
    *settings = s->fixed;
    *recipe = s->all;
    return st;
}

static sheaf_status *take_base(void *self, const char *json)
{
    session *s = self;
    s->base = strdup(json);
    return s->base == NULL ? sheaf__no_memory("run.json") : NULL;
}

/* Compares the rates of a resumed run with those it began with. Where --epochs gave the number of
 * steps, it follows from the data. */
static sheaf_status *check_resumed(const session *s, const struct sheaf__job *job,
                                   const sheaf_events *events)
{
    sheaf_train_options was;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf__settings state = { 0 };
    char *stored = strdup(s->stored);
    sheaf_train_options_default(&was);
    sheaf__train_settings(table, &was, false);
    sheaf_status *st = stored == NULL
                           ? sheaf__no_memory("settings of the run")
                           : sheaf__settings_read(&state, table, stored, s->how->run->options->out);
    if (st == NULL) {
        was.steps = sheaf__subset_steps(&job->train, &was);
        sheaf__rates_resumed(job->options, &was, s->done, events);
    }
    sheaf__settings_release(&state);
    return st;
}

/* Once the number of steps is known. */
static sheaf_status *check_rates(const session *s, const struct sheaf__job *job,
                                 const sheaf_events *events)
{
    sheaf_status *st = job->options->epochs > 0 ? sheaf__rates_check(job->options, events) : NULL;
    return st == NULL && s->stored != NULL && sheaf__all_first(s->group)
               ? check_resumed(s, job, events)
               : st;
}

/* One process asks for all that are on its machine, the others only what they will take. */
static sheaf_status *planned(void *self, const struct sheaf__job *job, size_t *footprint,
                             sheaf__kept *kept)
{
    static const sheaf__memory asked_by_another = { .left = INT64_MAX };
    session *s = self;
    const sheaf_events events = { forward_event, self };
    s->steps = job->options->steps;
    sheaf_fits_options how = { .force = s->how->run->options->force,
                               .events = &events,
                               .footprint = footprint };
    sheaf_status *st = check_rates(s, job, &events);
    if (st != NULL)
        return st;
    if (s->stored == NULL && job->sampler == NULL && sheaf__all_first(s->group))
        sheaf__first_record_note(job, &events);
    if (!sheaf__process_checks_memory(s->group, &how.share)) {
        if (how.force) /* then nothing is held */
            return NULL;
        how.memory = &asked_by_another;
    }
    st = sheaf_fits_train(job, &how);
    if (st == NULL && sheaf_fits_pairs(job, &how)) {
        *kept = SHEAF__KEPT_PAIRS;
        sheaf_note(&events, "activations of both answers are kept, which saves a pass "
                            "(`keep-activations all`: of one at a time)");
    }
    return st;
}

static sheaf_status *begin(void *self, int64_t keep_steps, int64_t keep_evaluations)
{
    session *s = self;
    char *path = NULL;
    const sheaf_train_options *o = s->how->run->options;
    const bool board = o->tensorboard != NULL && o->tensorboard[0] != '\0';
    if (asprintf(&path, "%s/metrics.jsonl", o->out) < 0)
        return sheaf__no_memory("metrics.jsonl");
    const sheaf_provenance run = { .step = keep_steps,
                                   .steps = s->steps,
                                   .ranks = o->tp * o->dp,
                                   .threads = o->threads,
                                   .transport =
                                       o->transport == SHEAF_TRANSPORT_MPI ? "mpi" : "threads",
                                   .nwords = s->by->nwords,
                                   .word = s->by->word,
                                   .base = s->base };
    char *provenance = NULL;
    sheaf_status *st = sheaf_monitor_open(
        &s->monitor, &(sheaf_monitor_options){ .metrics = path,
                                               .tensorboard = board ? o->tensorboard : NULL,
                                               .keep_steps = keep_steps,
                                               .keep_evaluations = keep_evaluations,
                                               .events = s->how->events });
    if (st == NULL && asprintf(&provenance, "%s/run.json", o->out) < 0) {
        provenance = NULL;
        st = sheaf__no_memory("run.json");
    }
    TRY(st, sheaf_provenance_add(provenance, &run, s->how->events));
    free(provenance);
    free(path);
    return st;
}

static sheaf_status *before_save(void *self)
{
    return sheaf_monitor_sync(((session *)self)->monitor);
}

/* Is nothing missing that a new run needs? */
static bool has_all(const sheaf__session_options *how)
{
    sheaf_status *st = sheaf__settings_required(how->run->state, how->run->table, true);
    sheaf_status_free(st);
    return st == NULL;
}

/* The processes of the run meet, where something started them together. */
static sheaf_status *join(session *s)
{
    const sheaf_train_options *o = s->how->run->options;
    if (o->transport != SHEAF_TRANSPORT_MPI || sheaf__launcher_look().name == NULL)
        return NULL;
    sheaf_status *st = sheaf__process_start(s->join, o->mpi);
    s->group = s->join->all;
    return st != NULL ? st : sheaf__sums_agree(s->group, sheaf__units_prefer_tiles());
}

/* The stored settings of the resumed run: the first process reads and shares them. */
static sheaf_status *look_back(session *s)
{
    const sheaf_train_options *o = s->how->run->options;
    sheaf_status *st = NULL;
    if (!o->resume)
        return NULL;
    if (sheaf__all_first(s->group))
        st = sheaf_train_peek(&s->stored, &s->done, o->out);
    if (st == NULL && sheaf__all_first(s->group) && s->stored == NULL &&
        (!has_all(s->how) || sheaf__path_kind(o->out) != SHEAF_PATH_DIR))
        st = sheaf__run_paths_none(o->out);
    st = sheaf__all_agree(s->group, st);
    return st != NULL ? st : sheaf__all_share(s->group, &s->stored);
}

/* The stored settings of the resumed run: its settings file, else those in its newest checkpoint.
 */
static sheaf_status *take_stored(const session *s)
{
    const sheaf__session_options *how = s->how;
    sheaf_train_options *o = how->run->options;
    char path[SHEAF_PATH_SIZE];
    const bool none =
        sheaf__all_first(s->group) && !sheaf__path_has(o->out, "settings", SHEAF_PATH_FILE);
    sheaf__path_in(path, o->out, none ? "checkpoints: settings" : "settings");
    sheaf_status *st = sheaf__settings_resume(how->run->state, how->run->table, s->stored, path);
    TRY(st, sheaf__train_settings_resumed(how->run->state, how->run->table, o));
    if (st == NULL) {
        st = sheaf_in(sheaf__settings_required(how->run->state, how->run->table, true), "%s", path);
        if (st != NULL)
            sheaf_try_this(st, "give it as the run began; the file does not name it");
    }
    return st;
}

/* The settings as they were given, with those of the run that goes on. */
static sheaf_status *settle(session *s)
{
    const sheaf__session_options *how = s->how;
    sheaf_train_options *o = how->run->options;
    const sheaf_sums requested = o->sums;
    sheaf_status *st = join(s);
    TRY(st, look_back(s));
    if (st == NULL && s->stored != NULL)
        st = take_stored(s);
    const bool here = /* else the processes that this one starts do */
        o->transport == SHEAF_TRANSPORT_THREADS || sheaf__launcher_look().name != NULL;
    const sheaf_events *events = here && sheaf__all_first(s->group) ? how->events : NULL;
    if (st == NULL)
        sheaf__train_dtype(o, events);
    TRY(st, sheaf__train_settings_check(how->run->state, how->run->table, o));
    if (st == NULL)
        sheaf__sums_note(s->stored != NULL ? NULL : o->device, requested, SHEAF_SUMS_UNNAMED,
                         o->dtype, how->events);
    if (st == NULL && s->stored == NULL)
        /* one that goes on keeps what it began with, also where that has no name */
        st = sheaf__sums_choose(&o->sums, s->group, o->device, SHEAF_SUMS_UNNAMED, o->dtype);
    if (st == NULL)
        sheaf__sums_slow(o->device, o->sums, o->dtype, events);
    if (st == NULL && s->stored == NULL)
        st = sheaf__adapter_settings(how->run->state, how->run->table, o, how->events);
    if (st == NULL && sheaf__warmup_yield(o))
        sheaf_note(events, "no warm-up in so few steps (a flag's value stays)");
    if (st == NULL && here)
        st = sheaf__rates_check(o, events);
    TRY(st, sheaf__run_paths_begin(how->run->state, how->run->table, o));
    TRY(st, write_settings(s));
    if (st == NULL && s->stored != NULL)
        st = sheaf__run_paths_find(how->run->state, how->run->table, o, o->out, true);
    TRY(st, join(s)); /* the stored settings may say so */
    return sheaf__all_agree(s->group, st);
}

/* The port of the first process, before anything is computed. */
static sheaf_status *open_port(session *s, const sheaf_events *events)
{
    const int port = s->how->run->options->metrics_port;
    sheaf_status *st = NULL;
    if (port == 0)
        return NULL;
    if (sheaf__all_first(s->group))
        st = sheaf_in(sheaf__prometheus_open(&s->prometheus, port), "`metrics-port`");
    if (s->prometheus != NULL)
        sheaf_note(events, "numbers for Prometheus at http://127.0.0.1:%d/metrics", port);
    return sheaf__all_agree(s->group, st);
}

sheaf_status *sheaf__session_run(sheaf_train_result *result, const sheaf__session_options *how)
{
    sheaf__process_join own = { 0 };
    static const sheaf__run_driver none = { 0 };
    const sheaf__run_driver *by = how->run->driver != NULL ? how->run->driver : &none;
    session s = { .how = how, .by = by, .join = by->join != NULL ? by->join : &own };
    const sheaf_events events = { forward_event, &s };
    sheaf__watched watched = { 0 };
    sheaf__run_sampler sampler;
    bool elsewhere = false;
    sheaf_train_hooks hooks = { .begin = begin,
                                .base = take_base,
                                .chosen = chosen,
                                .planned = planned,
                                .events = &events,
                                .before_save = before_save,
                                .self = &s,
                                .spent = by->spent,
                                .control = how->control,
                                .enough = how->enough };
    *result = (sheaf_train_result){ 0 };
    sheaf_status *st = settle(&s);
    if (st == NULL && by->ready != NULL)
        st = by->ready(&elsewhere, by->self);
    if (st != NULL || elsewhere)
        goto done;
    st = open_port(&s, &events);
    TRY(st,
        sheaf__watched_open(&watched, &(sheaf__watch_options){
                                          .all = s.group,
                                          .ranks = how->run->options->tp * how->run->options->dp,
                                          .heartbeat = how->run->options->heartbeat,
                                          .hang_after = how->run->options->hang_after,
                                          .hooks = by->watch,
                                          .events = &events }));
    hooks.activity = watched.activity;
    hooks.all = s.group;
    sheaf__run_sampler_begin(&sampler, false, sheaf__control_stop(how->control), how->enough);
    hooks.sampler = &sampler.sampler;
    TRY(st, sheaf_train(result, how->run->options, s.fixed, s.all, &hooks));
    sheaf__run_sampler_close(&sampler);
    sheaf__watched_close(&watched);
    sheaf__prometheus_close(s.prometheus);
    s.prometheus = NULL;
done:
    st = sheaf__first_of(st, sheaf_monitor_close(s.monitor));
    free(s.base);
    free(s.stored);
    free(s.fixed);
    free(s.all);
    return st;
}
