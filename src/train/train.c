/* train.c - see train.h. */
#include "train/train.h"

#include "base/base.h"
#include "base/clock.h"
#include "comm/activity.h"
#include "comm/process.h"
#include "lora/sizes.h"
#include "models/placement.h"
#include "train/consistency.h"
#include "train/export.h"
#include "train/run.h"
#include "train/sampler.h"

/* Window of the check for a slow rank, in heartbeats. */
#define SILENCES 3

/* The share is PEFT's: of base and adapter together. */
static void note_trained(const sheaf__run *r, const sheaf__model *model)
{
    sheaf_train_result *out = r->result;
    out->parameters = sheaf__parameters(model->schema);
    sheaf__count_trained(&out->trained, &out->added, model);
    const int64_t all = out->parameters + out->added;
    sheaf_note(r->hooks->events,
               "%" PRId64 " of %" PRId64 " parameters are trained (%.4g %%), %.4g MiB in float32",
               out->trained, all, 100 * (double)out->trained / (double)all,
               (double)out->trained * 4 / 1048576);
    if (r->opened->lora == NULL)
        return;
    sheaf__lora_sizes sizes;
    sheaf_text text = { 0 };
    sheaf__lora_sizes_of(&sizes, r->opened->lora, r->opened->schema, NULL, NULL);
    sheaf__lora_sizes_text(&text, &sizes);
    if (text.at != NULL)
        sheaf_note(r->hooks->events, "%s", text.at);
    sheaf__text_release(&text);
}

static void note_padding(const sheaf__run *r)
{
    const sheaf_train_options *o = r->options;
    const double samples = (double)o->steps * (double)o->accumulate * (double)o->micro_batch;
    if (r->job.sampler != NULL)
        return;
    r->result->padding =
        sheaf__subset_padding(&r->job.train, o, samples < 1e15 ? (int64_t)samples : 0);
    if (r->result->padding >= 0.0005)
        sheaf_note(r->hooks->events,
                   "%.1f %% of the positions are padding: rows are as long as the longest of their "
                   "micro-batch",
                   100 * r->result->padding);
}

/* Both kinds are needed, and should count about the same. */
static void note_judged(const sheaf__run *r)
{
    const sheaf__subset *of = &r->job.train;
    double n[2] = { 0 };
    for (int64_t i = 0; i < sheaf__subset_rows(of); i++)
        n[sheaf_data_desirable(of->data, of->row == NULL ? i : of->row[i]) ? 0 : 1]++;
    const double *w = r->job.objective.weight, ratio = w[0] * n[0] / (w[1] * n[1]);
    if (n[0] == 0 || n[1] == 0)
        sheaf_warn(r->hooks->events, "no answer of %g is %sdesirable: kto compares both kinds",
                   n[0] + n[1], n[0] == 0 ? "" : "un");
    else if (w[0] > 0 && w[1] > 0 && !(ratio >= 1 && ratio <= 1.33))
        sheaf_warn(r->hooks->events,
                   "%g desirable answers count %.3g times what %g others do; 1 to 1.33 is advised, "
                   "by `desirable-weight` and `undesirable-weight`",
                   n[0], ratio, n[1]);
}

static void note_sets(const sheaf__run *r)
{
    const sheaf_train_options *o = r->options;
    const sheaf__objective *objective = &r->job.objective;
    if (objective->reference)
        sheaf_note(r->hooks->events, "the reference is %s",
                   sheaf_data_reference(&(double){ 0 }, r->job.train.data, 0)
                       ? "what the data say, in ref_chosen_logps"
                   : objective->folder != NULL ? objective->folder
                   : objective->base           ? "the base model"
                                               : "the model as it begins");
    if (objective->judged)
        note_judged(r);
    const int64_t rows = sheaf__subset_rows(&r->job.train), each = o->micro_batch * o->accumulate;
    const bool samples = r->job.sampler != NULL;
    if (o->epochs > 0) {
        const double all = (double)rows * (double)sheaf__subset_times(o), /* of an epoch */
            read = (double)each * (double)o->steps;
        sheaf_note(r->hooks->events,
                   "%.6g epoch%s of %" PRId64 " %s%s %s %" PRId64 " step%s of %" PRId64 " %s%s",
                   o->epochs, o->epochs == 1 ? "" : "s", rows, samples ? "prompt" : "row",
                   rows == 1 ? "" : "s", o->epochs == 1 ? "is" : "are", o->steps,
                   o->steps == 1 ? "" : "s", each, samples ? "completion" : "row",
                   each == 1 ? "" : "s");
        if (read >= 2 * o->epochs * all)
            sheaf_warn(r->hooks->events,
                       "a step reads more %ss than that: each is read %.3g times in all, not "
                       "%.6g; a smaller `accumulate` or `micro-batch` makes more steps of them",
                       samples ? "prompt" : "row", read / all, o->epochs);
    }
    if (r->job.eval.row != NULL)
        sheaf_note(r->hooks->events, "%" PRId64 " of %" PRId64 " rows are held out for evaluation",
                   sheaf__subset_rows(&r->job.eval), sheaf_data_samples(r->job.eval.data));
}

