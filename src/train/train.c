/* train.c - see train.h. */
#include "train/train.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/store/checkpoint.h"
#include "comm/grid.h"
#include "comm/doing.h"
#include "comm/injected.h"
#include "comm/process.h"
#include "models/balance.h"
#include "models/open.h"
#include "train/alike.h"
#include "train/contract.h"
#include "train/export.h"
#include "train/judged.h"
#include "train/origin.h"
#include "train/out_folder.h"
#include "train/rank.h"
#include "train/signals.h"
#include "train/shared_out.h"
#include "train/slow.h"
#include "train/spent.h"

/* Seconds within which hosts that share a file system see what one of them has written. */
#define SEEN_WITHIN 10
/* Heartbeats of steps in which a slow rank shows. */
#define SILENCES 3
/* Bytes at a time, where the others give the first process what it saves. */
enum { CARRIED = 4 << 20 };

/* What the ranks of one run share; only `result` is written, by rank 0. */
typedef struct run {
    const sheaf_train_options *options;
    const sheaf_train_hooks *hooks;
    const char *settings;
    sheaf__job job;
    int contract;
    const sheaf__opened *opened;
    sheaf__origin origin;
    char *origin_text; /* by rank 0, before the others go on */
    atomic_bool weak;  /* the checkpoint is of a time when it held less of its origin */
    sheaf_train_result *result;
    double began;         /* by sheaf__seconds() */
    bool apart;           /* only the first process sees OUT */
    atomic_int interrupt; /* an evaluation that is under way ends */
    sheaf__out_folder folder;
} run;

/* One rank's view of the state that checkpoints hold. */
typedef struct saved {
    const sheaf__scaler *scaler; /* the rank's */
    sheaf_state state;
    sheaf_state_tensor *tensor;
    char **name; /* owned */
    sheaf__judged judged;
    sheaf__spent spent; /* what the rank has spent; no part of a checkpoint */
    sheaf__slow slow;   /* which rank the others wait for: the first rank's */
} saved;

/* ---- state ---- */

static void saved_release(saved *s)
{
    for (int64_t i = 0; s->name != NULL && i < s->state.count; i++)
        free(s->name[i]);
    free(s->name);
    free(s->tensor);
    free((char *)s->state.progress);
    *s = (saved){ 0 };
}

static sheaf_status *saved_init(saved *s, const sheaf__rank *rank, const sheaf_train_options *o,
                                int contract)
{
    const sheaf__trained_set *set = rank->model->trained;
    static const char *const group[3] = { "master", "exp_avg", "exp_avg_sq" };
    *s = (saved){
        .scaler = &rank->scaler,
        .state = { .slices = o->slices, .contract = contract, .count = 3 * (int64_t)set->count }
    };
    s->tensor = calloc((size_t)s->state.count + 1, sizeof *s->tensor);
    s->name = calloc((size_t)s->state.count + 1, sizeof *s->name);
    if (s->tensor == NULL || s->name == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "list of what is saved");
    for (int i = 0; i < set->count; i++) {
        sheaf__trained *t = set->item[i];
        float **data[3] = { t->master, t->moment1, t->moment2 };
        for (int g = 0; g < 3; g++) {
            const int64_t at = 3 * (int64_t)i + g;
            if (asprintf(&s->name[at], "%s/%s", group[g], t->name) < 0) {
                s->name[at] = NULL;
                return sheaf_fail(SHEAF_E_MEMORY, "list of what is saved");
            }
            s->tensor[at] = (sheaf_state_tensor){ .name = s->name[at],
                                                  .ndim = t->ndim,
                                                  .shape = { t->shape[0], t->shape[1] },
                                                  .cut = t->cut.nparts == 0 ? NULL : &t->cut,
                                                  .slice = data[g] };
        }
    }
    s->state.tensor = s->tensor;
    return NULL;
}

/* Of a file of their own; NULL: evaluations have none. */
static const char *eval_hash(const run *r)
{
    const sheaf__job *job = &r->job;
    const char *path = r->options->eval_data;
    return job->eval.data == NULL || path == NULL || path[0] == '\0'
               ? NULL
               : sheaf_data_hash(job->eval.data);
}

