/* merge_norms.c - norms of rows or columns for DoRA; see merge_work.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/merge_work.h"
#include "checkpoint/stream.h"

enum { GROUP = 16 }; /* chunks whose sums of columns are held at a time */

typedef struct norms {
    sheaf__merge_crew *crew;
    int step;
    double *squares; /* of all rows or columns */
    double *part;    /* [GROUP, columns of the panel] */
    int64_t group;   /* first row of it */
} norms;

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    norms *n = context;
    sheaf__merge_rows *m = &n->crew->rows;
    sheaf__merge_scratch *s = &n->crew->scratch[worker];
    const int64_t cols = m->cols;
    row0 += n->group;
    sheaf_status *st = sheaf__merge_stopped(n->crew);
    if (st == NULL)
        st = sheaf__merge_sum(s, m, row0, rows, n->step);
    if (st != NULL)
        return st;
    if (!m->t->step[n->step].across) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                n->squares[row0 + i] += (double)s->w[i * cols + j] * (double)s->w[i * cols + j];
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
    const sheaf__merge_rows *m = &n->crew->rows;
    const sheaf__merge_tensor *t = m->t;
    const int64_t chunk = t->chunk;
    sheaf_status *st = NULL;
    if (!t->step[n->step].across) {
        n->group = 0;
        return sheaf__stream_rows(n->crew->pool, t->rows, chunk, one_chunk, n);
    }
    for (n->group = 0; n->group < t->rows && st == NULL; n->group += GROUP * chunk) {
        const int64_t rows = t->rows - n->group < GROUP * chunk ? t->rows - n->group : GROUP * chunk;
        st = sheaf__stream_rows(n->crew->pool, rows, chunk, one_chunk, n);
        for (int64_t g = 0; g < sheaf__stream_chunks(rows, chunk); g++)
            for (int64_t j = 0; j < m->cols; j++)
                n->squares[m->col0 + j] += n->part[g * m->cols + j];
    }
    return st;
}

/* Magnitudes in any shape, [out] or [1, out, 1, 1], are one run of numbers. */
static sheaf_status *read_magnitudes(float *out, sheaf__merge_crew *crew, const sheaf__merge_step *s, int64_t n)
{
    const sheaf_source_entry *e = s->magnitude;
    int64_t rows = 1, cols = 1;
    for (int i = 0; i < e->ndim; i++)
        *(i > 0 && i == e->ndim - 1 ? &cols : &rows) *= e->shape[i];
    void *stored = malloc((size_t)n * 4 + 1);
    if (stored == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", e->name);
    sheaf_status *st = s->adapter->read(s->adapter, e->name, 0, rows, 0, cols, stored);
    if (st == NULL)
        crew->rows.kernels->convert(out, SHEAF_F32, stored, e->dtype, n);
    free(stored);
    return st;
}

static sheaf_status *one_step(sheaf__merge_crew *crew, sheaf__merge_tensor *t, int number)
{
    sheaf__merge_step *s = &t->step[number];
    const int64_t n = s->across ? t->cols : t->rows;
    norms work = { .crew = crew, .step = number };
    float *factor = malloc((size_t)n * sizeof *factor + 1);
    work.squares = calloc((size_t)n + 1, sizeof *work.squares);
    work.part = s->across ? malloc((size_t)(GROUP * t->panel) * sizeof *work.part + 1) : NULL;
    sheaf_status *st = factor == NULL || work.squares == NULL || (s->across && work.part == NULL)
                           ? sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->name) : NULL;
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__merge_rows_panel(&crew->rows, col);
        if (st == NULL)
            st = one_panel(&work);
    }
    if (st == NULL)
        st = read_magnitudes(factor, crew, s, n);
    for (int64_t i = 0; i < n && st == NULL; i++)
        factor[i] /= (float)sqrt(work.squares[i]);
    free(work.squares);
    free(work.part);
    if (st == NULL)
        s->factor = factor;
    else
        free(factor);
    return st;
}

sheaf_status *sheaf__merge_norms(sheaf__merge_crew *crew, sheaf__merge_tensor *t)
{
    sheaf_status *st = NULL;
    crew->rows.t = t;
    for (int i = 0; i < t->nsteps && st == NULL; i++)
        if (t->step[i].magnitude != NULL)
            st = one_step(crew, t, i);
    return st;
}