/* After the base is loaded: hashes what no rank had to read, so that all ranks know the run's
 * origin. */
static sheaf_status *know_origin(sheaf__run *r, sheaf_comm *comm, sheaf_status *st)
{
    const bool alone = sheaf__all_count(r->all) > 1; /* each process hashes on its own */
    TRY(st, sheaf__hashed_rest(r->opened->hashed));
    st = sheaf_comm_agree(comm, st);
    if (st == NULL && (alone || sheaf_comm_rank(comm) == 0)) {
        st = sheaf__origin_end(&r->origin);
        TRY(st, sheaf__opened_compare(r->opened, r->origin.weights));
        TRY(st, r->job.other == NULL
                    ? NULL
                    : sheaf__opened_compare(&r->job.other->opened, r->origin.weights));
        TRY(st, sheaf__origin_text(&r->origin_text, &r->origin));
        sheaf__hashed_stop(r->opened->hashed);
    }
    st = sheaf_comm_agree(comm, st);
    for (int i = 0; r->job.sampler != NULL && i < r->job.sampler->judges && st == NULL; i++)
        st = sheaf__opened_check(r->job.sampler->judge[i].opened, comm);
    return st == NULL ? sheaf__consistency_weights(r->all, &r->origin) : st;
}

/* On rank 0: passes the origin to the hook, and without a checkpoint first checks the base of a
 * resumed run. */
static sheaf_status *tell_origin(sheaf__run *r, bool from)
{
    char *record = NULL;
    sheaf_status *st = r->options->resume && !from ? sheaf__resume_check_base(r) : NULL;
    if (st == NULL && r->hooks->base != NULL)
        st = sheaf__origin_record(&record, &r->origin);
    if (st == NULL && r->hooks->base != NULL)
        st = r->hooks->base(r->hooks->self, record);
    free(record);
    return st;
}

/* Group s mod D writes slice s, as with a divided state only that group has it. */
static const int *choose_writers(int writer[SHEAF_MAX_SLICES], const sheaf_train_options *o)
{
    for (int s = 0; s < o->slices; s++)
        writer[s] = s % o->dp * o->tp + sheaf_owner_rank(o->slices, o->tp, s);
    return o->dp > 1 ? writer : NULL;
}

/* The usage of each rank, into the result. */
static sheaf_status *account(sheaf__run *r, sheaf_comm *comm, sheaf__run_state *s)
{
    sheaf__usage_total *list = NULL;
    sheaf_status *st = sheaf__usage_gather(&list, &s->usage);
    if (st == NULL && sheaf_comm_rank(comm) == 0) {
        r->result->rank = list;
        r->result->ranks = sheaf_comm_ranks(comm);
        list = NULL;
    }
    free(list);
    return st;
}

