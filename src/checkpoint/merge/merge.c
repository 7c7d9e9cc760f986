/* merge.c - see merge.h. plan.c decides, rows.c computes, check.c verifies; this file streams. */
#include "checkpoint/merge/merge.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "base/base.h"
#include "base/thread.h"
#include "catalog/boxes.h"
#include "checkpoint/merge/plan.h"
#include "checkpoint/store/stream.h"
#include "dialects/hf/hf.h"

enum { MOST_THREADS = 16 };

typedef struct merger {
    sheaf__merge_plan plan;
    sheaf__merge_workers workers;
    sheaf__merge_scratch other; /* for comparing two tensors */
    sheaf__merge_output output;
    sheaf_weights_merge_report *report;
    const sheaf_events *events;
    int64_t at;                 /* the current tensor */
    sheaf__lora_change *change; /* one a chunk of it */
    _Atomic int64_t done;       /* bytes */
    int64_t total;
} merger;

static void merger_close(merger *m)
{
    sheaf__merge_output_abandon(&m->output);
    sheaf__merge_workers_release(&m->workers);
    sheaf__merge_scratch_release(&m->other);
    free(m->change);
    sheaf__merge_plan_close(&m->plan);
}

/* ---- the threads and their buffers ---- */

sheaf_status *sheaf__merge_workers_init(sheaf__merge_workers *workers,
                                        const sheaf__merge_plan *plan,
                                        const sheaf_weights_merge_options *o)
{
    workers->stop = sheaf__control_stop(o->control);
    workers->threads = o->threads < 1 ? 1 : o->threads > MOST_THREADS ? MOST_THREADS : o->threads;
    workers->rows.other_copy = &workers->other_copy;
    workers->scratch = calloc((size_t)workers->threads, sizeof *workers->scratch);
    sheaf_status *st = workers->scratch == NULL ? sheaf__no_memory("merge") : NULL;
    TRY(st,
        sheaf__merge_rows_init(&workers->rows, plan->base, o->mode, (sheaf_peft_cpu)o->peft_cpu));
    workers->rows.files = plan->files;
    for (int i = 0; i < workers->threads && st == NULL; i++)
        st = sheaf__merge_scratch_init(&workers->scratch[i]);
    return st != NULL ? st : sheaf__pool_new(&workers->pool, workers->threads);
}

void sheaf__merge_workers_release(sheaf__merge_workers *workers)
{
    for (int i = 0; workers->scratch != NULL && i < workers->threads; i++)
        sheaf__merge_scratch_release(&workers->scratch[i]);
    free(workers->scratch);
    sheaf__merge_rows_release(&workers->rows);
    sheaf__pool_free(workers->pool);
}

/* ---- a tied table ---- */

static bool changed(const sheaf__merge_tensor *t)
{
    return t->nsteps > 0 || t->whole != NULL;
}

static sheaf_status *same_panel(bool *same, merger *m, sheaf__merge_rows *other, int64_t col)
{
    sheaf__merge_rows *rows = &m->workers.rows;
    sheaf__lora_change ignored;
    sheaf_status *st = sheaf__merge_rows_panel(rows, col);
    TRY(st, sheaf__merge_rows_panel(other, col));
    for (int64_t row = 0; row < rows->t->rows && *same && st == NULL; row += rows->t->chunk) {
        const int64_t n =
            rows->t->rows - row < rows->t->chunk ? rows->t->rows - row : rows->t->chunk;
        st = sheaf__stopped(m->workers.stop, "merge");
        TRY(st, sheaf__merge_tile(&ignored, &m->workers.scratch[0], rows, row, n));
        TRY(st, sheaf__merge_tile(&ignored, &m->other, other, row, n));
        if (st == NULL)
            *same = memcmp(m->workers.scratch[0].out, m->other.out,
                           (size_t)(n * rows->cols) * sheaf_dtype_bytes(rows->t->out_dtype)) == 0;
    }
    return st;
}

