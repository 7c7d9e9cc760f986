/* run_state.c - saves the state of a run and resumes from it; see run.h. */
#include <math.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "comm/activity.h"
#include "train/bad.h"
#include "train/run.h"

/* ---- evaluations ---- */

bool sheaf__eval_state_add(sheaf__eval_state *j, int64_t step, double loss, double min_delta)
{
    const bool better = isfinite(loss) && (j->best == 0 || loss < j->best_loss),
               clearly = better && (j->best == 0 || j->best_loss - loss > min_delta);
    j->last = step;
    j->worse = clearly ? 0 : j->worse + 1;
    if (better) {
        j->best = step;
        j->best_loss = loss;
    }
    return better;
}

void sheaf__eval_state_text(sheaf_text *text, const sheaf__eval_state *j)
{
    sheaf__text_add(text,
                    "{\"last\": %" PRId64 ", \"best\": %" PRId64 ", \"best_loss\": %.17g, "
                    "\"worse\": %" PRId64 "}",
                    j->last, j->best, j->best_loss, j->worse);
}

void sheaf__eval_state_read(sheaf__eval_state *out, const json_t *object)
{
    *out =
        (sheaf__eval_state){ .last = json_integer_value(json_object_get(object, "last")),
                             .best = json_integer_value(json_object_get(object, "best")),
                             .best_loss = json_number_value(json_object_get(object, "best_loss")),
                             .worse = json_integer_value(json_object_get(object, "worse")) };
}

sheaf_status *sheaf__eval_state_write(const sheaf__eval_state *j, const char *out)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_text text = { 0 };
    sheaf__path_in(path, out, "best.json");
    sheaf__text_add(&text,
                    "{\"step\": %" PRId64 ", \"eval_loss\": %.17g, "
                    "\"checkpoint\": \"checkpoints/step-%08" PRId64 "\"}\n",
                    j->best, j->best_loss, j->best);
    sheaf_status *st = text.failed ? sheaf__no_memory(path) : NULL;
    if (st == NULL && j->best == 0)
        remove(path); /* of steps that will be done again */
    else if (st == NULL)
        st = sheaf__file_write_whole(path, text.at, text.size);
    sheaf__text_release(&text);
    return st;
}

/* ---- saving ---- */

void sheaf__run_state_release(sheaf__run_state *s)
{
    for (int64_t i = 0; s->name != NULL && i < s->state.count; i++)
        free(s->name[i]);
    free(s->name);
    free(s->tensor);
    free((char *)s->state.progress);
    *s = (sheaf__run_state){ 0 };
}

/* Adds what is saved of `t` as "GROUP/NAME". */
static sheaf_status *save_as(sheaf__run_state *s, sheaf_state_group group, const sheaf__trained *t,
                             sheaf_state_tensor how)
{
    const int64_t at = s->state.count;
    if (asprintf(&s->name[at], "%s/%s", sheaf__state_groups[group], t->name) < 0) {
        s->name[at] = NULL;
        return sheaf__no_memory("list of saved tensors");
    }
    how.name = s->name[at];
    s->tensor[at] = how;
    s->state.count++;
    return NULL;
}

static sheaf_status *save_eight(sheaf__run_state *s, const sheaf__trained *t,
                                sheaf_state_tensor codes)
{
    const bool cut = codes.cut != NULL;
    sheaf_state_tensor scales = { .ndim = 1,
                                  .shape = { (cut ? t->cut.slices : 1) * t->blocks, 1 },
                                  .cut = cut ? &t->blocks_cut : NULL };
    codes.dtype = SHEAF_U8;
    codes.slice = (float *const *)t->code1;
    sheaf_status *st = save_as(s, SHEAF_STATE_MOMENT1, t, codes);
    codes.slice = (float *const *)t->code2;
    TRY(st, save_as(s, SHEAF_STATE_MOMENT2, t, codes));
    scales.slice = t->absmax1;
    TRY(st, save_as(s, SHEAF_STATE_SCALES1, t, scales));
    scales.slice = t->absmax2;
    return TRY(st, save_as(s, SHEAF_STATE_SCALES2, t, scales));
}