/* The device of each rank, if devices have names, and the memory its messages come from. */
static sheaf_status *note_devices(const sheaf__run *r, const sheaf__grid *grid,
                                  const sheaf__device *d)
{
    enum { TEXT = 192 };
    static const char *const sent[] = { "", ", exchanges out of its memory",
                                        ", exchanges through pinned memory of the host" };
    const int me = sheaf_comm_rank(grid->all), ranks = sheaf_comm_ranks(grid->all);
    const bool by_order = r->options->dtype != SHEAF_F32;
    char text[SHEAF_MAX_SLICES][TEXT];
    if (d->class->name_unit == NULL)
        return NULL;
    d->class->name_unit(d->reserved, text[me], TEXT);
    const size_t n = strlen(text[me]);
    snprintf(text[me] + n, TEXT - n, ", %s%s%s", by_order ? "sums in the order " : "float32",
             by_order ? sheaf__sums_text(d->sums) : "", sent[sheaf__sent_from_of(grid, d)]);
    sheaf_status *st = sheaf__all_gather(grid->all, text, sizeof *text);
    for (int i = 0; i < ranks && st == NULL && me == 0; i++)
        sheaf_note(r->hooks->events, "rank %d%s%s: %s", i, r->all == NULL ? "" : " on ",
                   r->all == NULL ? "" : sheaf__all_host(r->all, i), text[i]);
    return st;
}

/* Of completions that several steps learn from. */
static sheaf_status *open_log(sheaf__rollout_log *log, const sheaf__run *r, sheaf__rank *rank)
{
    const sheaf_train_options *o = r->options;
    const sheaf__objective *objective = &r->job.objective;
    if (!objective->grouped || (objective->group.iterations == 1 && r->job.sampler == NULL))
        return NULL;
    sheaf__stepper_batch(rank->stepper)->log = log;
    return sheaf__rollout_log_open(log, o->out, o->resume, o->micro_batch * o->accumulate,
                                   objective->group.iterations);
}

static sheaf_status *train_rank(void *arg, const sheaf__grid *grid)
{
    sheaf__run *r = arg;
    sheaf_comm *const comm = grid->all;
    const sheaf_train_options *o = r->options;
    const int me = sheaf_comm_rank(comm);
    sheaf_checkpoints *store = NULL;
    sheaf_checkpoint *from = NULL;
    sheaf__rank rank = { 0 };
    sheaf__run_state s = { 0 };
    sheaf__rollout_log log = { 0 };
    int64_t done = 0;
    bool started = o->resume;
    int writer[SHEAF_MAX_SLICES];
    const sheaf_checkpoints_options how = { .keep = (int)o->keep,
                                            .writer = choose_writers(writer, o),
                                            .locked = r->folder.lock >= 0,
                                            .events = me == 0 ? r->hooks->events : NULL };
    if (r->hooks->activity != NULL) /* a process has that of its rank alone */
        sheaf__grid_record(grid, &r->hooks->activity[sheaf__all_count(r->all) > 1 ? 0 : me]);
    sheaf_status *st = sheaf_checkpoints_open(&store, comm, o->out, &how);
    if (st != NULL)
        goto done;
    if (me == 0)
        sheaf__out_sweep(&r->folder);
    sheaf__activity_phase(sheaf_comm_activity(comm), "loading");
    st = sheaf__rank_open(&rank, grid, me, &r->job);
    rank.context.activity = rank.judging.activity = sheaf_comm_activity(comm);
    TRY(st, sheaf__run_state_init(&s, &rank, o));
    TRY(st, note_devices(r, grid, rank.device));
    s.usage = (sheaf__usage){ .rank = &rank, .grid = grid };
    s.slow.window = SILENCES * o->heartbeat;
    if ((st = know_origin(r, comm, st)) != NULL)
        goto done;
    if (r->job.objective.reference) { /* its passes are collective */
        const sheaf_events events = sheaf__run_events(r);
        st = sheaf__rank_refer(&rank, &r->job, r->origin_text,
                               &(sheaf__evaluate_options){ .micro_batch = o->micro_batch,
                                                           .stop = &r->interrupt,
                                                           .events = me == 0 ? &events : NULL });
    }
    if (st == NULL && o->resume)
        st = sheaf__resume_from(&from, r, store, comm, &rank, &s);
    if (st != NULL)
        goto done;
    if (from != NULL) {
        done = from->manifest->step;
        if ((st = sheaf__trained_publish(rank.model->trained)) != NULL)
            goto done;
        sheaf__model_refresh(rank.model);
    }
    sheaf__device_hold(rank.device, r->footprint[me]);
    if (me == 0) {
        note_trained(r, rank.model);
        note_padding(r);
        r->result->first = r->result->step = done;
        st = tell_origin(r, from != NULL);
        if (st == NULL && r->hooks->begin != NULL)
            st = r->hooks->begin(r->hooks->self, done, s.evals.last);
        TRY(st, o->resume ? sheaf__out_settings(&r->folder, r->recipe) : NULL);
        started = started || st == NULL;
        if (st == NULL && sheaf__evaluates(o))
            st = sheaf__eval_state_write(&s.evals, o->out);
        if (st == NULL && o->resume)
            sheaf_note(r->hooks->events,
                       from == NULL ? "no checkpoint yet: starting from the base model"
                                    : "going on after step %lld",
                       (long long)done);
    }
    if (me == 0)
        TRY(st, open_log(&log, r, &rank));
    st = sheaf_comm_agree(comm, st);
    TRY(st, sheaf__loop(r, &rank, store, comm, &s, done));
    TRY(st, account(r, comm, &s));
done:
    sheaf__run_state_release(&s);
    sheaf__rank_close(&rank);
    sheaf__rollout_log_close(&log);
    sheaf_checkpoint_close(from);
    if (st != NULL && me == 0 && store != NULL && !started && !r->folder.anew)
        sheaf__out_undo(&r->folder);
    sheaf_checkpoints_close(store);
    return st;
}