static sheaf_status *same_result(bool *same, merger *m, sheaf__merge_tensor *first,
                                 sheaf__merge_tensor *other)
{
    sheaf__merge_plan *p = &m->plan;
    *same = !changed(first) && !changed(other);
    if (*same || !changed(first) || !changed(other) || first->rows != other->rows ||
        first->panel != other->panel || first->chunk != other->chunk)
        return NULL;
    sheaf__merge_rows rows = { .other_copy = &m->workers.other_copy };
    *same = true;
    sheaf_status *st = sheaf__merge_norms(&m->workers, other);
    TRY(st, sheaf__merge_norms(&m->workers, first));
    TRY(st, sheaf__merge_rows_init(&rows, p->base, m->workers.rows.mode, m->workers.rows.cpu));
    m->workers.rows.t = first;
    rows.t = other;
    for (int64_t col = 0; col < first->cols && *same && st == NULL; col += first->panel)
        st = same_panel(same, m, &rows, col);
    sheaf__merge_rows_release(&rows);
    return st;
}

/* Two names whose tensors turn out equal are one tensor again, and stay tied. */
static sheaf_status *join_if_equal(merger *m)
{
    sheaf__merge_plan *p = &m->plan;
    bool same = !p->tied_inside;
    sheaf_status *st = NULL;
    if (p->tie.first != NULL && same)
        st = same_result(&same, m, sheaf__merge_find(p, p->tie.first),
                         sheaf__merge_find(p, p->tie.other));
    if (st == NULL && same)
        sheaf__merge_drop_names(p);
    return st;
}

/* ---- output ---- */

static sheaf_status *begin_output(merger *m, const sheaf_weights_merge_options *o)
{
    const sheaf__merge_plan *p = &m->plan;
    char *json = p->config != NULL ? strdup(p->config) : NULL, *typed = NULL;
    sheaf_status *st = p->config != NULL && json == NULL ? sheaf__no_memory("config.json") : NULL;
    if (json != NULL && m->report->untied)
        st = sheaf__merge_untie(&json);
    if (st == NULL && json != NULL && o->dtype != SHEAF_BOOL) {
        st = sheaf_hf_config_with_dtype(&typed, json, o->dtype);
        free(json);
        json = typed;
    }
    if (st == NULL && json != NULL && p->resized > 0)
        st = sheaf__merge_set_vocabulary(&json, p);
    if (st == NULL && json != NULL && p->quantization != NULL && p->requantise)
        st = sheaf_hf_config_change(&json, "quantization_config", p->quantization);
    TRY(st, sheaf__merge_output_begin(&m->output, p, json, o));
    free(json);
    return st;
}

/* ---- copied tensors ---- */

static sheaf_status *put_copy(void *context, int64_t index, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, const void *src)
{
    const merger *m = context;
    return sheaf__merge_put(&m->output, index, row0, rows, col0, cols, src);
}

static sheaf_status *
copy(merger *m, sheaf_source *source, const sheaf_source_entry *entry, int64_t count,
     sheaf_status *(*put)(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                          int64_t cols, const void *src),
     void *context)
{
    return sheaf__copy_all(&(sheaf_copy_job){ .source = source,
                                              .entry = entry,
                                              .count = count,
                                              .put = put,
                                              .context = context,
                                              .threads = m->workers.threads,
                                              .stop = m->workers.stop,
                                              .command = "merge",
                                              .events = m->events,
                                              .done = &m->done,
                                              .total = m->total,
                                              .what = "bytes merged" });
}