static sheaf_status *progress_text(char **out, const run *r, const saved *s, int64_t done)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"step\": %" PRId64 ", \"settings\": ", done);
    sheaf__text_json(&text, r->settings);
    sheaf__text_add(
        &text, ", \"base\": \"%s\", \"origin\": %s, \"data\": \"%s\", \"next_sample\": %" PRId64,
        r->origin.first_and_last, r->origin_text, sheaf_data_hash(r->job.train.data),
        done * r->options->accumulate * r->options->micro_batch);
    if (eval_hash(r) != NULL)
        sheaf__text_add(&text, ", \"eval_data\": \"%s\"", eval_hash(r));
    if (sheaf__evaluates(r->options)) {
        sheaf__text_add(&text, ", \"evaluation\": ");
        sheaf__judged_text(&text, &s->judged);
    }
    if (r->options->dtype == SHEAF_F16) {
        sheaf__text_add(&text, ", \"loss_scale\": ");
        sheaf__scaler_text(&text, s->scaler);
    }
    sheaf__text_add(&text, "}");
    return sheaf_in(sheaf__text_take(out, &text), "progress of the run");
}

static sheaf_status *save(run *r, sheaf_checkpoints *store, sheaf_comm *comm, saved *s,
                          int64_t done)
{
    const double began = sheaf__seconds();
    free((char *)s->state.progress);
    s->state.progress = NULL;
    char *text = NULL;
    sheaf__doing_phase(sheaf_comm_doing(comm), "saving");
    sheaf_status *st = progress_text(&text, r, s, done);
    s->state.progress = text;
    s->state.step = done;
    sheaf_checkpoints_protect(store, s->judged.best);
    if (st == NULL && sheaf_comm_rank(comm) == 0 && r->hooks->before_save != NULL)
        st = r->hooks->before_save(r->hooks->self);
    st = sheaf_comm_agree(comm, st);
    if (st == NULL)
        st = sheaf_checkpoints_save(store, comm, &s->state);
    sheaf__spent_saved(&s->spent, sheaf__seconds() - began);
    return st;
}

/* ---- going on ---- */

static const sheaf__origin_words of_resume = {
    .code = SHEAF_E_ARG,
    .what = "--resume: the base model",
    .began = "with which this run began",
    .cure = "give the original, or start a new run with another --out",
};

