/* check.c - is the output right? See plan.h.
 *
 * Two checks for different faults: rows read back must equal rows computed again bit for bit
 * (memory, disk), and products with a random vector must agree with those of base plus unmerged
 * adapter in double (formulas, orientation, scale), in a sample of large tensors. With x of random
 * signs the rounding errors e of one row give a sum of e_j x_j that passes t times the root of the
 * sum of their squared bounds with probability 2 exp(-t^2 / 2), whatever they are. */
#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "base/random.h"
#include "checkpoint/merge/plan.h"
#include "checkpoint/store/stream.h"

static const double most_ratio = 8; /* a false alarm in 1 of 10^13 rows */

/* ---- rows read back ---- */

static const sheaf_source_entry *entry_of(sheaf_source *written, const sheaf__merge_tensor *t)
{
    return written->find(written, t->name);
}

static sheaf_status *compare_rows(sheaf__merge_workers *workers, sheaf_source *written,
                                  int64_t row0, int64_t rows)
{
    const sheaf__merge_rows *m = &workers->rows;
    sheaf__merge_scratch *s = &workers->scratch[0];
    const size_t size = sheaf_dtype_bytes(m->t->out_dtype), bytes = (size_t)(rows * m->cols) * size;
    const sheaf_source_entry *e = entry_of(written, m->t);
    sheaf__lora_change change;
    sheaf_status *st;
    if (e == NULL)
        return sheaf_fail(SHEAF_E_IO, "'%s' is not in what was written", m->t->name);
    if (sheaf__merge_touched(m->t))
        st = sheaf__merge_tile(&change, s, &workers->rows, row0, rows);
    else
        st = sheaf__lora_read_view(m->base, m->t->base, row0, rows, m->col0, m->cols, s->out);
    TRY(st, sheaf__lora_read_view(written, e, row0, rows, m->col0, m->cols, s->w));
    if (st != NULL || memcmp(s->w, s->out, bytes) == 0)
        return st;
    st = sheaf_fail(SHEAF_E_IO, "'%s', rows %" PRId64 " to %" PRId64, m->t->name, row0,
                    row0 + rows - 1);
    sheaf_expected(st, "the written values to read back as computed");
    return sheaf_try_this(st, "this output is not kept; suspect memory or disk of this machine");
}

static sheaf_status *check_tensor(sheaf__merge_workers *workers, const sheaf__merge_tensor *t,
                                  sheaf_source *written, int64_t *checked)
{
    const int64_t some = t->cols == 1 ? t->chunk : 1; /* of vectors a run of elements */
    const int64_t picks[3] = { 0, (t->rows - some) / 2, t->rows - some };
    workers->rows.t = t;
    sheaf_status *st = NULL;
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__stopped(workers->stop, "merge");
        TRY(st, sheaf__merge_rows_panel(&workers->rows, col));
        for (int i = 0; i < 3 && st == NULL; i++)
            if (i == 0 || picks[i] != picks[i - 1]) {
                st = compare_rows(workers, written, picks[i], some);
                *checked += col == 0 ? some : 0;
            }
    }
    return st;
}

sheaf_status *sheaf__merge_check_rows(sheaf__merge_workers *workers, const sheaf__merge_plan *plan,
                                      sheaf_source *written, sheaf_weights_merge_report *report)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < plan->count && st == NULL; i++)
        if (plan->tensor[i].rows > 0 && plan->tensor[i].panel > 0 && !plan->tensor[i].requantised)
            st = check_tensor(workers, &plan->tensor[i], written, &report->rows_checked);
    return st;
}

/* ---- products ---- */

typedef struct products {
    sheaf__merge_workers *workers;
    const sheaf__merge_tensor *t;
    sheaf_source *written;
    const sheaf_source_entry *entry;
    int64_t width, wide;    /* of a panel; of x, which repeats */
    double *x;              /* [nsteps + 1][wide]: what step i and all before it multiply */
    double *g, *norm;       /* [ranks], one step after the other: R x, and the norms of R's rows */
    double unit, tiny;      /* relative rounding of the output, and its smallest step */
    bool exact, magnitudes; /* a mode that rounds at each step; DoRA */
    int64_t every, phase;   /* chunks with number % every == phase are checked */
    pthread_mutex_t lock;
    double worst;
    int64_t rows; /* checked */
} products;

/* Reading all of base and output once more would take as long as the merge. A wrong formula,
 * orientation or scale shows in any row, so every eighth chunk of a large tensor is checked,
 * beginning with a random one. */
enum { SPARSE = 8, FEW_CHUNKS = 4 * SPARSE };

static double unit_of(sheaf_dtype dtype)
{
    return dtype == SHEAF_BF16 ? 0x1p-8 : dtype == SHEAF_F16 ? 0x1p-11 : 0x1p-24;
}

static void random_signs(double *x, int64_t n, const char *name)
{
    const uint64_t key = sheaf__name_key(name);
    uint32_t bits = 0;
    for (int64_t j = 0; j < n; j++, bits >>= 1) {
        if (j % 32 == 0)
            bits = sheaf__random_tensor_u32(1, key, (uint64_t)(j / 32));
        x[j] = (bits & 1) != 0 ? 1 : -1;
    }
}

