/* info_run.c - what sheaf_path_info() says of a run: is it running, how far is it, what lies there.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/store/step.h"
#include "library/info.h"
#include "monitor/metrics.h"

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

void sheaf__info_checkpoint(sheaf__info *t, sheaf_checkpoint *c, const char *path)
{
    json_t *progress = progress_of(sheaf_checkpoint_progress(c));
    sheaf__json_put_int(&t->json, "step", sheaf_checkpoint_step(c));
    sheaf__json_put_int(&t->json, "slices", sheaf_checkpoint_slices(c));
    sheaf__json_put_int(&t->json, "contract", sheaf_checkpoint_contract(c));
    sheaf__info_trained_by(t, c, path);
    char *text = NULL;
    sheaf__info_odd(t, sheaf__json_text(&text, progress, JSON_SORT_KEYS));
    if (text != NULL)
        sheaf__json_put_raw(&t->json, "progress", text);
    free(text);
    json_decref(progress);
}

/* The complete checkpoints of a run, and what the newest one says. */
static void put_saved(sheaf__info *t, const char *dir, const char *path_of_run)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_checkpoint *newest = NULL;
    sheaf__info_odd(t, sheaf__list_dir(&names, &n, dir));
    sheaf__json_open(&t->json, "checkpoints", '[');
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
            sheaf__info_odd(t, st);
            continue;
        }
        sheaf__json_put_int(&t->json, NULL, step);
        sheaf_checkpoint_close(newest);
        newest = c;
    }
    sheaf__json_close(&t->json, ']');
    if (newest != NULL)
        sheaf__info_checkpoint(t, newest, path_of_run);
    sheaf_checkpoint_close(newest);
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

static void put_loss(sheaf__info *t, const char *key, double loss)
{
    if (isfinite(loss))
        sheaf__json_put_real(&t->json, key, loss);
    else
        sheaf__json_put_text(&t->json, key, "not finite");
}

static void put_last(sheaf__info *t, const sheaf__metrics_last *m)
{
    if (m->step > 0)
        put_loss(t, "loss", m->loss);
    if (m->eval_step > 0) {
        sheaf__json_put_int(&t->json, "evaluated_at", m->eval_step);
        put_loss(t, "eval_loss", m->eval_loss);
    }
    if (m->tokens_per_s > 0)
        sheaf__json_put_real(&t->json, "tokens_per_s", m->tokens_per_s);
}

static void put_state(sheaf__info *t, const char *path)
{
    char *file = NULL;
    sheaf__metrics_last m = { 0 };
    sheaf_status *st = sheaf__path_join(&file, path, "metrics.jsonl");
    if (st == NULL && sheaf__path_kind(file) == SHEAF_PATH_FILE)
        st = sheaf__metrics_read(&m, file);
    free(file);
    const bool running = sheaf__checkpoints_busy(path);
    const int64_t steps = steps_of(path);
    sheaf__json_put_text(&t->json, "state",
                         running                        ? "running"
                         : steps > 0 && m.step >= steps ? "done"
                                                        : "not running");
    sheaf__json_put_int(&t->json, "last_step", m.step);
    if (steps > 0)
        sheaf__json_put_int(&t->json, "steps", steps);
    put_last(t, &m);
    if (running && steps > m.step && m.seconds_per_step > 0)
        sheaf__json_put_real(&t->json, "seconds_left",
                             m.seconds_per_step * (double)(steps - m.step));
    sheaf__info_odd(t, st);
}

void sheaf__info_run(sheaf__info *t, const char *path)
{
    static const char *const parts[] = { "settings",      "adapter",  "model",    "exports",
                                         "metrics.jsonl", "run.json", "best.json" };
    put_state(t, path);
    for (size_t i = 0; i <= sizeof parts / sizeof *parts; i++) {
        char *inside = NULL;
        const bool saved = i == sizeof parts / sizeof *parts;
        sheaf_status *st = sheaf__path_join(&inside, path, saved ? "checkpoints" : parts[i]);
        if (st == NULL && saved)
            put_saved(t, inside, path);
        else if (st == NULL && sheaf__path_kind(inside) != SHEAF_PATH_NONE)
            sheaf__json_put_text(&t->json, parts[i], inside);
        sheaf_status_free(st);
        free(inside);
    }
}

sheaf_status *sheaf__info_metrics(sheaf__info *t, const char *path)
{
    sheaf__metrics_last m;
    sheaf_status *st = sheaf__metrics_read(&m, path);
    if (st != NULL && m.step == 0 && m.eval_step == 0)
        return st;
    sheaf__json_put_text(&t->json, "path", path);
    sheaf__json_put_text(&t->json, "kind", "metrics");
    sheaf__json_put_int(&t->json, "last_step", m.step);
    put_last(t, &m);
    sheaf__info_odd(t, st);
    return NULL;
}