static sheaf_status *save_tensor(sheaf__run_state *s, const sheaf__trained *t)
{
    sheaf_state_tensor of = { .ndim = t->ndim,
                              .shape = { t->shape[0], t->shape[1] },
                              .cut = t->cut.nparts == 0 ? NULL : &t->cut,
                              .slice = t->master };
    sheaf_status *st = save_as(s, SHEAF_STATE_MASTER, t, of);
    if (t->eight)
        return TRY(st, save_eight(s, t, of));
    of.slice = t->moment1;
    TRY(st, save_as(s, SHEAF_STATE_MOMENT1, t, of));
    of.slice = t->moment2;
    return TRY(st, save_as(s, SHEAF_STATE_MOMENT2, t, of));
}

sheaf_status *sheaf__run_state_init(sheaf__run_state *s, const sheaf__rank *rank,
                                    const sheaf_train_options *o)
{
    const sheaf__trained_set *set = rank->model->trained;
    sheaf_status *st = NULL;
    *s = (sheaf__run_state){ .scaler = &rank->scaler,
                             .trained = set,
                             .state = { .slices = o->slices, .device = rank->device } };
    s->tensor = calloc(SHEAF_STATE_GROUPS * (size_t)set->count + 1, sizeof *s->tensor);
    s->name = calloc(SHEAF_STATE_GROUPS * (size_t)set->count + 1, sizeof *s->name);
    if (s->tensor == NULL || s->name == NULL)
        return sheaf__no_memory("list of saved tensors");
    for (int i = 0; i < set->count && st == NULL; i++)
        st = save_tensor(s, set->item[i]);
    s->state.tensor = s->tensor;
    return st;
}

const char *sheaf__run_state_eval_hash(const sheaf__run *r)
{
    const sheaf__job *job = &r->job;
    const char *path = r->options->eval_data;
    return job->eval.data == NULL || path == NULL || path[0] == '\0'
               ? NULL
               : sheaf_data_hash(job->eval.data);
}

static sheaf_status *progress_text(char **out, const sheaf__run *r, const sheaf__run_state *s,
                                   int64_t done)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"step\": %" PRId64 ", \"settings\": ", done);
    sheaf__text_json(&text, r->settings);
    sheaf__text_add(
        &text, ", \"base\": \"%s\", \"origin\": %s, \"data\": \"%s\", \"next_sample\": %" PRId64,
        r->origin.first_and_last, r->origin_text, sheaf_data_hash(r->job.train.data),
        done * r->options->accumulate * r->options->micro_batch);
    if (sheaf__run_state_eval_hash(r) != NULL)
        sheaf__text_add(&text, ", \"eval_data\": \"%s\"", sheaf__run_state_eval_hash(r));
    if (sheaf__evaluates(r->options)) {
        sheaf__text_add(&text, ", \"evaluation\": ");
        sheaf__eval_state_text(&text, &s->evals);
    }
    if (r->options->dtype == SHEAF_F16) {
        sheaf__text_add(&text, ", \"loss_scale\": ");
        sheaf__scaler_text(&text, s->scaler);
    }
    sheaf__text_add(&text, "}");
    return sheaf_in(sheaf__text_take(out, &text), "progress of the run");
}

/* No later step has checked the last update yet. Collective. */
static sheaf_status *check_weights(const sheaf__run_state *s, sheaf_comm *comm, int64_t done)
{
    const char *name;
    sheaf_status *st = sheaf__bad_trained(&name, s->trained, comm, false);
    if (st != NULL || name == NULL)
        return sheaf_in(st, "saving step %" PRId64, done);
    st = sheaf_fail(SHEAF_E_NUMBER, "step %" PRId64 ": '%s'", done, name);
    sheaf_found(sheaf_expected(st, "finite numbers"),
                "some that are not, after the update: in it, or in the moments of its gradient");
    return sheaf_try_this(st, "nothing was saved; " SHEAF__BEGIN_ANEW);
}