/* now_is NULL: there are none. */
static sheaf_status *same_data(const json_t *progress, const char *key, const char *what,
                               const char *now_is)
{
    const char *was = json_string_value(json_object_get(progress, key));
    if (was == NULL ? now_is == NULL : now_is != NULL && strcmp(was, now_is) == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--resume: %s", what);
    if (was == NULL)
        sheaf_expected(st, "none, as this run began");
    else
        sheaf_expected(st, "the one this run began with (hash %s)", was);
    if (now_is == NULL)
        sheaf_found(st, "none");
    else
        sheaf_found(st, "another one (hash %s)", now_is);
    return sheaf_try_this(st, "give the original, or start a new run with another --out");
}

/* A run that looks for its checkpoint on one rank. */
typedef struct look {
    run *r;
    sheaf_checkpoints *store;
    sheaf__judged *judged; /* out: what it says of evaluations */
    sheaf__scaler *scaler; /* out: and of the scale of the loss */
} look;

/* Is it a checkpoint of this run? */
static sheaf_status *is_ours(void *arg, const sheaf_checkpoint *from)
{
    const look *l = arg;
    run *r = l->r;
    bool weak = false;
    json_t *progress = NULL;
    sheaf_status *st = sheaf__progress_of(&progress, from);
    if (st != NULL)
        return st;
    const char *settings = json_string_value(json_object_get(progress, "settings"));
    st = sheaf__origin_check(&r->origin, progress, &of_resume, &weak);
    atomic_store(&r->weak, weak);
    if (st == NULL)
        st = same_data(progress, "data", "the data", sheaf_data_hash(r->job.train.data));
    if (st == NULL)
        st = same_data(progress, "eval_data", "the data of evaluations", eval_hash(r));
    if (st == NULL && (settings == NULL || strcmp(settings, r->settings) != 0)) {
        st = sheaf_fail(SHEAF_E_ARG, "--resume: the settings");
        const char *a = settings == NULL ? "" : settings, *b = r->settings;
        while (*a != '\0' && strcspn(a, "\n") == strcspn(b, "\n") &&
               strncmp(a, b, strcspn(a, "\n") + 1) == 0) {
            const size_t line = strcspn(a, "\n") + 1;
            a += line;
            b += line;
        }
        sheaf_expected(st, "those this run began with: %.*s",
                       settings == NULL ? 7 : (int)strcspn(a, "\n"),
                       settings == NULL ? "unknown" : a);
        sheaf_found(st, "others: %.*s", (int)strcspn(b, "\n"), b);
    }
    sheaf__judged_read(l->judged, json_object_get(progress, "evaluation"));
    sheaf__scaler_read(l->scaler, json_object_get(progress, "loss_scale"));
    sheaf_checkpoints_protect(l->store, l->judged->best);
    json_decref(progress);
    return st;
}

/* ---- an end before the last step ---- */

static bool is_over(const run *r)
{
    return r->options->max_time > 0 && sheaf__seconds() - r->began >= r->options->max_time;
}

static sheaf_status *stopped(const run *r, int64_t done)
{
    const char *out = r->options->out;
    sheaf_status *st = sheaf_fail(SHEAF_E_STOPPED,
                                  is_over(r) ? "--max-time is over after step %lld"
                                             : "asked to stop after step %lld",
                                  (long long)done);
    sheaf_text word = { 0 };
    sheaf__text_word(&word, out);
    sheaf_try_this(st, "everything was saved; go on with: sheaf train --resume --out %s",
                   word.at == NULL ? out : word.at);
    sheaf__text_release(&word);
    return st;
}

/* ---- evaluations ---- */

static bool is_due(int64_t every, int64_t done)
{
    return every > 0 && done > 0 && done % every == 0;
}

/* On rank 0: a stop that is asked for meanwhile ends an evaluation. The end of --max-time does not:
 * a time that is shorter than an evaluation would never get past it. */
static void look_up(run *r)
{
    if (r->hooks->signals != NULL && atomic_load(&r->hooks->signals->stop) != 0)
        atomic_store(&r->interrupt, 1);
}

/* The line of progress that says "all of them" comes with the result. */
static void pass_on(void *self, const sheaf_event *event)
{
    run *r = self;
    look_up(r);
    if (event->kind != SHEAF_EVENT_PROGRESS || event->done < event->total)
        sheaf_emit(r->hooks->events, event);
}

static void report_evaluation(run *r, const sheaf__evaluation *found, int64_t done, bool best,
                              double seconds)
{
    sheaf_train_result *out = r->result;
    out->evaluated = true;
    out->eval_loss = found->loss;
    out->eval_tokens = found->tokens;
    out->eval_accuracy = found->tokens == 0 ? 0 : (double)found->correct / (double)found->tokens;
    sheaf_emit(r->hooks->events, &(sheaf_event){ .kind = SHEAF_EVENT_EVALUATION,
                                                 .evaluation = { .step = done,
                                                                 .steps = r->options->steps,
                                                                 .loss = found->loss,
                                                                 .accuracy = out->eval_accuracy,
                                                                 .tokens = found->tokens,
                                                                 .seconds = seconds,
                                                                 .best = best } });
}

typedef struct verdict {
    bool best;    /* this step is the best so far */
    bool stopped; /* nothing was found: a stop came in the way, on all ranks alike */
} verdict;

/* judged: gets what was found. */
static sheaf_status *evaluate(verdict *out, run *r, const sheaf__rank *rank, sheaf_comm *comm,
                              sheaf__judged *judged, int64_t done)
{
    const bool first = sheaf_comm_rank(comm) == 0;
    const sheaf_events events = { pass_on, r };
    const double began = sheaf__seconds();
    sheaf__evaluation found;
    *out = (verdict){ 0 };
    if (first)
        look_up(r);
    sheaf_status *st =
        sheaf__rank_evaluate(&found, rank, &r->job, &r->interrupt, first ? &events : NULL);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED) {
        out->stopped = true;
        sheaf_status_free(st);
        return NULL;
    }
    if (st != NULL)
        return sheaf_in(st, "evaluation after step %" PRId64, done);
    out->best = sheaf__judged_add(judged, done, found.loss, r->options->min_delta);
    if (first)
        report_evaluation(r, &found, done, out->best, sheaf__seconds() - began);
    return NULL;
}

static bool out_of_patience(const run *r, const sheaf__judged *judged)
{
    return r->options->patience > 0 && judged->worse >= r->options->patience;
}

/* The end: a step that no evaluation was due after is judged too. What is found there is told and
 * may be the best, but is not part of the state: a run that goes on from here to more steps is the
 * same as one that had them from the start. */
static sheaf_status *evaluate_end(run *r, const sheaf__rank *rank, sheaf_comm *comm, const saved *s,
                                  int64_t done)
{
    sheaf__judged judged = s->judged;
    sheaf_status *st = NULL;
    verdict found = { 0 };
    if (!sheaf__evaluates(r->options))
        return NULL;
    if (judged.last != done)
        st = evaluate(&found, r, rank, comm, &judged, done);
    if (found.stopped)
        return stopped(r, done);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        r->result->best_step = judged.best;
        r->result->best_loss = judged.best_loss;
        r->result->early = done < r->options->steps;
        if (r->result->early)
            sheaf_note(r->hooks->events,
                       "%" PRId64 " evaluations without a better loss: it ends after step %" PRId64
                       " of %" PRId64,
                       judged.worse, done, r->options->steps);
        st = sheaf__judged_write(&judged, r->options->out);
    }
    return sheaf_comm_agree(comm, st);
}

