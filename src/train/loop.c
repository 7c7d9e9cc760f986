/* loop.c - the steps of a run; see run.h. */
#include <math.h>

#include "base/base.h"
#include "base/clock.h"
#include "comm/activity.h"
#include "comm/all.h"
#include "data/complaints.h"
#include "train/evaluate.h"
#include "train/export.h"
#include "train/run.h"

/* ---- an end before the last step ---- */

static bool is_over(const sheaf__run *r)
{
    return r->options->max_time > 0 && sheaf__seconds() - r->began >= r->options->max_time;
}

static sheaf_status *stopped(const sheaf__run *r, int64_t done)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_STOPPED,
                                  is_over(r) ? "`max-time` is over after step %lld"
                                             : "asked to stop after step %lld",
                                  (long long)done);
    return sheaf__try_path(st, "everything was saved; go on with: sheaf train --resume --out ",
                           r->options->out, "");
}

/* ---- evaluations ---- */

static bool is_due(int64_t every, int64_t done)
{
    return every > 0 && done > 0 && done % every == 0;
}

static bool has_enough(const sheaf__run *r)
{
    return r->hooks->enough != NULL && atomic_load(r->hooks->enough) != 0;
}

/* On rank 0: a requested stop ends an evaluation. The end of --max-time does not: with a time
 * shorter than an evaluation a run would never get past it. */
static void look_up(sheaf__run *r)
{
    if (has_enough(r) || (r->hooks->control != NULL && atomic_load(&r->hooks->control->stop) != 0))
        atomic_store(&r->interrupt, 1);
}

/* The last progress line comes with the result. */
static void pass_on(void *self, const sheaf_event *event)
{
    sheaf__run *r = self;
    look_up(r);
    if (event->kind != SHEAF_EVENT_PROGRESS || event->done < event->total)
        sheaf_emit(r->hooks->events, event);
}

sheaf_events sheaf__run_events(sheaf__run *run)
{
    return (sheaf_events){ pass_on, run };
}

static void report_evaluation(sheaf__run *r, const sheaf__evaluation *found,
                              const sheaf__pair_sums *sums, int64_t done, bool best, double seconds)
{
    sheaf_train_result *out = r->result;
    out->evaluated = true;
    out->eval_loss = found->loss;
    out->eval_tokens = found->tokens;
    out->eval_pairs = sheaf__objective_prefers(&r->job.objective);
    out->eval_accuracy = r->job.sampler != NULL ? NAN
                         : found->tokens == 0   ? 0
                                                : (double)found->correct / (double)found->tokens;
    sheaf_event event = { .kind = SHEAF_EVENT_EVALUATION,
                          .evaluation = { .step = done,
                                          .steps = r->options->steps,
                                          .loss = found->loss,
                                          .accuracy = out->eval_accuracy,
                                          .tokens = found->tokens,
                                          .seconds = seconds,
                                          .best = best } };
    if (sheaf__objective_prefers(&r->job.objective))
        event.evaluation.values =
            sheaf__pairs_values(event.evaluation.value, &r->job.objective, sums, true);
    sheaf_emit(r->hooks->events, &event);
}

typedef struct verdict {
    bool best;    /* this step is the best so far */
    bool stopped; /* interrupted by a stop, on all ranks */
} verdict;

static sheaf_status *evaluate_rewards(sheaf__evaluation *out, sheaf__pair_sums *sums,
                                      const sheaf__run *r, const sheaf__rank *rank, int64_t done,
                                      const sheaf__evaluate_options *how)
{
    const sheaf__subset *eval = &r->job.eval;
    return sheaf__batch_evaluate(
        out, &sums->group, sheaf__stepper_batch(rank->stepper), r->job.sampler,
        &(sheaf__sampler_batch){
            .set = eval->data != r->job.train.data, .step = done, .judge = rank->judge },
        eval, how);
}

/* evals: gets the result. */
static sheaf_status *evaluate(verdict *out, sheaf__run *r, const sheaf__rank *rank,
                              sheaf_comm *comm, sheaf__eval_state *evals, int64_t done)
{
    const bool first = sheaf_comm_rank(comm) == 0;
    const sheaf_events events = sheaf__run_events(r);
    const double began = sheaf__seconds();
    sheaf__evaluation found;
    sheaf__pair_sums sums = { 0 };
    *out = (verdict){ 0 };
    if (first)
        look_up(r);
    const sheaf__subset *eval = &r->job.eval;
    const sheaf__evaluate_options how = { .micro_batch = r->options->micro_batch,
                                          .row = eval->row,
                                          .rows = eval->rows,
                                          .stop = &r->interrupt,
                                          .events = first ? &events : NULL };
    sheaf_status *st =
        r->job.sampler != NULL ? evaluate_rewards(&found, &sums, r, rank, done, &how)
        : sheaf__objective_prefers(&r->job.objective)
            ? sheaf__pairs_evaluate(
                  &found, &sums,
                  &(sheaf__pair_reading){ rank->model, eval, &r->job.objective, r->options, &how },
                  rank->reference[1].row)
            : sheaf__evaluate(&found, rank->model, eval->data, &how);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED) {
        out->stopped = true;
        sheaf_status_free(st);
        return NULL;
    }
    if (st != NULL)
        return sheaf_in(st, "evaluation after step %" PRId64, done);
    out->best = sheaf__eval_state_add(evals, done, found.loss, r->options->min_delta);
    if (first)
        report_evaluation(r, &found, &sums, done, out->best, sheaf__seconds() - began);
    return NULL;
}

