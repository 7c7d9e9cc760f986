/* resume.c - a run that goes on from a checkpoint; see run.h. */
#include "base/base.h"
#include "base/json.h"
#include "train/origin.h"
#include "train/run.h"

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
    sheaf_expected(st, "%s%s", was == NULL ? "none" : "the one this run began with, of hash ",
                   was == NULL ? "" : was);
    sheaf_found(st, "%s", now_is == NULL ? "none" : now_is);
    return sheaf_try_this(st, "give the original, or start a new run with another --out");
}

static sheaf_status *same_settings(const char *was, const char *is)
{
    static const char began[] = "those this run began with";
    sheaf__line_change d;
    if (!sheaf__lines_differ(&d, was == NULL ? "" : was, is, ':'))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--resume: the settings");
    if (d.was == NULL)
        sheaf_expected(st, "%s: no %.*s", began, (int)d.key, d.line);
    else
        sheaf_expected(st, "%s: %.*s: %.*s", began, (int)d.key, d.line, sheaf__line_size(d.was),
                       d.was);
    return d.is == NULL ? sheaf_found(st, "none")
                        : sheaf_found(st, "others: %.*s: %.*s", (int)d.key, d.line,
                                      sheaf__line_size(d.is), d.is);
}

/* A run that looks for its checkpoint on one rank. */
typedef struct look {
    sheaf__run *r;
    sheaf_checkpoints *store;
    sheaf__judged *judged; /* out: what it says of evaluations */
    sheaf__scaler *scaler; /* out: and of the scale of the loss */
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
    TRY(st, same_data(progress, "eval_data", "the data of evaluations", sheaf__saved_eval_hash(r)));
    TRY(st, same_settings(settings, r->settings));
    sheaf__judged_read(l->judged, json_object_get(progress, "evaluation"));
    sheaf__scaler_read(l->scaler, json_object_get(progress, "loss_scale"));
    sheaf_checkpoints_protect(l->store, l->judged->best);
    json_decref(progress);
    return st;
}

sheaf_status *sheaf__resume_from(sheaf_checkpoint **from, sheaf__run *r, sheaf_checkpoints *store,
                                 sheaf_comm *comm, sheaf__rank *rank, sheaf__saved *s)
{
    return sheaf_checkpoints_load_latest(from, store, comm, &s->state, is_ours,
                                         &(look){ r, store, &s->judged, &rank->scaler });
}

sheaf_status *sheaf__resume_known(const sheaf__run *r)
{
    return sheaf__origin_check_known(&r->origin, &of_resume);
}