/* ---- the loop ---- */

static void report(const run *r, const sheaf__rank *rank, const sheaf__step_result *step,
                   int64_t done, double lr, double seconds, const sheaf_event_rank *spent)
{
    const sheaf_event event = { .kind = SHEAF_EVENT_STEP,
                                .step = { .step = done,
                                          .steps = r->options->steps,
                                          .loss = step->loss,
                                          .grad_norm = step->grad_norm,
                                          .lr = lr,
                                          .tokens = step->tokens,
                                          .seconds = seconds,
                                          .memory = rank->device->peak,
                                          .skipped = step->skipped,
                                          .loss_scale = step->scale },
                                .rank = spent,
                                .ranks = r->options->tp * r->options->dp };
    sheaf_emit(r->hooks->events, &event);
    r->result->loss = step->loss;
    r->result->tokens += step->tokens;
    r->result->seconds += seconds;
    r->result->step = done;
    r->result->skipped = rank->scaler.skipped;
    r->result->loss_scale = rank->scaler.scale;
}

/* The first rank: is one that others wait for to be told? */
static void look_for_slow(const run *r, saved *s, double seconds, const sheaf_event_rank *spent)
{
    sheaf_text text = { 0 };
    sheaf__slow_step(&text, &s->slow, spent, r->options->tp * r->options->dp, seconds,
                     sheaf__process_count() > 1 ? sheaf__process_host : NULL);
    if (text.at != NULL)
        sheaf_warn(r->hooks->events, "%s", text.at);
    sheaf__text_release(&text);
}

/* A step, and what it took every rank; told by the first. */
static sheaf_status *take_step(run *r, sheaf__rank *rank, sheaf_comm *comm, saved *s, int64_t done,
                               double lr)
{
    sheaf_event_rank spent[SHEAF_MAX_SLICES];
    sheaf__step_result step;
    const double began = sheaf__seconds();
    sheaf__spent_begin(&s->spent);
    sheaf_status *st = sheaf__stepper_run(&step, rank->stepper, done, lr);
    if (st != NULL)
        return st;
    sheaf__spent_end(&spent[sheaf_comm_rank(comm)], &s->spent);
    const double seconds = sheaf__seconds() - began;
    st = sheaf__spent_share(spent, s->spent.grid);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        report(r, rank, &step, done + 1, lr, seconds, spent);
        look_for_slow(r, s, seconds, spent);
    }
    return st;
}

/* What the whole run took. */
static sheaf_status *account(run *r, sheaf_comm *comm, saved *s)
{
    sheaf__spent_all *list = NULL;
    sheaf_status *st = sheaf__spent_gather(&list, &s->spent);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        r->result->rank = list;
        r->result->ranks = sheaf_comm_ranks(comm);
        list = NULL;
    }
    free(list);
    return st;
}

/* Signals, and the end of a time, reach one rank first: all must decide alike. */
static sheaf_status *asked(const run *r, sheaf_comm *comm, bool *to_save, bool *to_stop)
{
    const int bits = sheaf_signals_poll(r->hooks->signals) | (is_over(r) ? SHEAF_SIGNAL_STOP : 0);
    int save_flag = (bits & SHEAF_SIGNAL_SAVE) != 0, stop_flag = (bits & SHEAF_SIGNAL_STOP) != 0;
    sheaf_status *st = sheaf_comm_any(comm, &save_flag);
    if (st == NULL)
        st = sheaf_comm_any(comm, &stop_flag);
    *to_save = save_flag != 0;
    *to_stop = stop_flag != 0;
    return st;
}

/* Rank 0 writes, the others wait: with --export-every what was trained so far, in the form of the
 * result. */
static sheaf_status *export_step(const run *r, sheaf_comm *comm, int64_t done, bool only_missing)
{
    sheaf_status *st = NULL;
    sheaf__doing_phase(sheaf_comm_doing(comm), "exporting");
    if (sheaf_comm_rank(comm) == 0)
        st = sheaf__export_step(r->options, r->opened, done, only_missing, r->hooks->events);
    return sheaf_comm_agree(comm, st);
}