static bool out_of_patience(const sheaf__run *r, const sheaf__eval_state *evals)
{
    return r->options->patience > 0 && evals->worse >= r->options->patience;
}

/* The end: the last step is evaluated even if no evaluation was due. The result is reported and may
 * be the best, but is not part of the state: a run that is resumed for more steps equals one that
 * had them from the start. */
static sheaf_status *evaluate_end(sheaf__run *r, const sheaf__rank *rank, sheaf_comm *comm,
                                  const sheaf__run_state *s, int64_t done)
{
    sheaf__eval_state evals = s->evals;
    sheaf_status *st = NULL;
    verdict found = { 0 };
    if (!sheaf__evaluates(r->options))
        return NULL;
    if (evals.last != done)
        st = evaluate(&found, r, rank, comm, &evals, done);
    if (found.stopped)
        return stopped(r, done);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        r->result->best_step = evals.best;
        r->result->best_loss = evals.best_loss;
        r->result->early = done < r->options->steps;
        if (r->result->early)
            sheaf_note(r->hooks->events,
                       "%" PRId64 " evaluations without a better loss: it ends after step %" PRId64
                       " of %" PRId64,
                       evals.worse, done, r->options->steps);
        st = sheaf__eval_state_write(&evals, r->options->out);
    }
    return sheaf_comm_agree(comm, st);
}

/* ---- the loop ---- */

static void report(const sheaf__run *r, const sheaf__rank *rank, const sheaf__step_result *step,
                   int64_t done, double lr, double seconds, const sheaf__usage_list *usage)
{
    sheaf_event event = { .kind = SHEAF_EVENT_STEP,
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
                          .rank = usage->rank,
                          .spent = usage->spent,
                          .offload = rank->offloads ? usage->offload : NULL,
                          .ranks = r->options->tp * r->options->dp };
    if (sheaf__objective_prefers(&r->job.objective))
        event.step.values =
            sheaf__pairs_values(event.step.value, &r->job.objective, &step->sums, false);
    sheaf_emit(r->hooks->events, &event);
    if (r->job.sampler != NULL && step->sums.group.off > 0 &&
        (done - 1) % r->job.objective.group.iterations == 0)
        sheaf_warn(r->hooks->events,
                   "%.0f of %.0f tokens have another log-probability in training than they were "
                   "sampled with",
                   step->sums.group.off, step->sums.group.tokens);
    if (!isnan(step->loss) || done == r->result->first + 1)
        r->result->loss = step->loss;
    r->result->learned |= !step->skipped && step->grad_norm > 0 && lr > 0;
    r->result->tokens += step->tokens;
    r->result->seconds += seconds;
    r->result->step = done;
    r->result->skipped = rank->scaler.skipped;
    r->result->loss_scale = rank->scaler.scale;
}

/* On the first rank: is there a rank that others wait for? */
static void look_for_slow(const sheaf__run *r, sheaf__run_state *s, double seconds,
                          const sheaf__usage_list *usage)
{
    sheaf_text text = { 0 };
    sheaf__slow_step(&text, &s->slow, usage->rank, r->options->tp * r->options->dp, seconds,
                     r->all);
    if (text.at != NULL)
        sheaf_warn(r->hooks->events, "%s", text.at);
    sheaf__text_release(&text);
}

/* A step, with the usage of every rank, which the first reports. */
static sheaf_status *take_step(sheaf__run *r, sheaf__rank *rank, sheaf_comm *comm,
                               sheaf__run_state *s, int64_t done, double lr)
{
    sheaf__usage_list usage;
    sheaf__step_result step;
    const double began = sheaf__seconds();
    sheaf__usage_begin(&s->usage);
    sheaf_status *st = sheaf__stepper_run(&step, rank->stepper, done, lr);
    if (st != NULL)
        return st;
    sheaf__usage_end(&usage, &s->usage);
    const double seconds = sheaf__seconds() - began;
    st = sheaf__usage_share(&usage, s->usage.grid);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        report(r, rank, &step, done + 1, lr, seconds, &usage);
        look_for_slow(r, s, seconds, &usage);
    }
    return st;
}

/* Rank 0: OUT is gone; the only thing left is to save, which fails. */
static bool is_lost(sheaf__run *r, sheaf_comm *comm)
{
    sheaf_status *st = sheaf_comm_rank(comm) == 0 ? sheaf__out_check_held(&r->folder) : NULL;
    sheaf_status_free(st);
    return st != NULL;
}

