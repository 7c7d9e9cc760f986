/* time.c - see time.h. */
#include "plan/time.h"

#include <math.h>
#include <string.h>

#define MOST_STEP 1e9 /* seconds, thirty years */

void sheaf_profile_release(sheaf_profile *profile)
{
    sheaf__work_release(&profile->work);
    sheaf__work_release(&profile->next);
}

/* what: the setting's name. */
static sheaf_status *differs(const sheaf_profile *p, bool flags, const char *what,
                             const char *expected, const char *found)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_ARG, "the profile of %s: %s%s", p->machine, flags ? "--" : "", what);
    sheaf_expected(st, "%s", expected);
    sheaf_found(st, "measured with %s", found);
    return sheaf_try_this(
        st, flags ? "measure it there: sheaf plan --time --save-profile FILE with the same flags"
                  : "measure it there, with the same settings and save_profile");
}

static void batch_name(char out[40], int64_t batch)
{
    if (batch == 0)
        snprintf(out, 40, "training");
    else
        snprintf(out, 40, "%lld sequence%s of generation", (long long)batch, batch == 1 ? "" : "s");
}

static const char *copies_name(int copies)
{
    return copies == 2 ? "frozen weights held twice" : "frozen weights held once";
}

static bool is_alone(const sheaf_profile_setting *of)
{
    return of->tp * of->dp > 1 && strcmp(of->ranks, "alone") == 0;
}

static const char *ranks_name(const sheaf_profile_setting *of)
{
    return is_alone(of) ? "a link, one rank alone" : "all ranks";
}

sheaf_status *sheaf_profile_check(const sheaf_profile *p, const sheaf_profile_setting *asked,
                                  bool flags)
{
    const struct {
        const char *name;
        int asked, has;
    } number[] = { { "threads", asked->threads, p->of.threads },
                   { "tp", asked->tp, p->of.tp },
                   { "dp", asked->dp, p->of.dp },
                   { "slices", asked->slices, p->of.slices } };
    char batches[2][40];
    batch_name(batches[0], asked->batch);
    batch_name(batches[1], p->of.batch);
    if (p->of.batch != asked->batch)
        return differs(p, flags, flags ? "place, --micro-batch" : "batch", batches[0], batches[1]);
    if (strcmp(p->of.dtype, asked->dtype) != 0)
        return differs(p, flags, flags ? "dtype, --bf16-sums" : "dtype, bf16-sums", asked->dtype,
                       p->of.dtype);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i].asked != number[i].has) {
            char expected[16], found[16];
            snprintf(expected, sizeof expected, "%d", number[i].asked);
            snprintf(found, sizeof found, "%d", number[i].has);
            return differs(p, flags, number[i].name, expected, found);
        }
    if (asked->copies != p->of.copies && asked->copies > 0 && p->of.copies > 0)
        return sheaf_try_this(differs(p, flags, "weight-copies", copies_name(asked->copies),
                                      copies_name(p->of.copies)),
                              "%s %d, as a run there has it",
                              flags ? "--weight-copies" : "weight-copies:", p->of.copies);
    if (is_alone(asked) != is_alone(&p->of))
        return differs(p, flags, "link", ranks_name(asked), ranks_name(&p->of));
    return NULL;
}

sheaf_status *sheaf_plan_work(sheaf__work *out, sheaf_plan_size *size, const sheaf__job *job,
                              int rank, int64_t done)
{
    sheaf_train_options o = *job->options;
    sheaf__job one = *job;
    sheaf__rank held;
    sheaf__step_result unused;
    o.accumulate = o.dp; /* every group has one */
    one.options = &o;
    one.base = one.adapter = NULL;
    one.eval = (sheaf__subset){ 0 };
    *size = (sheaf_plan_size){ 0 };
    sheaf_status *st = sheaf__rank_open(&held, SHEAF_DRY, NULL, rank, &one);
    if (st == NULL) {
        const size_t loaded = held.device->peak;
        held.context.work = out;
        sheaf__stepper_follow(held.stepper);
        st = sheaf__stepper_run(&unused, held.stepper, done, 0);
        size->trained = (double)held.model->trained->numel;
        size->fresh = (double)(held.device->peak - loaded);
    }
    sheaf__rank_close(&held);
    return st == NULL && out->no_memory ? sheaf_fail(SHEAF_E_MEMORY, "list of ops") : st;
}

/* ---- prices ---- */

/* How many times as much work `a` is. */
static double ratio(const sheaf__work_entry *a, const sheaf__work_entry *b)
{
    if (a->flops > 0 && b->flops > 0)
        return a->flops / b->flops;
    return b->bytes > 0 ? a->bytes / b->bytes : 1;
}

/* Bytes tell a thin product from a thick one; another name is another op. */
static double distance(const sheaf__work_entry *a, const sheaf__work_entry *b)
{
    const double bytes = a->bytes > 0 && b->bytes > 0 ? fabs(log(a->bytes / b->bytes)) : 0;
    return fabs(log(ratio(a, b))) + bytes / 2 + (strcmp(a->name, b->name) == 0 ? 0 : 2);
}

static bool is_same(const sheaf__work_entry *a, const sheaf__work_entry *b)
{
    return a->flops == b->flops && strcmp(a->name, b->name) == 0 && strcmp(a->shape, b->shape) == 0;
}