static sheaf_status *tell_best(const run *r, sheaf_comm *comm, const saved *s)
{
    return sheaf_comm_agree(
        comm, sheaf_comm_rank(comm) == 0 ? sheaf__judged_write(&s->judged, r->options->out) : NULL);
}

static bool evaluation_due(const run *r, const saved *s, int64_t done)
{
    return sheaf__evaluates(r->options) && is_due(r->options->eval_every, done) &&
           s->judged.last < done;
}

/* A stop came in the way of the evaluation that was due when this step was saved: its checkpoint
 * becomes that of a run which was not stopped. */
static sheaf_status *make_up(verdict *out, run *r, sheaf__rank *rank, sheaf_checkpoints *store,
                             sheaf_comm *comm, saved *s, int64_t done)
{
    sheaf_status *st = evaluate(out, r, rank, comm, &s->judged, done);
    if (st != NULL || out->stopped)
        return st;
    sheaf_checkpoints_replace(store, done);
    st = save(r, store, comm, s, done);
    sheaf_checkpoints_replace(store, 0);
    return st == NULL && out->best ? tell_best(r, comm, s) : st;
}

static sheaf_status *loop(run *r, sheaf__rank *rank, sheaf_checkpoints *store, sheaf_comm *comm,
                          saved *s, int64_t done)
{
    const sheaf_train_options *o = r->options;
    const sheaf_schedule schedule = sheaf_train_options_schedule(o);
    int64_t saved_at = done > 0 ? done : -1;
    bool stop = false;
    verdict found = { 0 };
    sheaf_status *st = is_due(o->export_every, done) ? export_step(r, comm, done, true) : NULL;
    if (st == NULL && evaluation_due(r, s, done))
        st = make_up(&found, r, rank, store, comm, s, done);
    stop = found.stopped;
    while (done < o->steps && !stop && !out_of_patience(r, &s->judged) && st == NULL) {
        const double lr = /* a step that is skipped does not count */
            sheaf_schedule_rate(&schedule, o->lr, done - rank->scaler.skipped);
        bool save_now = false;
        st = take_step(r, rank, comm, s, done, lr);
        if (st != NULL) {
            if (sheaf_status_code(st) != SHEAF_E_NUMBER) /* which names the step itself */
                st = sheaf_in(st, "step %" PRId64, done + 1);
            break;
        }
        done++;
        found = (verdict){ 0 };
        if (evaluation_due(r, s, done))
            st = evaluate(&found, r, rank, comm, &s->judged, done);
        if (st == NULL)
            st = asked(r, comm, &save_now, &stop);
        stop = stop || found.stopped;
        if (st == NULL && (save_now || stop || found.best || is_due(o->save_every, done) ||
                           is_due(o->export_every, done))) {
            st = save(r, store, comm, s, done);
            saved_at = done;
        }
        if (st == NULL && found.best)
            st = tell_best(r, comm, s);
        if (st == NULL && is_due(o->export_every, done))
            st = export_step(r, comm, done, false);
    }
    if (st == NULL && saved_at != done)
        st = save(r, store, comm, s, done);
    if (st == NULL && stop && (done < o->steps || found.stopped) && !out_of_patience(r, &s->judged))
        return stopped(r, done);
    return st == NULL ? evaluate_end(r, rank, comm, s, done) : st;
}

/* The share is PEFT's: of base and adapter together. */
static void note_trained(const run *r, const sheaf__model *model)
{
    sheaf_train_result *out = r->result;
    out->parameters = sheaf__parameters(model->schema);
    sheaf__count_trained(&out->trained, &out->added, model);
    const int64_t all = out->parameters + out->added;
    sheaf_note(r->hooks->events,
               "%" PRId64 " of %" PRId64 " parameters are trained (%.4g %%), %.4g MiB in float32",
               out->trained, all, 100 * (double)out->trained / (double)all,
               (double)out->trained * 4 / 1048576);
}

static void note_padding(const run *r)
{
    const sheaf_train_options *o = r->options;
    const double samples = (double)o->steps * (double)o->accumulate * (double)o->micro_batch;
    r->result->padding =
        sheaf__subset_padding(&r->job.train, o, samples < 1e15 ? (int64_t)samples : 0);
    if (r->result->padding >= 0.0005)
        sheaf_note(r->hooks->events,
                   "%.1f %% of the positions are padding: rows are as long as the longest of %s",
                   100 * r->result->padding,
                   o->padding == SHEAF_PAD_MICRO_BATCH ? "their micro-batch" : "all data");
}

