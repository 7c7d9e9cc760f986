/* norms.c - norms of rows or columns for DoRA; see plan.h. */
#include <math.h>

#include "base/base.h"
#include "checkpoint/merge/plan.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/stream.h"

enum {
    GROUP = 16, /* chunks whose sums of columns are held at a time */
    LANES = 8,  /* partial sums of a row in torch's vector_norm */
};

typedef struct norms {
    sheaf__merge_workers *workers;
    int step;
    double *squares; /* of all columns */
    double *part;    /* [GROUP, columns of the panel] */
    float *lane;     /* instead of both, in torch's order: [rows, LANES], or one sum per column */
    int64_t group;   /* its first row */
} norms;

/* The order of torch 2.x on CPUs: column c of a row goes to sum c % LANES, the sums are added in
 * turn, then the rest of the row; a column is one sum from its top. float32, no fused
 * multiply-add. */
static void add_as_torch(norms *n, const float *w, int64_t row0, int64_t rows)
{
    const sheaf__merge_rows *m = &n->workers->rows;
    const int64_t cols = m->cols, body = m->t->cols / LANES * LANES;
    for (int64_t i = 0; i < rows; i++, w += cols) {
        float *lane = m->t->step[n->step].across ? n->lane + m->col0 : n->lane + (row0 + i) * LANES;
        for (int64_t j = 0; j < cols; j++) {
            const int64_t c = m->col0 + j;
            if (m->t->step[n->step].across) {
                lane[j] += w[j] * w[j];
                continue;
            }
            for (int k = 1; k < LANES && c == body; k++)
                lane[0] += lane[k];
            lane[c < body ? c % LANES : 0] += w[j] * w[j];
        }
    }
}

static float norm_as_torch(const norms *n, int64_t i)
{
    const sheaf__merge_tensor *t = n->workers->rows.t;
    if (t->step[n->step].across)
        return sqrtf(n->lane[i]);
    const float *lane = n->lane + i * LANES;
    float sum = lane[0];
    for (int k = 1; k < LANES && t->cols % LANES == 0;
         k++) /* otherwise summed before the rest of the row */
        sum += lane[k];
    return sqrtf(sum);
}

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    norms *n = context;
    sheaf__merge_rows *m = &n->workers->rows;
    sheaf__merge_scratch *s = &n->workers->scratch[worker];
    const int64_t cols = m->cols;
    row0 += n->group;
    sheaf_status *st = sheaf__stopped(n->workers->stop, "merge");
    TRY(st, sheaf__merge_sum(s, m, row0, rows, n->step));
    if (st != NULL)
        return st;
    if (n->lane != NULL) {
        add_as_torch(n, s->w, row0, rows);
        return NULL;
    }
    double *sum = n->part + index * cols;
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += (double)s->w[i * cols + j] * (double)s->w[i * cols + j];
    return NULL;
}

static sheaf_status *one_panel(norms *n)
{
    const sheaf__merge_rows *m = &n->workers->rows;
    const sheaf__merge_tensor *t = m->t;
    const int64_t chunk = t->chunk;
    sheaf_status *st = NULL;
    n->group = 0;
    if (!t->step[n->step].across)
        return sheaf__stream_rows(n->workers->pool, t->rows, chunk, one_chunk, n);
    for (int64_t row = 0; n->lane != NULL && row < t->rows && st == NULL;
         row += chunk) /* a column is summed in the order of its rows */
        st = one_chunk(n, row, t->rows - row < chunk ? t->rows - row : chunk, 0, 0);
    for (; n->lane == NULL && n->group < t->rows && st == NULL; n->group += GROUP * chunk) {
        const int64_t rows =
            t->rows - n->group < GROUP * chunk ? t->rows - n->group : GROUP * chunk;
        st = sheaf__stream_rows(n->workers->pool, rows, chunk, one_chunk, n);
        for (int64_t g = 0; g < sheaf__stream_chunks(rows, chunk); g++)
            for (int64_t j = 0; j < m->cols; j++)
                n->squares[m->col0 + j] += n->part[g * m->cols + j];
    }
    return st;
}

/* Magnitudes of any shape, [out] or [1, out, 1, 1], are read as one flat array. */
static sheaf_status *read_magnitudes(float *out, sheaf__merge_workers *workers,
                                     const sheaf__merge_step *s, int64_t n)
{
    const sheaf_source_entry *e = s->magnitude;
    int64_t rows, cols;
    sheaf__entry_view(&rows, &cols, e);
    void *stored = malloc((size_t)n * 4 + 1);
    if (stored == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", e->name);
    sheaf_status *st = s->adapter->read(s->adapter, e->name, 0, rows, 0, cols, stored);
    if (st == NULL)
        workers->rows.kernels->convert(out, SHEAF_F32, stored, e->dtype, n);
    free(stored);
    return st;
}

static sheaf_status *make_space(norms *w, const sheaf__merge_tensor *t, bool across)
{
    const size_t n = (size_t)(across ? t->cols : t->rows);
    if (!across ||
        w->workers->rows.mode != SHEAF_MERGE_ROUND_ONCE) { /* for a long column doubles are closer,
                                                              and all cores can run */
        w->lane = calloc(n * (across ? 1 : LANES) + 1, sizeof *w->lane);
        return w->lane == NULL ? sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->name) : NULL;
    }
    w->squares = calloc(n + 1, sizeof *w->squares);
    w->part = malloc((size_t)(GROUP * t->panel) * sizeof *w->part + 1);
    return w->squares == NULL || w->part == NULL ? sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->name)
                                                 : NULL;
}

static sheaf_status *one_step(sheaf__merge_workers *workers, sheaf__merge_tensor *t, int number)
{
    sheaf__merge_step *s = &t->step[number];
    const int64_t n = s->across ? t->cols : t->rows;
    norms work = { .workers = workers, .step = number };
    float *factor = malloc((size_t)n * sizeof *factor + 1);
    sheaf_status *st = factor == NULL ? sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->name)
                                      : make_space(&work, t, s->across);
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__merge_rows_panel(&workers->rows, col);
        TRY(st, one_panel(&work));
    }
    TRY(st, read_magnitudes(factor, workers, s, n));
    for (int64_t i = 0; i < n && st == NULL; i++)
        factor[i] /= work.lane != NULL ? norm_as_torch(&work, i) : (float)sqrt(work.squares[i]);
    free(work.lane);
    free(work.squares);
    free(work.part);
    if (st == NULL)
        s->factor = factor;
    else
        free(factor);
    return st;
}

sheaf_status *sheaf__merge_norms(sheaf__merge_workers *workers, sheaf__merge_tensor *t)
{
    sheaf_status *st = NULL;
    workers->rows.t = t;
    for (int i = 0; i < t->nsteps && st == NULL; i++)
        if (t->step[i].magnitude != NULL && t->step[i].factor == NULL) /* a tie may add it later */
            st = one_step(workers, t, i);
    return st;
}