static const sheaf__work_entry *nearest(const sheaf__work *in, const sheaf__work_entry *e,
                                        sheaf__work_way way)
{
    const sheaf__work_entry *best = NULL;
    for (int64_t i = 0; i < in->n; i++) {
        const sheaf__work_entry *other = &in->entry[i];
        if (other->kind != e->kind || other->way != way || other->count == 0)
            continue;
        if (is_same(other, e))
            return other;
        if (best == NULL || distance(e, other) < distance(e, best))
            best = other;
    }
    return best;
}

/* What runs again takes as long as the first time. */
static const sheaf__work_entry *price(const sheaf__work *in, const sheaf__work_entry *e)
{
    const sheaf__work_entry *found = nearest(in, e, e->way), *first = NULL;
    if (e->way == SHEAF__WORK_AGAIN && (found == NULL || !is_same(found, e)))
        first = nearest(in, e, SHEAF__WORK_FORWARD);
    const bool nearer = first != NULL && (found == NULL || is_same(first, e) ||
                                          distance(e, first) < distance(e, found));
    return nearer ? first : found;
}

static sheaf_status *add_op(sheaf_time *out, const sheaf__work *in, const char *machine,
                            const sheaf__work_entry *e, double runs)
{
    const sheaf__work_entry *of = price(in, e);
    if (of == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "the profile of %s", machine);
        sheaf_expected(st, "%s among its ops, %s, for '%s'", sheaf__work_kind_name(e->kind),
                       sheaf__work_way_name(e->way), e->name);
        sheaf_found(st, "none");
        return sheaf_try_this(st, "measure a setting of the same method");
    }
    const bool own = is_same(of, e);
    const double scale = own ? 1 : ratio(e, of), each = scale / (double)of->count,
                 seconds = runs * each * of->seconds, waiting = runs * each * of->waiting;
    out->kind[e->kind] += seconds - waiting;
    out->waiting += waiting;
    out->scaled += own ? 0 : seconds;
    if (scale > 0)
        out->farthest = fmax(out->farthest, fmax(scale, 1 / scale));
    return NULL;
}

static double part(double of, double whole)
{
    return whole > 0 ? of / whole : 0;
}

/* The ops, `micros` times; the rest of the step is the caller's. */
static sheaf_status *add_ops(sheaf_time *out, const sheaf__work *in, const char *machine,
                             const sheaf__work *work, int64_t micros)
{
    sheaf_status *st = NULL;
    *out = (sheaf_time){ .farthest = 1 };
    for (int64_t i = 0; i < work->n && st == NULL; i++)
        st = add_op(out, in, machine, &work->entry[i], (double)(work->entry[i].count * micros));
    return st;
}

/* A file may say what no machine measures. */
static sheaf_status *check_step(const sheaf_time *t, const char *machine)
{
    const double longest = t->first > t->step ? t->first : t->step;
    if (t->step > 0 && longest <= MOST_STEP)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "the profile of %s", machine),
                                      "seconds that come to a step of more than 0, and at most %g",
                                      MOST_STEP),
                       "%g", t->step > 0 ? longest : t->step);
}

static void add_up(sheaf_time *t)
{
    t->step = t->update + t->beside + t->waiting;
    for (int k = 0; k < SHEAF__WORK_KINDS; k++)
        t->step += t->kind[k];
}

/* How many times as many ops run. What a pass of generation takes beside its ops, recording them
 * among it, goes by that. */
static double times_ops(const sheaf__work *asked, const sheaf__work *measured)
{
    double n[2] = { 0 };
    for (int64_t i = 0; i < asked->n; i++)
        n[0] += (double)asked->entry[i].count;
    for (int64_t i = 0; i < measured->n; i++)
        n[1] += (double)measured->entry[i].count;
    return part(n[0], n[1]);
}

sheaf_status *sheaf_time_predict(sheaf_time *out, const sheaf_profile *profile,
                                 const sheaf__work *work, const sheaf_plan_size *size,
                                 int64_t micros)
{
    const double scale = part(size->trained, profile->size.trained);
    sheaf_status *st = add_ops(out, &profile->work, profile->machine, work, micros);
    out->update = scale * (profile->work.update - profile->work.update_waiting);
    out->waiting += scale * profile->work.update_waiting;
    out->beside = profile->beside *
                  (profile->of.batch > 0 ? times_ops(work, &profile->work) : (double)micros);
    add_up(out);
    out->first = out->step + profile->first * part(size->fresh, profile->size.fresh);
    return st == NULL ? check_step(out, profile->machine) : st;
}

sheaf_status *sheaf_time_next(sheaf_time *out, const sheaf_profile *profile,
                              const sheaf__work *work)
{
    sheaf_status *st = add_ops(out, &profile->next, profile->machine, work, 1);
    out->beside = profile->next_beside * times_ops(work, &profile->next);
    add_up(out);
    out->first = out->step;
    return st == NULL ? check_step(out, profile->machine) : st;
}

void sheaf_time_exchange(sheaf_time *t, const sheaf__count exchange[SHEAF__TRAFFICS],
                         const sheaf_cluster_link *link)
{
    double seconds = 0;
    t->exchange = (sheaf__count){ 0 };
    for (int i = 0; i < SHEAF__TRAFFICS; i++) {
        sheaf__count_add(&t->exchange, &exchange[i]);
        seconds += link == NULL ? 0 : sheaf_cluster_exchange(&exchange[i], link);
    }
    if (link == NULL)
        return;
    t->first += seconds - t->waiting;
    t->waiting = seconds;
    add_up(t);
}