static void note_sets(const run *r)
{
    const sheaf_train_options *o = r->options;
    const int64_t rows = sheaf__subset_rows(&r->job.train);
    if (o->epochs > 0)
        sheaf_note(r->hooks->events, "%.6g epochs of %" PRId64 " rows are %" PRId64 " steps",
                   o->epochs, rows, o->steps);
    if (r->job.eval.row != NULL)
        sheaf_note(r->hooks->events, "%" PRId64 " of %" PRId64 " rows are held out for evaluation",
                   sheaf__subset_rows(&r->job.eval), sheaf_data_rows(r->job.eval.data));
}

/* The base is loaded: what nobody had to read is hashed too, and then all ranks know what the run
 * begins from. */
static sheaf_status *know_origin(run *r, sheaf_comm *comm, sheaf_status *st)
{
    const bool alone = sheaf__process_count() > 1; /* it knows what it read itself */
    if (st == NULL)
        st = sheaf__hashed_rest(r->opened->hashed);
    st = sheaf_comm_agree(comm, st);
    if (st == NULL && (alone || sheaf_comm_rank(comm) == 0)) {
        st = sheaf__origin_end(&r->origin);
        if (st == NULL)
            st = sheaf__origin_text(&r->origin_text, &r->origin);
        sheaf__hashed_stop(r->opened->hashed);
    }
    st = sheaf_comm_agree(comm, st);
    return st == NULL ? sheaf__alike_weights(&r->origin) : st;
}

/* Rank 0, where there is a checkpoint to go on from, none yet, or a new run begins. */
static sheaf_status *tell_origin(run *r, bool from)
{
    char *record = NULL;
    sheaf_status *st =
        r->options->resume && !from ? sheaf__origin_check_known(&r->origin, &of_resume) : NULL;
    if (st == NULL && r->hooks->base != NULL)
        st = sheaf__origin_record(&record, &r->origin);
    if (st == NULL && r->hooks->base != NULL)
        st = r->hooks->base(r->hooks->self, record);
    if (st == NULL && from && atomic_load(&r->weak))
        sheaf_note(
            r->hooks->events,
            "this run began with an older sheaf, whose checkpoints tell a base by the first and last row of its tensors: "
            "that these are the same was checked, the rest was not; from the next checkpoint on all of it is");
    free(record);
    return st;
}

/* Group s mod D writes slice s, which of a state that is divided it alone has. */
static const int *choose_writers(int writer[SHEAF_MAX_SLICES], const sheaf_train_options *o)
{
    for (int s = 0; s < o->slices; s++)
        writer[s] = s % o->dp * o->tp + sheaf_owner_rank(o->slices, o->tp, s);
    return o->dp > 1 ? writer : NULL;
}

static sheaf_status *train_rank(void *arg, const sheaf__grid *grid)
{
    run *r = arg;
    sheaf_comm *const comm = grid->all;
    const sheaf_train_options *o = r->options;
    const int me = sheaf_comm_rank(comm);
    sheaf_checkpoints *store = NULL;
    sheaf_checkpoint *from = NULL;
    sheaf__rank rank = { 0 };
    saved s = { 0 };
    int64_t done = 0;
    bool begun = o->resume;
    int writer[SHEAF_MAX_SLICES];
    const sheaf_checkpoints_options how = { .keep = (int)o->keep,
                                            .writer = choose_writers(writer, o),
                                            .collected = r->apart ? CARRIED : 0,
                                            .events = me == 0 ? r->hooks->events : NULL };
    sheaf_status *st = sheaf_checkpoints_open(&store, comm, o->out, &how);
    if (st != NULL)
        goto done;
    if (me == 0)
        sheaf__out_sweep(&r->folder);
    sheaf__doing_phase(sheaf_comm_doing(comm), "loading");
    st = sheaf__rank_open(&rank, SHEAF_CPU, grid, me, &r->job);
    rank.context.doing = sheaf_comm_doing(comm);
    if (st == NULL)
        st = saved_init(&s, &rank, o, r->contract);
    sheaf__spent_open(&s.spent, &rank, grid);
    s.slow.window = SILENCES * o->heartbeat;
    if ((st = know_origin(r, comm, st)) != NULL)
        goto done;
    if (o->resume)
        st = sheaf_checkpoints_load_latest(&from, store, comm, &s.state, is_ours,
                                           &(look){ r, store, &s.judged, &rank.scaler });
    if (st != NULL)
        goto done;
    if (from != NULL) {
        done = sheaf_checkpoint_step(from);
        if ((st = sheaf__trained_publish(rank.model->trained)) != NULL)
            goto done;
        sheaf__model_refresh(rank.model);
    }
    begun = true;
    if (me == 0) {
        note_trained(r, rank.model);
        note_padding(r);
        r->result->first = r->result->step = done;
        st = tell_origin(r, from != NULL);
        if (st == NULL && r->hooks->begin != NULL)
            st = r->hooks->begin(r->hooks->self, done, s.judged.last);
        if (st == NULL && sheaf__evaluates(o))
            st = sheaf__judged_write(&s.judged, o->out);
        if (st == NULL && o->resume)
            sheaf_note(r->hooks->events,
                       from == NULL ? "no checkpoint yet: starting from the base model"
                                    : "going on after step %lld",
                       (long long)done);
    }
    st = sheaf_comm_agree(comm, st);
    if (st == NULL)
        st = loop(r, &rank, store, comm, &s, done);
    if (st == NULL)
        st = account(r, comm, &s);
done:
    saved_release(&s);
    sheaf__rank_close(&rank);
    sheaf_checkpoint_close(from);
    if (st != NULL && me == 0 && store != NULL && !begun && !r->folder.anew)
        sheaf__out_leave_no_trace(&r->folder);
    sheaf_checkpoints_close(store);
    return st;
}