/* ---- the whole run ---- */

/* The objects of a run, from its flags. */
typedef struct ingredients {
    sheaf__run_base base;
    sheaf__sets sets;
    sheaf__other other;
} ingredients;

/* The saved modules of an adapter lie over the base's own tensors, which are then not at hand. */
static sheaf_status *check_reference(const sheaf__run_base *base, const sheaf_train_options *o)
{
    const char *reference = o->objective.reference;
    const sheaf_lora *lora = base->opened.lora;
    if (reference == NULL || strcmp(reference, "base") != 0 || o->adapter == NULL || lora == NULL ||
        lora->nsaved == 0)
        return NULL;
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`reference base`"),
                                   "an adapter without modules that are saved whole"),
                    "%d of them", lora->nsaved),
        "`reference start`");
}

/* The first process reads the data, so that the others find its tokenised texts. */
static sheaf_status *open_sets(ingredients *in, const sheaf__run *r, sheaf_train_options *o)
{
    const sheaf_train_hooks *hooks = r->hooks;
    sheaf_status *st = NULL;
    for (int first = 1; first >= 0 && st == NULL; first--)
        st = sheaf__all_agree(
            r->all, sheaf__all_first(r->all) != first ? NULL
                    : sheaf__sets_samples(o)
                        ? sheaf__sets_sample(&in->sets, o, &in->base.opened.config, hooks->sampler,
                                             hooks->events)
                        : sheaf__sets_open(&in->sets, o, &in->base.opened.config, hooks->events,
                                           sheaf__control_stop(hooks->control)));
    return st;
}

static sheaf_status *open_other(sheaf__run *r, ingredients *in)
{
    sheaf_status *st = NULL;
    if (r->job.objective.folder == NULL)
        return NULL;
    r->job.other = &in->other;
    st = sheaf__other_open(&in->other, &r->job);
    return sheaf__all_agree(r->all, st);
}

/* All inputs are known: checks the memory needed, and writes OUT. */
static sheaf_status *prepare(sheaf__run *r, const ingredients *in, sheaf_train_options *o)
{
    const sheaf_train_hooks *hooks = r->hooks;
    sheaf_status *st = hooks->planned == NULL
                           ? NULL
                           : hooks->planned(hooks->self, &r->job, r->footprint, &o->kept);
    if (st == NULL && hooks->chosen != NULL)
        st = hooks->chosen(hooks->self, sheaf_data_template(in->sets.data), o, &r->settings,
                           &r->recipe);
    TRY(st, sheaf__origin_begin(&r->origin, &in->base.opened,
                                &(sheaf__origin_from){ .model = o->model,
                                                       .tokenizer = o->tokenizer,
                                                       .tokens = in->base.tokenizer.tokens,
                                                       .out = o->out }));
    st = sheaf__all_agree(r->all, st);
    TRY(st, sheaf__consistency_begin(r, &in->sets));
    if (st == NULL && sheaf__all_first(r->all))
        st = sheaf__out_prepare(&r->folder, r->recipe);
    return sheaf__all_agree(r->all, st);
}

