/* info_run.c - what `sheaf info` says of a run: is it running, how far is it, what lies there. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/print.h"
#include "checkpoint/store/step.h"
#include "info_tell.h"
#include "monitor/metrics.h"
#include "base/number.h"

/* ---- checkpoints ---- */

/* What a checkpoint keeps beside its tensors, without an evaluation that there was none of. */
static json_t *progress_of(const char *text)
{
    json_t *progress = json_loads(text, 0, NULL), *judged = json_object_get(progress, "evaluation");
    if (json_integer_value(json_object_get(judged, "best")) > 0)
        return progress;
    if (json_integer_value(json_object_get(judged, "last")) > 0) { /* none was finite */
        json_object_set_new(judged, "best", json_null());
        json_object_set_new(judged, "best_loss", json_null());
    } else {
        json_object_del(progress, "evaluation");
    }
    return progress;
}

void info_checkpoint(info_teller *t, sheaf_checkpoint *c, const char *path)
{
    json_t *progress = progress_of(sheaf_checkpoint_progress(c)),
           *judged = json_object_get(progress, "evaluation");
    info_fact_int(t, "step", sheaf_checkpoint_step(c));
    info_fact_int(t, "slices", sheaf_checkpoint_slices(c));
    info_fact_int(t, "contract", sheaf_checkpoint_contract(c));
    info_trained_by(t, c, path);
    if (t->cli->json) {
        char *text = NULL;
        info_odd(t, sheaf__json_text(&text, progress, JSON_SORT_KEYS));
        if (text != NULL)
            sheaf__json_put_raw(&t->json, "progress", text);
        free(text);
    } else if (json_is_number(json_object_get(judged, "best_loss"))) {
        info_fact_int(t, "best_step", json_integer_value(json_object_get(judged, "best")));
        info_fact_real(t, "best_loss", json_number_value(json_object_get(judged, "best_loss")));
    }
    json_decref(progress);
}

/* The complete checkpoints of a run, and what the newest one says. */
static void tell_saved(info_teller *t, const char *dir, const char *path_of_run)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_text steps = { 0 };
    sheaf_checkpoint *newest = NULL;
    info_odd(t, sheaf__list_dir(&names, &n, dir));
    for (int64_t i = 0; i < n; i++) {
        int64_t step;
        if (!sheaf__step_of(&step, names[i], false))
            continue;
        char *path = NULL;
        sheaf_checkpoint *c = NULL; /* whatever else lies beside its manifest */
        sheaf_status *st = sheaf__path_join(&path, dir, names[i]);
        TRY(st, sheaf_checkpoint_open(&c, path));
        free(path);
        if (st != NULL) {
            info_odd(t, st);
            continue;
        }
        sheaf__text_add(&steps, "%s%" PRId64, steps.size > 0 ? ", " : "", step);
        sheaf_checkpoint_close(newest);
        newest = c;
    }
    if (t->cli->json)
        info_list_of(t, "checkpoints", &steps);
    else
        info_fact(t, "checkpoints", steps.size > 0 ? steps.at : "none");
    if (newest != NULL)
        info_checkpoint(t, newest, path_of_run);
    sheaf_checkpoint_close(newest);
    sheaf__text_release(&steps);
    sheaf__names_free(names, n);
}

/* ---- how far it is ---- */

/* Of the newest start in run.json: how many steps the run has in all; 0: it does not say. */
static int64_t steps_of(const char *path)
{
    json_t *root = NULL;
    char *file = NULL;
    sheaf_status_free(sheaf__path_join(&file, path, "run.json"));
    if (file != NULL && sheaf__path_kind(file) == SHEAF_PATH_FILE)
        sheaf_status_free(sheaf__json_load(&root, file));
    const json_t *runs = json_object_get(root, "runs");
    const size_t n = json_array_size(runs);
    const int64_t steps =
        n == 0 ? 0 : json_integer_value(json_object_get(json_array_get(runs, n - 1), "steps"));
    json_decref(root);
    free(file);
    return steps;
}

static void tell_loss(info_teller *t, const char *key, double loss)
{
    if (isfinite(loss))
        info_fact_real(t, key, loss);
    else
        info_fact(t, key, "not finite");
}

static void tell_last(info_teller *t, const sheaf__metrics_last *m)
{
    char rate[SHEAF__NUMBER + 16];
    if (m->step > 0)
        tell_loss(t, "loss", m->loss);
    if (m->eval_step > 0) {
        info_fact_int(t, "evaluated_at", m->eval_step);
        tell_loss(t, "eval_loss", m->eval_loss);
    }
    if (m->tokens_per_s <= 0)
        return;
    if (t->cli->json) {
        info_fact_real(t, "tokens_per_s", m->tokens_per_s);
        return;
    }
    sheaf__number_rate(rate, m->tokens_per_s);
    info_fact(t, "speed", strcat(rate, " tokens/s"));
}

static void tell_state(info_teller *t, const char *path)
{
    char *file = NULL, left[SHEAF__NUMBER];
    sheaf__metrics_last m = { 0 };
    sheaf_status *st = sheaf__path_join(&file, path, "metrics.jsonl");
    if (st == NULL && sheaf__path_kind(file) == SHEAF_PATH_FILE)
        st = sheaf__metrics_read(&m, file);
    free(file);
    const bool running = sheaf__checkpoints_busy(path);
    const int64_t steps = steps_of(path);
    info_fact(t, "state",
              running                        ? "running"
              : steps > 0 && m.step >= steps ? "done"
                                             : "not running");
    info_fact_int(t, "last_step", m.step);
    if (steps > 0)
        info_fact_int(t, "steps", steps);
    tell_last(t, &m);
    if (running && steps > m.step && m.seconds_per_step > 0) {
        const double seconds = m.seconds_per_step * (double)(steps - m.step);
        if (t->cli->json)
            info_fact_real(t, "seconds_left", seconds);
        else
            info_fact(t, "time_left", sheaf__number_time(left, seconds));
    }
    info_odd(t, st);
}

void info_run(info_teller *t, const char *path)
{
    static const char *const parts[] = { "settings",      "adapter",  "model",    "exports",
                                         "metrics.jsonl", "run.json", "best.json" };
    tell_state(t, path);
    for (size_t i = 0; i <= sizeof parts / sizeof *parts; i++) {
        char *inside = NULL;
        const bool saved = i == sizeof parts / sizeof *parts;
        sheaf_status *st = sheaf__path_join(&inside, path, saved ? "checkpoints" : parts[i]);
        if (st == NULL && saved)
            tell_saved(t, inside, path);
        else if (st == NULL && sheaf__path_kind(inside) != SHEAF_PATH_NONE)
            info_fact(t, parts[i], inside);
        sheaf_status_free(st);
        free(inside);
    }
}

sheaf_status *info_metrics(info_teller *t, const char *path)
{
    sheaf__metrics_last m;
    sheaf_status *st = sheaf__metrics_read(&m, path);
    if (st != NULL && m.step == 0 && m.eval_step == 0)
        return st;
    if (t->cli->json) {
        sheaf__json_open(&t->json, NULL, '{');
        sheaf__json_put_text(&t->json, "path", path);
        sheaf__json_put_text(&t->json, "kind", "metrics");
    } else
        sheaf__print(t->cli->out, "%s: metrics of a run\n", path);
    info_fact_int(t, "last_step", m.step);
    tell_last(t, &m);
    info_odd(t, st);
    info_end(t);
    return NULL;
}