static sheaf_status *copy_untouched(merger *m)
{
    sheaf_source_entry *entry = calloc((size_t)m->plan.count + 1, sizeof *entry);
    if (entry == NULL)
        return sheaf__no_memory("merge");
    for (int64_t i = 0; i < m->plan.count; i++) {
        const sheaf__merge_tensor *t = &m->plan.tensor[i];
        if (sheaf__merge_touched(t) || t->rows * t->cols == 0)
            continue;
        m->report->tensors++;
        if (!t->kept)
            entry[i] = *t->base;
    }
    sheaf_status *st = copy(m, m->plan.base, entry, m->plan.count, put_copy, m);
    if (st == NULL && m->output.kept.count > 0)
        st = copy(m, m->plan.files, m->output.kept.entry, m->output.kept.count,
                  sheaf__merge_kept_put, &m->output);
    free(entry);
    return st;
}

/* ---- computed tensors ---- */

static sheaf_status *write_tile(merger *m, const sheaf__merge_scratch *s, int64_t row0,
                                int64_t rows)
{
    const sheaf__merge_rows *r = &m->workers.rows;
    const sheaf__merge_tensor *t = r->t;
    if (t->ndim <= 2)
        return sheaf__merge_put(&m->output, m->at, row0, rows, r->col0, r->cols, s->out);
    const int64_t last = t->shape[t->ndim - 1], inner = t->cols / last;
    if (r->cols == t->cols)
        return sheaf__merge_put(&m->output, m->at, row0 * inner, rows * inner, 0, last, s->out);
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < rows && st == NULL; i++)
        st = sheaf__merge_put(
            &m->output, m->at, (row0 + i) * inner + r->col0 / last, r->cols / last, 0, last,
            (const char *)s->out + (size_t)(i * r->cols) * sheaf_dtype_bytes(t->out_dtype));
    return st;
}

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    merger *m = context;
    sheaf__merge_scratch *s = &m->workers.scratch[worker];
    sheaf__lora_change change;
    sheaf_status *st = sheaf__stopped(m->workers.stop, "merge");
    TRY(st, sheaf__merge_tile(&change, s, &m->workers.rows, row0, rows));
    TRY(st, write_tile(m, s, row0, rows));
    if (st != NULL)
        return st;
    sheaf__lora_change *sum = &m->change[index];
    sum->changed += change.changed;
    sum->change += change.change;
    sum->base += change.base;
    sheaf__copy_progress(m->events, "bytes merged", &m->done,
                         rows * m->workers.rows.cols *
                             (int64_t)sheaf_dtype_bytes(m->workers.rows.t->out_dtype),
                         m->total);
    return NULL;
}

static void count_tensor(merger *m, const sheaf__merge_tensor *t, const sheaf__lora_change *change)
{
    sheaf_weights_merge_report *report = m->report;
    bool replaced = t->saved, adapted = false;
    for (int i = 0; i < t->nsteps; i++) {
        replaced |= t->step[i].kind == SHEAF__MERGE_PICKS;
        adapted |= t->step[i].kind != SHEAF__MERGE_PICKS;
    }
    report->tensors++;
    report->requantised += t->requantised;
    report->adapted += adapted;
    report->replaced += replaced;
    report->changed += change->changed > 0;
    report->elements_changed += change->changed;
    if (adapted && !replaced) {
        report->elements_adapted += t->rows * t->cols;
        report->elements_kept += t->rows * t->cols - change->changed;
    }
    report->change_norm += change->change; /* squared until the end */
    report->base_norm += change->changed > 0 ? change->base : 0;
    if (atomic_exchange(&m->workers.other_copy, false))
        sheaf_note(
            m->events,
            "%s: the adapter's own copy of this table differs from the base's and was used, as PEFT does",
            t->name);
}

static void count_all(merger *m)
{
    m->report->change_norm = sqrt(m->report->change_norm);
    m->report->base_norm = sqrt(m->report->base_norm);
    m->report->bytes = m->output.quantising != NULL ? sheaf__packer_bytes(m->output.quantising)
                                                    : atomic_load(&m->done);
}

