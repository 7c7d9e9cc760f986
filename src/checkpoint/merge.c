/* merge.c - see merge.h. merge_plan.c decides, merge_rows.c computes, this streams. */
#include "checkpoint/merge.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/merge_plan.h"
#include "checkpoint/stream.h"

/* A few keep any disk busy; each holds some megabytes. */
enum { MOST_THREADS = 16 };

typedef struct merger {
    sheaf__merge_plan plan;
    sheaf__merge_rows rows;
    sheaf__merge_scratch *scratch; /* [threads] */
    int threads;
    sheaf__pool *pool;
    sheaf_folder *folder;
    int64_t at;                    /* the tensor at hand */
    sheaf__merge_stats *stats;     /* one a chunk */
    sheaf__merge_scratch other;    /* for comparing two tensors */
    const sheaf_events *events;
    int64_t done, total;           /* bytes */
} merger;

static void merger_close(merger *m)
{
    sheaf__folder_abandon(m->folder);
    for (int i = 0; m->scratch != NULL && i < m->threads; i++)
        sheaf__merge_scratch_release(&m->scratch[i]);
    free(m->scratch);
    sheaf__merge_scratch_release(&m->other);
    free(m->stats);
    free(m->rows.a);
    free(m->rows.packed);
    sheaf__pool_free(m->pool);
    sheaf__merge_plan_close(&m->plan);
}

static sheaf_status *merger_open(merger *m, const sheaf_merge_options *o)
{
    sheaf_status *st = sheaf__merge_plan_open(&m->plan, o);
    if (st != NULL)
        return st;
    m->events = o->events;
    m->threads = o->threads < 1 ? 1 : o->threads > MOST_THREADS ? MOST_THREADS : o->threads;
    m->rows = (sheaf__merge_rows){ .base = m->plan.base, .adapter = m->plan.adapter,
                                   .kernels = sheaf__kernels_for(NULL), .mode = o->mode };
    if (m->rows.kernels == NULL)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "this processor has no AVX2, FMA and F16C");
    m->scratch = calloc((size_t)m->threads, sizeof *m->scratch);
    int64_t chunks = 1;
    for (int64_t i = 0; i < m->plan.count; i++) {
        const sheaf__merge_tensor *t = &m->plan.tensor[i];
        const int64_t n = sheaf__stream_chunks(t->rows, t->chunk);
        chunks = n > chunks ? n : chunks;
        m->total += t->rows * t->cols * (int64_t)sheaf_dtype_bytes(t->out_dtype);
    }
    m->stats = calloc((size_t)chunks, sizeof *m->stats);
    if (m->scratch == NULL || m->stats == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "merge");
    for (int i = 0; i < m->threads && st == NULL; i++)
        st = sheaf__merge_scratch_init(&m->scratch[i], m->plan.most_elements, m->plan.most_rank);
    return st != NULL ? st : sheaf__pool_new(&m->pool, m->threads);
}

/* ---- a tied table that the adapter names ---- */

static sheaf_status *same_chunk(bool *same, merger *m, const sheaf__merge_tensor *a, const sheaf__merge_tensor *b,
                                int64_t row0, int64_t rows)
{
    sheaf_status *st = sheaf__merge_make(&m->scratch[0], &m->rows, a, row0, rows, false, NULL);
    sheaf__merge_rows other = m->rows;
    other.a = other.packed = NULL;
    if (st == NULL)
        st = sheaf__merge_load_a(&other, b);
    if (st == NULL)
        st = sheaf__merge_make(&m->other, &other, b, row0, rows, false, NULL);
    if (st == NULL)
        *same = memcmp(m->scratch[0].out, m->other.out, (size_t)(rows * a->cols) * sheaf_dtype_bytes(a->out_dtype)) == 0;
    free(other.a);
    free(other.packed);
    return st;
}

/* Two uses that come out equal are one tensor again: leaves the head out and keeps the tie. */
static sheaf_status *join_if_equal(merger *m)
{
    sheaf__merge_plan *p = &m->plan;
    int64_t embed = -1, head = -1;
    for (int64_t i = 0; i < p->count; i++) {
        embed = strcmp(p->tensor[i].name, "model.embed_tokens.weight") == 0 ? i : embed;
        head = strcmp(p->tensor[i].name, "lm_head.weight") == 0 ? i : head;
    }
    if (!p->was_tied || head < 0)
        return NULL;
    const sheaf__merge_tensor a = p->tensor[embed], b = p->tensor[head];
    bool same = true;
    sheaf_status *st = sheaf__merge_scratch_init(&m->other, p->most_elements, p->most_rank);
    if (st == NULL)
        st = sheaf__merge_load_a(&m->rows, &a);
    for (int64_t row = 0; row < a.rows && same && st == NULL; row += a.chunk)
        st = same_chunk(&same, m, &a, &b, row, a.rows - row < a.chunk ? a.rows - row : a.chunk);
    if (st != NULL || !same)
        return st;
    m->total -= b.rows * b.cols * (int64_t)sheaf_dtype_bytes(b.out_dtype);
    p->count--;
    memmove(&p->tensor[head], &p->tensor[head + 1], (size_t)(p->count - head) * sizeof *p->tensor);
    memmove(&p->specs[head], &p->specs[head + 1], (size_t)(p->count - head) * sizeof *p->specs);
    return NULL;
}

/* ---- streaming ---- */

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    merger *m = context;
    const sheaf__merge_tensor *t = &m->plan.tensor[m->at];
    sheaf_status *st = sheaf__merge_make(&m->scratch[worker], &m->rows, t, row0, rows, false, &m->stats[index]);
    return st != NULL ? st : sheaf__folder_write(m->folder, m->at, row0, rows, 0, t->cols, m->scratch[worker].out);
}

