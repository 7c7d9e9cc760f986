/* saved.c - what a checkpoint of a run holds; see run.h. */
#include "base/base.h"
#include "base/clock.h"
#include "comm/doing.h"
#include "train/bad.h"
#include "train/run.h"

void sheaf__saved_release(sheaf__saved *s)
{
    for (int64_t i = 0; s->name != NULL && i < s->state.count; i++)
        free(s->name[i]);
    free(s->name);
    free(s->tensor);
    free((char *)s->state.progress);
    *s = (sheaf__saved){ 0 };
}

sheaf_status *sheaf__saved_init(sheaf__saved *s, const sheaf__rank *rank,
                                const sheaf_train_options *o, int contract)
{
    const sheaf__trained_set *set = rank->model->trained;
    static const char *const group[3] = { "master", "exp_avg", "exp_avg_sq" };
    *s = (sheaf__saved){
        .scaler = &rank->scaler,
        .trained = set,
        .state = { .slices = o->slices, .contract = contract, .count = 3 * (int64_t)set->count }
    };
    s->tensor = calloc((size_t)s->state.count + 1, sizeof *s->tensor);
    s->name = calloc((size_t)s->state.count + 1, sizeof *s->name);
    if (s->tensor == NULL || s->name == NULL)
        return sheaf__no_memory("list of what is saved");
    for (int i = 0; i < set->count; i++) {
        sheaf__trained *t = set->item[i];
        float **data[3] = { t->master, t->moment1, t->moment2 };
        for (int g = 0; g < 3; g++) {
            const int64_t at = 3 * (int64_t)i + g;
            if (asprintf(&s->name[at], "%s/%s", group[g], t->name) < 0) {
                s->name[at] = NULL;
                return sheaf__no_memory("list of what is saved");
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

const char *sheaf__saved_eval_hash(const sheaf__run *r)
{
    const sheaf__job *job = &r->job;
    const char *path = r->options->eval_data;
    return job->eval.data == NULL || path == NULL || path[0] == '\0'
               ? NULL
               : sheaf_data_hash(job->eval.data);
}

static sheaf_status *progress_text(char **out, const sheaf__run *r, const sheaf__saved *s,
                                   int64_t done)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"step\": %" PRId64 ", \"settings\": ", done);
    sheaf__text_json(&text, r->settings);
    sheaf__text_add(
        &text, ", \"base\": \"%s\", \"origin\": %s, \"data\": \"%s\", \"next_sample\": %" PRId64,
        r->origin.first_and_last, r->origin_text, sheaf_data_hash(r->job.train.data),
        done * r->options->accumulate * r->options->micro_batch);
    if (sheaf__saved_eval_hash(r) != NULL)
        sheaf__text_add(&text, ", \"eval_data\": \"%s\"", sheaf__saved_eval_hash(r));
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

/* What the last update made is looked at by no step yet. Collective. */
static sheaf_status *check_weights(const sheaf__saved *s, sheaf_comm *comm, int64_t done)
{
    const char *name;
    sheaf_status *st = sheaf__bad_trained(&name, s->trained, comm, false);
    if (st != NULL || name == NULL)
        return st;
    st = sheaf_fail(SHEAF_E_NUMBER, "step %" PRId64 ": '%s'", done, name);
    sheaf_found(sheaf_expected(st, "finite numbers"),
                "some that are not, after the update: in it, or in the moments of its gradient");
    return sheaf_try_this(st, "nothing was saved; " SHEAF__BEGIN_ANEW);
}

sheaf_status *sheaf__saved_write(sheaf__run *r, sheaf_checkpoints *store, sheaf_comm *comm,
                                 sheaf__saved *s, int64_t done)
{
    const double began = sheaf__seconds();
    free((char *)s->state.progress);
    s->state.progress = NULL;
    char *text = NULL;
    sheaf__doing_phase(sheaf_comm_doing(comm), "saving");
    sheaf_status *st = check_weights(s, comm, done);
    TRY(st, progress_text(&text, r, s, done));
    s->state.progress = text;
    s->state.step = done;
    sheaf_checkpoints_protect(store, s->judged.best);
    if (st == NULL && sheaf_comm_rank(comm) == 0)
        st = sheaf__out_held(&r->folder);
    if (st == NULL && sheaf_comm_rank(comm) == 0 && r->hooks->before_save != NULL)
        st = r->hooks->before_save(r->hooks->self);
    st = sheaf_comm_agree(comm, st);
    TRY(st, sheaf_checkpoints_save(store, comm, &s->state));
    s->spent.saving += sheaf__seconds() - began;
    return st;
}