/* ---- the whole run ---- */

static sheaf_status *check_job(const run *r)
{
    const sheaf_train_options *o = r->options;
    const int processes = o->transport == SHEAF_TRANSPORT_MPI ? o->tp * o->dp : 1;
    if (processes == sheaf__process_count())
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--tp %d, --dp %d", o->tp, o->dp);
    sheaf_expected(st, "%d process%s, one for each rank", processes, processes == 1 ? "" : "es");
    sheaf_found(st, "%d", sheaf__process_count());
    return sheaf_try_this(st, "start as many with mpirun -n or srun -n, or none: with --transport "
                              "mpi sheaf starts them itself");
}

/* What a run is made of, from its flags. */
typedef struct ingredients {
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf__sets sets;
} ingredients;

static sheaf_status *open_model(ingredients *in, const sheaf_train_options *o,
                                const sheaf_events *events)
{
    sheaf__open_options how = { 0 };
    sheaf_status *st = sheaf__train_options_open(&how, &in->fresh, o);
    how.for_training = how.hashed = true;
    how.events = events;
    if (st == NULL)
        st = sheaf__open_model(&in->opened, &how);
    if (st == NULL)
        st = sheaf__select(&in->selection, in->opened.schema, in->opened.lora, o, events);
    if (st == NULL && in->opened.lora != NULL)
        st = sheaf_lora_save_also(in->opened.lora, in->opened.schema, sheaf__selected,
                                  &in->selection);
    return st;
}

/* The first process reads the data, and what it tokenised is there for the others. */
static sheaf_status *open_sets(ingredients *in, const sheaf_train_options *o,
                               const sheaf_train_hooks *hooks)
{
    const atomic_int *stop = hooks->signals == NULL ? NULL : &hooks->signals->stop;
    const bool first = sheaf__process_first();
    sheaf_status *st = NULL;
    if (first)
        st = sheaf__sets_open(&in->sets, o, &in->opened.config, hooks->events, stop);
    st = sheaf__process_agree(st);
    if (st == NULL && !first)
        st = sheaf__sets_open(&in->sets, o, &in->opened.config, hooks->events, stop);
    return sheaf__process_agree(st);
}

/* Do hosts have a disk each? */
static sheaf_status *look_at_out(run *r)
{
    const char *out = r->options->out;
    int blind = -1;
    if (sheaf__process_count() == 1)
        return NULL;
    sheaf_status *st = sheaf__out_shared(&blind, sheaf__process_all(), out, SEEN_WITHIN);
    r->apart = blind >= 0;
    if (st == NULL && r->apart)
        sheaf_note(
            r->hooks->events,
            "host %s does not see %s of %s: the first process keeps there all that is saved, "
            "and the others give it their parts",
            sheaf__process_host(blind), out, sheaf__process_host(0));
    return st;
}