/* g = R x and the norms of R's rows, of every step. */
static sheaf_status *right_products(products *p)
{
    const sheaf__merge_tensor *t = p->t;
    sheaf__merge_rows *m = &p->workers->rows;
    sheaf_status *st = NULL;
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__merge_rows_panel(m, col);
        const float *packed = m->right;
        for (int64_t i = 0, at = 0; i < t->nsteps && st == NULL; at += t->step[i++].rank) {
            const int64_t rank = t->step[i].rank;
            for (int64_t j = 0; j < m->cols; j++)
                for (int64_t k = 0; k < rank; k++) {
                    const double r = (double)packed[(j / 16 * rank + k) * 16 + j % 16];
                    p->g[at + k] += r * p->x[i * p->wide + (col + j) % p->wide];
                    p->norm[at + k] += r * r;
                }
            packed += sheaf__lora_packed_floats(rank, m->cols);
        }
    }
    for (int64_t k = 0; k < t->ranks; k++)
        p->norm[k] = sqrt(p->norm[k]);
    return st;
}

/* The written values, as float32 in s->w; of weights that were quantised again the values before
 * that: their codes are compared (requantise.c). */
static sheaf_status *read_written(const products *p, sheaf__merge_scratch *s, sheaf__merge_rows *m,
                                  int64_t row0, int64_t rows)
{
    sheaf__lora_change ignored;
    if (p->t->requantised) {
        sheaf_status *st = sheaf__merge_tile(&ignored, s, m, row0, rows);
        if (st == NULL)
            memcpy(s->w, s->out, (size_t)(rows * m->cols) * sizeof *s->w);
        return st;
    }
    sheaf_status *st =
        sheaf__lora_read_view(p->written, p->entry, row0, rows, m->col0, m->cols, s->stored);
    if (st == NULL)
        m->kernels->convert(s->w, SHEAF_F32, s->stored, p->entry->dtype, rows * m->cols);
    return st;
}

/* Sums of one row over all columns: base times x[0], written times x[nsteps], squares of what was
 * written. */
static sheaf_status *row_sums(products *p, sheaf__merge_scratch *s, int64_t row0, int64_t rows)
{
    sheaf__merge_rows m = p->workers->rows; /* with this thread's own panel */
    double *sum = s->sums, ignored = 0;
    sheaf_status *st = NULL;
    memset(sum, 0, (size_t)(rows * 3) * sizeof *sum);
    for (int64_t col = 0; col < p->t->cols && st == NULL; col += p->width) {
        m.col0 = col;
        m.cols = p->t->cols - col < p->width ? p->t->cols - col : p->width;
        st = sheaf__merge_start(s, &m, row0, rows);
        const int64_t at =
            p->wide == p->width ? 0 : col; /* x repeats, or is as wide as the tensor */
        for (int64_t i = 0; i < rows && st == NULL; i++)
            sheaf__lora_dot(&sum[i * 3], &ignored, s->w + i * m.cols, p->x + at, m.cols);
        TRY(st, read_written(p, s, &m, row0, rows));
        for (int64_t i = 0; i < rows && st == NULL; i++)
            sheaf__lora_dot(&sum[i * 3 + 1], &sum[i * 3 + 2], s->w + i * m.cols,
                            p->x + p->t->nsteps * p->wide + at, m.cols);
    }
    return st;
}

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    products *p = context;
    const sheaf__merge_tensor *t = p->t;
    sheaf__merge_scratch *s = &p->workers->scratch[worker];
    sheaf_status *st = sheaf__stopped(p->workers->stop, "merge");
    if (st == NULL && index % p->every != p->phase)
        return NULL;
    TRY(st, row_sums(p, s, row0, rows));
    double *sum = s->sums, *bound = s->sums + rows * 3, worst = 0;
    memset(bound, 0, (size_t)rows * sizeof *bound);
    const double *g = p->g, *norms = p->norm;
    for (int k = 0; k < t->nsteps && st == NULL; k++) {
        const sheaf__merge_step *step = &t->step[k];
        st = sheaf__merge_left(s, &p->workers->rows, step, row0, rows);
        for (int64_t i = 0; i < rows && st == NULL; i++) {
            double change = 0, size = 0;
            for (int64_t r = 0; r < step->rank; r++) {
                const double left = (double)s->left[i * step->rank + r] * (double)step->scale;
                change += left * g[r];
                size += fabs(left) * norms[r];
            }
            const double factor =
                step->factor != NULL && !step->across ? (double)step->factor[row0 + i] : 1;
            sum[i * 3] = (sum[i * 3] + change) * factor;
            /* rounding of the product's float32 chains, and of the change where it is rounded on
             * its own */
            bound[i] = (bound[i] +
                        (((double)step->rank + 4) * 0x1p-24 + (p->exact ? p->unit : 0)) * size) *
                       fabs(factor);
        }
        g += step->rank;
        norms += step->rank;
    }
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        const double norm = sqrt(sum[i * 3 + 2]), steps = t->nsteps;
        const double expected = norm * (p->unit * (p->exact ? steps : 1) + 0x1p-23 * steps) +
                                bound[i] +
                                (p->magnitudes ? 0x1p-21 * (norm + fabs(sum[i * 3])) : 0) +
                                sqrt((double)t->cols) * p->tiny + 1e-300;
        const double ratio = fabs(sum[i * 3 + 1] - sum[i * 3]) /
                             (expected * sqrt(ceil((double)t->cols / (double)p->wide)));
        worst = ratio > worst || isnan(ratio) ? ratio : worst;
    }
    pthread_mutex_lock(&p->lock);
    p->worst = worst > p->worst || isnan(worst) ? worst : p->worst;
    p->rows += rows;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static sheaf_status *make_vectors(products *p)
{
    const sheaf__merge_tensor *t = p->t;
    const int64_t n = (t->nsteps + 1) * p->wide;
    p->x = calloc((size_t)(n + 2 * t->ranks), sizeof *p->x);
    if (p->x == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->name);
    p->g = p->x + n;
    p->norm = p->g + t->ranks;
    random_signs(p->x + n - p->wide, p->wide, t->name);
    for (int i = t->nsteps - 1; i >= 0; i--) {
        const sheaf__merge_step *s = &t->step[i];
        double *x = p->x + i * p->wide, *next = x + p->wide;
        for (int64_t j = 0; j < p->wide; j++)
            x[j] = next[j] * (s->across && s->factor != NULL ? (double)s->factor[j] : 1);
    }
    return right_products(p);
}