static sheaf_status *one_tensor(merger *m, sheaf_merge_report *report)
{
    const sheaf__merge_tensor *t = &m->plan.tensor[m->at];
    sheaf_status *st = sheaf__merge_load_a(&m->rows, t);
    if (st == NULL)
        st = sheaf__stream_rows(m->pool, t->rows, t->chunk, one_chunk, m);
    if (st != NULL)
        return st;
    sheaf__merge_stats sum = { 0 };
    for (int64_t i = 0; i < sheaf__stream_chunks(t->rows, t->chunk); i++) {
        sum.elements_changed += m->stats[i].elements_changed;
        sum.change_squares += m->stats[i].change_squares;
        sum.base_squares += m->stats[i].base_squares;
    }
    report->tensors++;
    report->adapted += t->module != NULL;
    report->replaced += t->saved;
    report->changed += sum.elements_changed > 0;
    report->elements_changed += sum.elements_changed;
    report->change_norm += sum.change_squares; /* the root is taken at the end */
    report->base_norm += sum.base_squares;
    if (t->module != NULL && t->whole != NULL && sum.elements_changed > 0)
        sheaf_note(m->events, "%s: the adapter's own copy of this table was used, as PEFT does", t->name);
    m->done += t->rows * t->cols * (int64_t)sheaf_dtype_bytes(t->out_dtype);
    const sheaf_event event = { .kind = SHEAF_EVENT_PROGRESS, .text = "bytes merged", .done = m->done, .total = m->total };
    sheaf_emit(m->events, &event);
    return NULL;
}

static sheaf_status *begin_output(merger *m, const sheaf_merge_options *o, bool untied)
{
    char *json = strdup(m->plan.config.json), *edited = NULL;
    sheaf_status *st = json != NULL ? NULL : sheaf_fail(SHEAF_E_MEMORY, "config.json");
    if (st == NULL && untied) {
        st = sheaf_hf_config_set(&edited, json, "tie_word_embeddings", "false");
        free(json);
        json = edited;
    }
    if (st == NULL && o->dtype != NULL) {
        st = sheaf_hf_config_with_dtype(&edited, json, *o->dtype);
        free(json);
        json = edited;
    }
    if (st == NULL)
        st = sheaf_hf_begin(&m->folder, o->dst, json, m->plan.specs, m->plan.count, 0, false, o->faults);
    if (st == NULL)
        st = sheaf_hf_copy_extras(m->folder, o->base);
    free(json);
    return st;
}

/* ---- checking what was written ---- */

/* First, middle and last row of every tensor, read back and computed by the definition. */
static sheaf_status *check_tensor(merger *m, sheaf_source *written, const sheaf__merge_tensor *t, void *row,
                                  int64_t *checked)
{
    const int64_t picks[3] = { 0, t->rows / 2, t->rows - 1 };
    sheaf_status *st = sheaf__merge_load_a(&m->rows, t);
    for (int i = 0; i < 3 && st == NULL; i++) {
        st = sheaf__merge_make(&m->scratch[0], &m->rows, t, picks[i], 1, true, NULL);
        if (st == NULL)
            st = written->read(written, t->name, picks[i], 1, 0, t->cols, row);
        if (st == NULL && memcmp(row, m->scratch[0].out, (size_t)t->cols * sheaf_dtype_bytes(t->out_dtype)) != 0) {
            st = sheaf_fail(SHEAF_E_IO, "'%s', row %" PRId64, t->name, picks[i]);
            sheaf_expected(st, "what was written to read back as computed");
            return sheaf_try_this(st, "do not use this output; suspect memory or disk of this machine");
        }
        ++*checked;
    }
    return st;
}

static sheaf_status *check_output(merger *m, const char *dst, int64_t *checked)
{
    sheaf_source *written = NULL;
    sheaf_status *st = sheaf_hf_open(&written, dst);
    void *row = malloc((size_t)m->plan.most_elements * 8);
    if (st == NULL && row == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "merge");
    for (int64_t i = 0; i < m->plan.count && st == NULL; i++)
        if (m->plan.tensor[i].rows > 0 && m->plan.tensor[i].cols > 0)
            st = check_tensor(m, written, &m->plan.tensor[i], row, checked);
    free(row);
    if (written != NULL)
        written->close(written);
    return sheaf_in(st, "%s", dst);
}

sheaf_status *sheaf_merge(sheaf_merge_report *report, const sheaf_merge_options *options)
{
    merger m = { 0 };
    *report = (sheaf_merge_report){ 0 };
    sheaf_status *st = merger_open(&m, options);
    if (st == NULL)
        st = join_if_equal(&m);
    bool head = false;
    for (int64_t i = 0; st == NULL && i < m.plan.count; i++)
        head |= strcmp(m.plan.tensor[i].name, "lm_head.weight") == 0;
    report->untied = head && m.plan.was_tied;
    if (st == NULL)
        st = begin_output(&m, options, report->untied);
    for (m.at = 0; m.at < m.plan.count && st == NULL; m.at++)
        st = one_tensor(&m, report);
    report->change_norm = sqrt(report->change_norm);
    report->base_norm = sqrt(report->base_norm);
    report->bytes = m.done;
    if (st == NULL) {
        sheaf_folder *folder = m.folder;
        m.folder = NULL;
        st = sheaf__folder_commit(folder);
    }
    if (st == NULL)
        st = check_output(&m, options->dst, &report->rows_checked);
    if (st == NULL && report->changed == 0)
        sheaf_warn(options->events, "the adapter changes nothing: its B is zero, or too small for the weights' type");
    merger_close(&m);
    return st;
}