sheaf_status *sheaf_train(sheaf_train_result *out, const sheaf_train_options *asked_for,
                          const char *settings, const char *recipe, const sheaf_train_hooks *hooks)
{
    static const sheaf_train_hooks none = { 0 };
    *out = (sheaf_train_result){ 0 };
    hooks = hooks == NULL ? &none : hooks;
    ingredients in = { 0 };
    sheaf_train_options with = *asked_for; /* and what the data make of it */
    const sheaf_train_options *o = &with;
    const bool first = sheaf__all_first(hooks->all);
    sheaf__run r = { .options = o,
                     .hooks = hooks,
                     .all = hooks->all,
                     .settings = settings,
                     .recipe = recipe,
                     .opened = &in.base.opened,
                     .result = out,
                     .began = sheaf__seconds() - hooks->spent,
                     .folder = {
                         .options = &with, .events = hooks->events, .lock = -1, .dir = -1 } };
    sheaf_status *st =
        sheaf__process_check(r.all, o->transport == SHEAF_TRANSPORT_MPI ? o->tp * o->dp : 1);
    TRY(st, sheaf__device_present(o->device));
    if (st == NULL && first)
        st = sheaf__out_check(&r.folder);
    st = sheaf__all_agree(r.all, st);
    if (st == NULL && r.all != NULL)
        st = sheaf__out_shared(r.all, o->out, SHEAF__OUT_SEEN_WITHIN);
    const sheaf__open_options from = { .model = o->model,
                                       .config = o->config,
                                       .new_run = !o->resume,
                                       .as_stored = o->resume,
                                       .events = hooks->events };
    TRY(st, sheaf__all_agree(r.all, sheaf__run_base_open(&in.base, o, &from)));
    TRY(st, check_reference(&in.base, o));
    with.tokens_in = in.base.tokenizer.folder;
    TRY(st, open_sets(&in, &r, &with));
    if (st == NULL) {
        r.job = (sheaf__job){ .options = o,
                              .schema = in.base.opened.schema,
                              .lora = in.base.opened.lora,
                              .forms = sheaf__opened_forms(&in.base.opened),
                              .selection = &in.base.selection,
                              .objective = in.sets.objective,
                              .train = in.sets.train,
                              .eval = in.sets.eval,
                              .seq = sheaf__sets_seq(&in.sets, o),
                              .sampler = sheaf__sets_samples(o) ? hooks->sampler : NULL,
                              .data_bytes = sheaf__sets_memory(&in.sets) };
        note_sets(&r);
        st = open_other(&r, &in);
        TRY(st, prepare(&r, &in, &with));
    }
    if (st == NULL) {
        r.job.base = in.base.opened.weights;
        r.job.adapter = in.base.opened.adapter;
        sheaf__balance_note(in.base.opened.schema, o->tp, hooks->events);
        sheaf__process_settle(r.all, o->threads, hooks->events);
        st = sheaf__grid_run(
            &(sheaf__grid_options){
                .processes = r.all, .transport = o->transport, .groups = o->dp, .ranks = o->tp },
            train_rank, &r);
    }
    if (st == NULL && first)
        st = sheaf__out_check_held(&r.folder);
    if (st == NULL && first)
        st = sheaf__export(&out->result, &out->checkpoint, o, &in.base.opened, out->step,
                           o->use_best && out->best_step > 0 ? out->best_step : out->step,
                           hooks->events);
    sheaf__out_release(&r.folder);
    st = sheaf__all_agree(r.all, st);
    free(r.origin_text);
    sheaf__origin_release(&r.origin);
    sheaf__sets_close(&in.sets);
    sheaf__other_release(&in.other);
    sheaf__run_base_release(&in.base);
    return st;
}

void sheaf_train_result_release(sheaf_train_result *result)
{
    free(result->result);
    free(result->checkpoint);
    free(result->rank);
    *result = (sheaf_train_result){ 0 };
}