sheaf_status *sheaf__run_state_write(sheaf__run *r, sheaf_checkpoints *store, sheaf_comm *comm,
                                     sheaf__run_state *s, int64_t done)
{
    const double began = sheaf__seconds();
    free((char *)s->state.progress);
    s->state.progress = NULL;
    char *text = NULL;
    sheaf__activity_phase(sheaf_comm_activity(comm), "saving");
    sheaf_status *st = check_weights(s, comm, done);
    TRY(st, progress_text(&text, r, s, done));
    s->state.progress = text;
    s->state.step = done;
    sheaf_checkpoints_protect(store, s->evals.best);
    if (st == NULL && sheaf_comm_rank(comm) == 0)
        st = sheaf__out_check_held(&r->folder);
    if (st == NULL && sheaf_comm_rank(comm) == 0 && r->hooks->before_save != NULL)
        st = r->hooks->before_save(r->hooks->self);
    st = sheaf_comm_agree(comm, st);
    TRY(st, sheaf_checkpoints_save(store, comm, &s->state));
    s->usage.saving += sheaf__seconds() - began;
    return st;
}

/* ---- resuming ---- */

static const sheaf__origin_words of_resume = {
    .code = SHEAF_E_ARG,
    .what = "`resume`: the base model",
    .began = "with which this run began",
    .cure = "give the original, or start a new run with another `out`",
};

/* now_is NULL: absent now. */
static sheaf_status *same_data(const json_t *progress, const char *key, const char *what,
                               const char *now_is)
{
    const char *was = json_string_value(json_object_get(progress, key));
    if (was == NULL ? now_is == NULL : now_is != NULL && strcmp(was, now_is) == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`resume`: %s", what);
    sheaf_expected(st, "%s%s", was == NULL ? "none" : "the one this run began with, of hash ",
                   was == NULL ? "" : was);
    sheaf_found(st, "%s", now_is == NULL ? "none" : now_is);
    return sheaf_try_this(st, "give the original, or start a new run with another `out`");
}

static sheaf_status *differ(const char *was, const char *is)
{
    static const char began[] = "those this run began with";
    sheaf__line_change d;
    if (!sheaf__lines_differ(&d, was, is, ':'))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`resume`: the settings");
    if (d.was == NULL)
        sheaf_expected(st, "%s: no %.*s", began, (int)d.key, d.line);
    else
        sheaf_expected(st, "%s: %.*s: %.*s", began, (int)d.key, d.line, sheaf__line_size(d.was),
                       d.was);
    return d.is == NULL ? sheaf_found(st, "none")
                        : sheaf_found(st, "others: %.*s: %.*s", (int)d.key, d.line,
                                      sheaf__line_size(d.is), d.is);
}

/* The search of one rank for the run's checkpoint. */
typedef struct look {
    sheaf__run *r;
    sheaf_checkpoints *store;
    sheaf__eval_state *evals; /* out: state of evaluations */
    sheaf__scaler *scaler;    /* out: scale of the loss */
} look;

/* Is it a checkpoint of this run? */
static sheaf_status *is_ours(void *arg, const sheaf_checkpoint *from)
{
    const look *l = arg;
    sheaf__run *r = l->r;
    json_t *progress = NULL;
    sheaf_status *st = sheaf__progress_of(&progress, from);
    if (st != NULL)
        return st;
    const char *settings = json_string_value(json_object_get(progress, "settings"));
    st = sheaf__origin_check(&r->origin, progress, &of_resume);
    TRY(st, same_data(progress, "data", "the data", sheaf_data_hash(r->job.train.data)));
    TRY(st,
        same_data(progress, "eval_data", "the data of evaluations", sheaf__run_state_eval_hash(r)));
    TRY(st, differ(settings, r->settings));
    sheaf__eval_state_read(l->evals, json_object_get(progress, "evaluation"));
    sheaf__scaler_read(l->scaler, json_object_get(progress, "loss_scale"));
    sheaf_checkpoints_protect(l->store, l->evals->best);
    json_decref(progress);
    return st;
}

sheaf_status *sheaf__resume_from(sheaf_checkpoint **from, sheaf__run *r, sheaf_checkpoints *store,
                                 sheaf_comm *comm, sheaf__rank *rank, sheaf__run_state *s)
{
    return sheaf_checkpoints_load_latest(from, store, comm, &s->state, is_ours,
                                         &(look){ r, store, &s->evals, &rank->scaler });
}

sheaf_status *sheaf__resume_check_base(const sheaf__run *r)
{
    return sheaf__origin_check(&r->origin, NULL, &of_resume);
}