static sheaf_status *wrong_product(const sheaf__merge_tensor *t, double ratio)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "'%s': products with a random vector", t->name);
    sheaf_expected(st, "those of base and adapter, to within rounding");
    sheaf_found(st, "a difference of %.3g times the rounding expected", ratio);
    return sheaf_try_this(
        st,
        "this output is not kept; suspect memory or disk of this machine, and report it if it comes again");
}

static sheaf_status *check_products(sheaf__merge_workers *workers, const sheaf__merge_tensor *t,
                                    sheaf_source *written, double *worst, int64_t *rows)
{
    products p = { .workers = workers,
                   .t = t,
                   .written = written,
                   .entry = entry_of(written, t),
                   .lock = PTHREAD_MUTEX_INITIALIZER };
    const int64_t last = t->ndim > 2 ? t->shape[t->ndim - 1] : 1;
    p.unit = unit_of(t->out_dtype);
    p.tiny = t->out_dtype == SHEAF_F16 ? 0x1p-25 : 0x1p-130;
    p.exact = workers->rows.mode != SHEAF_MERGE_ROUND_ONCE;
    p.width = p.wide = t->cols < SHEAF__MERGE_TILE ? t->cols : SHEAF__MERGE_TILE / last * last;
    for (int i = 0; i < t->nsteps; i++) {
        p.magnitudes |= t->step[i].factor != NULL;
        if (t->step[i].factor != NULL && t->step[i].across)
            p.wide = t->cols;
    }
    workers->rows.t = t;
    sheaf_status *st =
        p.entry != NULL ? NULL : sheaf_fail(SHEAF_E_IO, "'%s' is not in what was written", t->name);
    TRY(st, make_vectors(&p));
    int64_t chunk = SHEAF__MERGE_TILE / (p.width > 8 ? p.width : 8); /* four sums a row */
    chunk = chunk < t->chunk ? chunk : t->chunk;
    p.every = sheaf__stream_chunks(t->rows, chunk) > FEW_CHUNKS ? SPARSE : 1;
    p.phase = (int64_t)(sheaf__name_key(t->name) % (uint64_t)p.every);
    TRY(st, sheaf__stream_rows(workers->pool, t->rows, chunk, one_chunk, &p));
    pthread_mutex_destroy(&p.lock);
    *worst = p.worst;
    *rows += p.rows;
    free(p.x);
    return st != NULL || p.worst <= most_ratio ? st : wrong_product(t, p.worst);
}

/* Quantised again, and too wide to be computed in one panel. */
static bool in_panels(const sheaf__merge_tensor *t)
{
    return t->requantised && t->panel < t->cols;
}

/* A tensor whose rows are replaced, not added to, has been compared row by row. */
static bool has_product(const sheaf__merge_tensor *t)
{
    bool yes = t->nsteps > 0 && t->rows > 0 && t->cols > 0 && !in_panels(t);
    for (int i = 0; i < t->nsteps; i++)
        yes = yes && t->step[i].kind == SHEAF__MERGE_DELTA;
    return yes;
}

sheaf_status *sheaf__merge_check_products(sheaf__merge_workers *workers,
                                          const sheaf__merge_plan *plan, sheaf_source *written,
                                          sheaf_weights_merge_report *report)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < plan->count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &plan->tensor[i];
        double worst = 0;
        if (!has_product(t))
            continue;
        st = check_products(workers, t, written, &worst, &report->products_checked);
        if (worst >= report->worst_product) {
            report->worst_product = worst;
            snprintf(report->worst_tensor, sizeof report->worst_tensor, "%s", t->name);
        }
    }
    return st;
}