/* All that decides about the run is known: what it needs is asked for, and OUT is written. */
static sheaf_status *prepare(run *r, const ingredients *in, const char *recipe)
{
    const sheaf_train_options *o = r->options;
    const sheaf_train_hooks *hooks = r->hooks;
    bool pads = false;
    sheaf_status *st = hooks->planned == NULL ? NULL : hooks->planned(hooks->self, &r->job);
    if (st == NULL)
        st = sheaf__pads(&pads, &r->job, in->sets.data);
    r->contract = sheaf__contract_of(&r->job, pads);
    if (st == NULL && hooks->chosen != NULL)
        st = hooks->chosen(hooks->self, sheaf_data_template(in->sets.data), &r->settings, &recipe);
    if (st == NULL)
        st = sheaf__origin_begin(
            &r->origin, &in->opened,
            &(sheaf__origin_from){ .model = o->model, .tokenizer = o->tokenizer, .out = o->out });
    st = sheaf__process_agree(st);
    if (st == NULL)
        st = sheaf__alike_begin(&(sheaf__alike_of){ .options = o,
                                                    .settings = r->settings,
                                                    .contract = r->contract,
                                                    .origin = &r->origin,
                                                    .sets = &in->sets,
                                                    .events = hooks->events });
    if (st == NULL && sheaf__process_first())
        st = sheaf__out_prepare(&r->folder, recipe);
    return sheaf__process_agree(st);
}

static sheaf_status *grid_rank(void *context, const sheaf__grid *grid)
{
    const run *r = context;
    const int number = sheaf__process_count() > 1 ? 0 : sheaf_comm_rank(grid->all);
    sheaf__doing *doing = r->hooks->doing == NULL ? NULL : &r->hooks->doing[number];
    sheaf__injected *injected = NULL;
    sheaf__doing_here(doing);
    sheaf__grid_tell(grid, doing);
    sheaf_status *st = r->options->inject == NULL || r->options->inject[0] == '\0'
                           ? NULL
                           : sheaf__inject(&injected, grid, r->options->inject);
    if (st == NULL)
        st = train_rank(context, grid);
    sheaf__injected_free(injected);
    return st;
}

sheaf_status *sheaf_train(sheaf_train_result *out, const sheaf_train_options *asked_for,
                          const char *settings, const char *recipe, const sheaf_train_hooks *hooks)
{
    static const sheaf_train_hooks none = { 0 };
    *out = (sheaf_train_result){ 0 };
    hooks = hooks == NULL ? &none : hooks;
    ingredients in = { 0 };
    sheaf_train_options with = *asked_for; /* and the steps that --epochs comes to */
    const sheaf_train_options *o = &with;
    const bool first = sheaf__process_first();
    run r = { .options = o,
              .hooks = hooks,
              .settings = settings,
              .opened = &in.opened,
              .result = out,
              .began = sheaf__seconds(),
              .folder = { .options = o, .events = hooks->events } };
    sheaf_status *st = check_job(&r);
    if (st == NULL && first)
        st = sheaf__out_check(&r.folder);
    st = sheaf__process_agree(st);
    if (st == NULL)
        st = look_at_out(&r);
    if (st == NULL)
        st = sheaf__process_agree(open_model(&in, o, hooks->events));
    if (st == NULL)
        st = open_sets(&in, o, hooks);
    if (st == NULL) {
        with.steps = sheaf__sets_steps(&in.sets, o);
        r.job = (sheaf__job){ .options = o,
                              .schema = in.opened.schema,
                              .lora = in.opened.lora,
                              .selection = &in.selection,
                              .train = in.sets.train,
                              .eval = in.sets.eval,
                              .seq = sheaf__subset_seq(&in.sets.train, o->padding),
                              .data_bytes = sheaf__sets_memory(&in.sets) };
        note_sets(&r);
        st = prepare(&r, &in, recipe);
    }
    if (st == NULL) {
        r.job.base = in.opened.weights;
        r.job.adapter = in.opened.adapter;
        sheaf__balance_note(in.opened.schema, o->tp, hooks->events);
        sheaf__process_settle(o->threads, hooks->events);
        st = sheaf__grid_run(
            &(sheaf__grid_options){ .transport = o->transport, .groups = o->dp, .ranks = o->tp },
            grid_rank, &r);
    }
    if (st == NULL && first)
        st = sheaf__export(&out->result, &out->checkpoint, o, &in.opened, out->step,
                           o->use_best && out->best_step > 0 ? out->best_step : out->step,
                           hooks->events);
    st = sheaf__process_agree(st);
    free(r.origin_text);
    sheaf__origin_release(&r.origin);
    sheaf__sets_close(&in.sets);
    sheaf__selection_release(&in.selection);
    sheaf_lora_options_release(&in.fresh);
    sheaf__opened_close(&in.opened);
    return st;
}

void sheaf_train_result_release(sheaf_train_result *result)
{
    free(result->result);
    free(result->checkpoint);
    free(result->rank);
    *result = (sheaf_train_result){ 0 };
}