/* Saved all the same, not an error: more steps may follow. */
static void warn_of_nothing(const sheaf__run *r, const sheaf__rank *rank, int64_t done)
{
    const int64_t steps = done - r->result->first;
    if (!sheaf__is_first(&rank->context) || r->result->learned || steps == 0)
        return;
    if (rank->scaler.skipped >= done)
        sheaf_warn(r->hooks->events,
                   "nothing was trained: all %" PRId64 " steps were skipped, their gradients too "
                   "large for float16: more steps, a smaller `loss-scale-init` than %g, or "
                   "`dtype bfloat16`",
                   done, rank->scaler.options.scale);
    else
        sheaf_warn(r->hooks->events,
                   "nothing was trained: no step of %" PRId64 " had a gradient and a learning rate "
                   "above 0; do the trained tensors take part in the predictions for these data?",
                   steps);
}

/* Signals and the end of --max-time reach one rank first: all must take the same decision. */
static sheaf_status *check_requests(sheaf__run *r, sheaf_comm *comm, int64_t done, bool *to_save,
                                    bool *to_stop)
{
    int bits = sheaf__control_poll(r->hooks->control) |
               (is_over(r) || has_enough(r) ? SHEAF__CONTROL_STOP : 0) |
               (is_lost(r, comm) ? SHEAF__CONTROL_SAVE : 0);
    sheaf_status *st = sheaf_comm_any(comm, &bits);
    *to_save = (bits & SHEAF__CONTROL_SAVE) != 0;
    *to_stop = (bits & SHEAF__CONTROL_STOP) != 0;
    return sheaf_in(st, "after step %" PRId64, done);
}

/* Rank 0 writes, the others wait: with --export-every the current model in the form of the result.
 */
static sheaf_status *export_step(const sheaf__run *r, sheaf_comm *comm, int64_t done,
                                 bool only_missing)
{
    sheaf_status *st = NULL;
    sheaf__activity_phase(sheaf_comm_activity(comm), "exporting");
    if (sheaf_comm_rank(comm) == 0)
        st = sheaf__export_step(r->options, r->opened, done, only_missing, r->hooks->events);
    return sheaf_comm_agree(comm, st);
}

static sheaf_status *tell_best(const sheaf__run *r, sheaf_comm *comm, const sheaf__run_state *s)
{
    return sheaf_comm_agree(comm, sheaf_comm_rank(comm) == 0
                                      ? sheaf__eval_state_write(&s->evals, r->options->out)
                                      : NULL);
}

static bool evaluation_due(const sheaf__run *r, const sheaf__run_state *s, int64_t done)
{
    return sheaf__evaluates(r->options) && is_due(r->options->eval_every, done) &&
           s->evals.last < done;
}

/* A stop interrupted the evaluation that was due when this step was saved: the checkpoint is
 * replaced by that of an uninterrupted run. */
static sheaf_status *make_up(verdict *out, sheaf__run *r, sheaf__rank *rank,
                             sheaf_checkpoints *store, sheaf_comm *comm, sheaf__run_state *s,
                             int64_t done)
{
    sheaf_status *st = evaluate(out, r, rank, comm, &s->evals, done);
    if (st != NULL || out->stopped)
        return st;
    sheaf_checkpoints_replace(store, done);
    st = sheaf__run_state_write(r, store, comm, s, done);
    sheaf_checkpoints_replace(store, 0);
    return st == NULL && out->best ? tell_best(r, comm, s) : st;
}

sheaf_status *sheaf__loop(sheaf__run *r, sheaf__rank *rank, sheaf_checkpoints *store,
                          sheaf_comm *comm, sheaf__run_state *s, int64_t done)
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
    while (done < o->steps && !stop && !out_of_patience(r, &s->evals) && st == NULL) {
        const double lr = /* a step that is skipped does not count */
            sheaf_schedule_rate(&schedule, o->lr, done - rank->scaler.skipped);
        bool save_now = false;
        st = take_step(r, rank, comm, s, done, lr);
        stop = st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED;
        if (stop) { /* while its completions were judged: nothing has changed */
            sheaf_status_free(st);
            st = NULL;
            break;
        }
        if (st != NULL) {
            if (sheaf_status_code(st) != SHEAF_E_NUMBER) /* it names the step itself */
                st = sheaf_in(st, "step %" PRId64, done + 1);
            break;
        }
        done++;
        found = (verdict){ 0 };
        if (evaluation_due(r, s, done))
            st = evaluate(&found, r, rank, comm, &s->evals, done);
        TRY(st, check_requests(r, comm, done, &save_now, &stop));
        stop = stop || found.stopped;
        if (st == NULL && (save_now || stop || found.best || is_due(o->save_every, done) ||
                           is_due(o->export_every, done))) {
            st = sheaf__run_state_write(r, store, comm, s, done);
            saved_at = done;
        }
        if (st == NULL && found.best)
            st = tell_best(r, comm, s);
        if (st == NULL && is_due(o->export_every, done))
            st = export_step(r, comm, done, false);
    }
    if (st == NULL && saved_at != done && (done > 0 || !stop))
        st = sheaf__run_state_write(r, store, comm, s, done);
    if (st == NULL && stop && (done < o->steps || found.stopped) && !out_of_patience(r, &s->evals))
        return stopped(r, done);
    if (st == NULL)
        warn_of_nothing(r, rank, done);
    return st == NULL ? evaluate_end(r, rank, comm, s, done) : st;
}