static sheaf_status *one_tensor(merger *m)
{
    sheaf__merge_tensor *t = &m->plan.tensor[m->at];
    const int64_t chunks = sheaf__stream_chunks(t->rows, t->chunk);
    if (!sheaf__merge_touched(t))
        return NULL;
    m->workers.rows.t = t;
    sheaf_status *st = sheaf__merge_norms(&m->workers, t);
    memset(m->change, 0, (size_t)chunks * sizeof *m->change);
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__merge_rows_panel(&m->workers.rows, col);
        TRY(st, sheaf__stream_rows(m->workers.pool, t->rows, t->chunk, one_chunk, m));
    }
    sheaf__lora_change change = { 0 };
    for (int64_t i = 0; i < chunks && st == NULL; i++) {
        change.changed += m->change[i].changed;
        change.change += m->change[i].change;
        change.base += m->change[i].base;
    }
    if (st == NULL)
        count_tensor(m, t, &change);
    return st;
}

/* ---- the end ---- */

typedef struct syncing {
    pthread_t thread;
    sheaf__merge_output *output;
    sheaf_status *st;
    bool started;
} syncing;

static void *sync_shards(void *context)
{
    syncing *s = context;
    s->st = sheaf__merge_output_sync(s->output);
    return NULL;
}

/* The disk syncs while the output is checked. */
static void start_sync(syncing *s)
{
    sigset_t all, before;
    sigfillset(&all); /* signals go to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->started = sheaf__thread_start(&s->thread, sync_shards, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static sheaf_status *check_output(merger *m, const char *dst)
{
    sheaf_source *written = NULL;
    sheaf_status *st = sheaf__merge_output_open(&written, &m->output);
    TRY(st, sheaf__merge_check_rows(&m->workers, &m->plan, written, m->report));
    TRY(st, sheaf__merge_check_products(&m->workers, &m->plan, written, m->report));
    TRY(st, sheaf__merge_check_requantised(&m->workers, &m->plan, written, m->report));
    if (written != NULL)
        written->close(written);
    return sheaf_in(st, "%s", dst);
}

static sheaf_status *finish(merger *m, const char *dst)
{
    syncing sync = { .output = &m->output };
    sheaf_status *st = sheaf__merge_output_finish(&m->output);
    if (st != NULL)
        return st;
    start_sync(&sync);
    st = check_output(m, dst);
    if (sync.started)
        pthread_join(sync.thread, NULL);
    st = sheaf__first_of(st, sync.st);
    TRY(st, sheaf__stopped(m->workers.stop, "merge"));
    return st != NULL ? st : sheaf__merge_output_commit(&m->output);
}

/* Notes which order of sums was used where it matters, and where PEFT's is not known. */
static void report_order(const merger *m)
{
    const sheaf__merge_rows *r = &m->workers.rows;
    const sheaf__merge_step *odd = NULL;
    int64_t high = 0, unknown = 0;
    for (int64_t i = 0; i < m->plan.count && r->mode != SHEAF_MERGE_ROUND_ONCE; i++)
        for (int k = 0; k < m->plan.tensor[i].nsteps; k++) {
            const sheaf__merge_step *s = &m->plan.tensor[i].step[k];
            if (s->kind != SHEAF__MERGE_DELTA)
                continue;
            const int64_t in = sheaf__elements(s->a->ndim - 1, s->a->shape + 1);
            high += s->rank > 192;
            if (sheaf__peft_known(r->cpu, s->rank, s->b->shape[0], in,
                                  sheaf__merge_has_kernel(s) ? s->a->shape[1] : 0))
                continue;
            odd = unknown++ == 0 ? s : odd;
        }
    if (high > 0)
        sheaf_note(
            m->events,
            "ranks above 192 are summed as PEFT does on %s; PEFT's bits depend on its processor (`peft-cpu`)",
            sheaf__peft_cpu_name(r->cpu));
    if (unknown > 0)
        sheaf_warn(m->events,
                   "PEFT's order of sums on %s is not known for %" PRId64
                   " of the changes ('%s', rank %" PRId64
                   " ...): their last bits may differ from its",
                   sheaf__peft_cpu_name(r->cpu), unknown, odd->a->name, odd->rank);
}

static sheaf_status *merger_open(merger *m, const sheaf_weights_merge_options *o)
{
    sheaf_status *st = sheaf__merge_plan_open(&m->plan, o);
    TRY(st, sheaf__merge_workers_init(&m->workers, &m->plan, o));
    TRY(st, sheaf__merge_scratch_init(&m->other));
    TRY(st, join_if_equal(m));
    m->report->untied = st == NULL && m->plan.tie.first != NULL;
    m->report->base_quantised = m->plan.nquantised;
    TRY(st, sheaf__merge_plan_finish(&m->plan));
    int64_t chunks = 1;
    for (int64_t i = 0; i < m->plan.count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &m->plan.tensor[i];
        const int64_t n = sheaf__merge_touched(t) ? sheaf__stream_chunks(t->rows, t->chunk) : 0;
        chunks = n > chunks ? n : chunks;
        m->total += t->rows * t->cols * (int64_t)sheaf_dtype_bytes(t->out_dtype);
    }
    if (st == NULL && (m->change = calloc((size_t)chunks, sizeof *m->change)) == NULL)
        st = sheaf__no_memory("merge");
    return st;
}

/* Weights in 4 or 8 bits have few values: quantised again, they may move back, or further than the
 * adapter moved them. */
static void warn_of_codes(const merger *m)
{
    const sheaf_weights_merge_report *r = m->report;
    const double change =
        r->elements_adapted > 0 ? r->change_norm / sqrt((double)r->elements_adapted) : 0;
    if (r->requantised > 0 && r->changed > 0 && r->requantise_mean > change / 2)
        sheaf_warn(m->events,
                   "quantising again moved the changed weights by %.3g on average, the adapter by "
                   "%.3g: base + adapter is not what was written; without `requantize` it is",
                   r->requantise_mean, change);
}

/* Changes below the spacing of a 16-bit type are lost: the merged model is then not the trained
 * one. */
static void warn_of_loss(const merger *m)
{
    const sheaf_weights_merge_report *r = m->report;
    if (r->changed == 0) {
        sheaf_warn(
            m->events,
            "the adapter changes nothing: its B is zero, or too small for the weights' type");
    } else if (r->elements_kept > r->elements_adapted / 2) {
        sheaf_warn(
            m->events,
            "%.0f %% of the adapted weights keep their bits: the change is smaller than what their "
            "type can represent, so base + adapter is not what was merged; `dtype float32` keeps it "
            "(float16 keeps eight times smaller changes than bfloat16), or answer with the "
            "adapter unmerged (`adapter`)",
            100 * (double)r->elements_kept / (double)r->elements_adapted);
    }
}

sheaf_status *sheaf_merge(sheaf_weights_merge_report *report,
                          const sheaf_weights_merge_options *given)
{
    sheaf_weights_merge_options with = *given;
    const sheaf_weights_merge_options *options = &with;
    merger m = { .report = report, .events = options->events };
    *report = (sheaf_weights_merge_report){ 0 };
    with.peft_cpu = sheaf__peft_cpu(with.peft_cpu);
    sheaf_status *st = sheaf_merge_check_base(options);
    TRY(st, sheaf__merge_check_dst(options));
    TRY(st, merger_open(&m, options));
    if (st == NULL) {
        report_order(&m);
        st = begin_output(&m, options);
    }
    TRY(st, copy_untouched(&m));
    for (m.at = 0; m.at < m.plan.count && st == NULL; m.at++)
        st = one_tensor(&m);
    if (st == NULL)
        count_all(&m);
    TRY(st, finish(&m, options->dst));
    if (st == NULL) {
        warn_of_loss(&m);
        warn_of_codes(&m);
    }
    merger_close(&m);
    return st;
}
