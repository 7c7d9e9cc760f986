/* rows.c - the rows of a merged tensor: read, changed, written; see plan.h. */
#include "checkpoint/merge/plan.h"

#include <math.h>

#include "base/base.h"
#include "base/thread.h"
#include "catalog/boxes.h"
#include "ops/quant/values.h"

static void set_view(sheaf__merge_tensor *t)
{
    t->rows = t->ndim > 0 ? t->shape[0] : 1;
    t->cols = sheaf__elements(t->ndim - 1, t->shape + 1);
}

sheaf__merge_tensor *sheaf__merge_find(sheaf__merge_plan *p, const char *name)
{
    return SHEAF_FIND(sheaf__merge_tensor, name, p->tensor, p->count, name);
}

bool sheaf__merge_is_float(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16;
}

sheaf__merge_tensor sheaf__merge_make_tensor(const char *name, const sheaf_source_entry *e)
{
    sheaf__merge_tensor t = { .name = name, .base = e, .ndim = e->ndim };
    memcpy(t.shape, e->shape, sizeof t.shape);
    set_view(&t);
    return t;
}

void sheaf__merge_release_tensor(sheaf__merge_tensor *t)
{
    for (int i = 0; i < t->nsteps; i++) {
        free(t->step[i].pick);
        free(t->step[i].factor);
    }
    free(t->step);
}

bool sheaf__merge_touched(const sheaf__merge_tensor *t)
{
    return t->nsteps > 0 || t->whole != NULL || t->out_dtype != t->base->dtype;
}

/* ---- memory ---- */

bool sheaf__merge_has_kernel(const sheaf__merge_step *step)
{
    return sheaf__elements(step->a->ndim - 2, step->a->shape + 2) > 1;
}

sheaf_status *sheaf__merge_rows_init(sheaf__merge_rows *m, sheaf_source *base,
                                     sheaf_weights_merge_mode mode, sheaf_peft_cpu cpu)
{
    m->base = base;
    m->mode = mode;
    m->cpu = sheaf__peft_cpu(cpu);
    m->kernels = sheaf__kernels_for(NULL);
    if (m->kernels == NULL)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "this processor has no AVX2, FMA and F16C");
    m->delta = sheaf__lora_delta_for(m->kernels->isa);
    m->right = malloc((size_t)SHEAF__MERGE_RIGHT * sizeof *m->right);
    m->stored = malloc((size_t)SHEAF__MERGE_TILE * 4);
    m->numbers = malloc((size_t)SHEAF__MERGE_TILE * sizeof *m->numbers);
    return m->right != NULL && m->stored != NULL && m->numbers != NULL ? NULL
                                                                       : sheaf__no_memory("merge");
}

void sheaf__merge_rows_release(sheaf__merge_rows *m)
{
    free(m->right);
    free(m->stored);
    free(m->numbers);
    m->right = m->numbers = NULL;
    m->stored = NULL;
}

sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s)
{
    const size_t n = SHEAF__MERGE_TILE * sizeof(float), left = SHEAF__MERGE_LEFT * sizeof(float);
    char *at = malloc(5 * n + 2 * left + SHEAF__MERGE_TILE * sizeof *s->sums);
    if (at == NULL)
        return sheaf__no_memory("merge");
    s->sums = (double *)at;
    at += SHEAF__MERGE_TILE * sizeof *s->sums;
    s->stored = at;
    s->was = at + n;
    s->out = at + 2 * n;
    s->w = (float *)(at + 3 * n);
    s->d = (float *)(at + 4 * n);
    s->left = (float *)(at + 5 * n);
    s->left_stored = at + 5 * n + left;
    return NULL;
}

void sheaf__merge_scratch_release(sheaf__merge_scratch *s)
{
    free(s->sums);
    *s = (sheaf__merge_scratch){ 0 };
}

/* ---- factors ---- */

static sheaf_status *right_rows(sheaf__merge_rows *m, const sheaf__merge_step *s, float *packed)
{
    const int64_t each =
        SHEAF__MERGE_TILE / m->cols; /* at least one: a panel is no wider than a tile */
    sheaf_status *st = NULL;
    for (int64_t k = 0; k < s->rank && st == NULL; k += each) {
        const int64_t n = s->rank - k < each ? s->rank - k : each;
        st = sheaf__lora_read_view(s->adapter, s->a, k, n, m->col0, m->cols, m->stored);
        if (st == NULL)
            m->kernels->convert(m->numbers, SHEAF_F32, m->stored, s->a->dtype, n * m->cols);
        for (int64_t i = 0; i < n && st == NULL; i++)
            sheaf__lora_pack_row(packed, m->numbers + i * m->cols, k + i, s->rank, m->cols);
    }
    return st;
}

/* Columns of the transpose of B: rows of B, some at a time. */
static sheaf_status *right_columns(sheaf__merge_rows *m, const sheaf__merge_step *s, float *packed)
{
    const int64_t each = SHEAF__MERGE_TILE / s->rank;
    sheaf_status *st = NULL;
    for (int64_t j = 0; j < m->cols && st == NULL; j += each) {
        const int64_t n = m->cols - j < each ? m->cols - j : each;
        st = sheaf__lora_read_view(s->adapter, s->b, m->col0 + j, n, 0, s->rank, m->stored);
        if (st == NULL)
            m->kernels->convert(m->numbers, SHEAF_F32, m->stored, s->b->dtype, n * s->rank);
        for (int64_t i = 0; i < n && st == NULL; i++)
            for (int64_t k = 0; k < s->rank; k++)
                packed[((j + i) / 16 * s->rank + k) * 16 + (j + i) % 16] =
                    m->numbers[i * s->rank + k];
    }
    return st;
}

sheaf_status *sheaf__merge_rows_panel(sheaf__merge_rows *m, int64_t col0)
{
    const sheaf__merge_tensor *t = m->t;
    m->col0 = col0;
    m->cols = t->cols - col0 < t->panel ? t->cols - col0 : t->panel;
    float *packed = m->right;
    sheaf_status *st = NULL;
    for (int i = 0; i < t->nsteps && st == NULL; i++) {
        const sheaf__merge_step *s = &t->step[i];
        if (s->kind != SHEAF__MERGE_DELTA)
            continue;
        const int64_t n = sheaf__lora_packed_floats(s->rank, m->cols);
        memset(packed, 0, (size_t)n * sizeof *packed);
        st = s->across ? right_columns(m, s, packed) : right_rows(m, s, packed);
        packed += n;
    }
    return st;
}

sheaf_status *sheaf__merge_left(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                const sheaf__merge_step *step, int64_t row0, int64_t rows)
{
    sheaf_source *from = step->adapter;
    if (!step->across) {
        sheaf_status *st =
            sheaf__lora_read_view(from, step->b, row0, rows, 0, step->rank, s->left_stored);
        if (st == NULL)
            m->kernels->convert(s->left, SHEAF_F32, s->left_stored, step->b->dtype,
                                rows * step->rank);
        return st;
    }
    sheaf_status *st = from->read(from, step->a->name, 0, step->rank, row0, rows, s->left_stored);
    if (st != NULL)
        return st;
    m->kernels->convert(s->d, SHEAF_F32, s->left_stored, step->a->dtype, rows * step->rank);
    for (int64_t k = 0; k < step->rank; k++)
        for (int64_t i = 0; i < rows; i++)
            s->left[i * step->rank + k] = s->d[k * rows + i];
    return NULL;
}

/* ---- one tile ---- */

/* Rows of a panel of m->t in float32, code by SCB by 1/127 as bitsandbytes dequantises them, not
 * rounded to the type of the model. */
static sheaf_status *read_int8(float *dst, sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                               int64_t row0, int64_t rows)
{
    const sheaf__merge_tensor *t = m->t;
    const int8_t *code = s->left_stored;
    char scales[600];
    snprintf(scales, sizeof scales, "%.*s.SCB", (int)(strlen(t->name) - strlen(".weight")),
             t->name);
    sheaf_status *st =
        m->files->read(m->files, t->name, row0, rows, m->col0, m->cols, s->left_stored);
    TRY(st, m->files->read(m->files, scales, row0, rows, 0, 1, s->left));
    for (int64_t i = 0; i < rows * m->cols && st == NULL; i++)
        dst[i] = sheaf__int8_scale((float)code[i] * s->left[i / m->cols]);
    return st;
}

sheaf_status *sheaf__merge_start(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                                 int64_t rows)
{
    const sheaf__merge_tensor *t = m->t;
    const int64_t n = rows * m->cols;
    const bool int8 = t->requantised && t->form->codes == SHEAF__INT8;
    const sheaf_dtype base = int8 ? SHEAF_F32 : t->base->dtype, out = t->out_dtype;
    /* All rows, unless the adapter's table is larger. */
    const int64_t left = t->base->ndim == 0 ? rows : t->base->shape[0] - row0,
                  there = left >= rows ? rows
                          : left > 0   ? left
                                       : 0;
    const bool inside = there == rows;
    sheaf_status *st = NULL;
    if (!inside)
        memset(s->stored, 0, (size_t)n * sheaf_dtype_bytes(base));
    if (there > 0)
        st = int8 ? read_int8(s->stored, s, m, row0, there)
                  : sheaf__lora_read_view(m->base, t->base, row0, there, m->col0, m->cols,
                                          s->stored);
    if (st != NULL)
        return st;
    m->kernels->convert(s->was, out, s->stored, base, n);
    if (t->whole != NULL) {
        void *whole = s->d; /* the widest type that is computed with */
        st = sheaf__lora_read_view(t->whole_from, t->whole, row0, rows, m->col0, m->cols, whole);
        if (st != NULL)
            return st;
        if (m->mode == SHEAF_MERGE_ROUND_ONCE &&
            t->saved) { /* rounded once, to the output's dtype */
            m->kernels->convert(s->w, SHEAF_F32, whole, t->whole->dtype, n);
            return NULL;
        }
        m->kernels->convert(s->out, base, whole, t->whole->dtype,
                            n); /* the base's dtype, as PEFT loads it */
        if (!t->saved &&
            (!inside || memcmp(s->out, s->stored, (size_t)n * sheaf_dtype_bytes(base)) != 0))
            atomic_store(m->other_copy, true);
        memcpy(s->stored, s->out, (size_t)n * sheaf_dtype_bytes(base));
    }
    if (m->mode == SHEAF_MERGE_ROUND_ONCE || base == out) {
        m->kernels->convert(s->w, SHEAF_F32, s->stored, base, n);
    } else { /* PEFT merges in the dtype the model was loaded in */
        m->kernels->convert(s->out, out, s->stored, base, n);
        m->kernels->convert(s->w, SHEAF_F32, s->out, out, n);
    }
    return NULL;
}

static void round_in_place(float *x, void *buffer, const sheaf__merge_rows *m, int64_t n)
{
    if (m->t->out_dtype == SHEAF_F32)
        return;
    m->kernels->convert(buffer, m->t->out_dtype, x, SHEAF_F32, n);
    m->kernels->convert(x, SHEAF_F32, buffer, m->t->out_dtype, n);
}

/* s->d = L R of the step, not yet scaled. */
static sheaf_status *make_delta(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                const sheaf__merge_step *step, const float *packed, int64_t row0,
                                int64_t rows)
{
    sheaf_status *st = sheaf__merge_left(s, m, step, row0, rows);
    if (st != NULL)
        return st;
    const int64_t block =
        m->mode == SHEAF_MERGE_ROUND_ONCE
            ? step->rank
            : sheaf__peft_block(m->cpu, step->rank, sheaf__merge_has_kernel(step));
    m->delta(s->d, s->left, packed, rows, m->cols, step->rank, block);
    return NULL;
}

static void apply_factor(float *w, const sheaf__merge_step *step, const sheaf__merge_rows *m,
                         int64_t row0, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, w += m->cols)
        for (int64_t j = 0; j < m->cols; j++)
            w[j] = (step->across ? step->factor[m->col0 + j] : step->factor[row0 + i]) * w[j];
}

static sheaf_status *add_bias(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                              const sheaf__merge_step *step, int64_t row0, int64_t rows)
{
    sheaf_status *st =
        sheaf__lora_read_view(step->adapter, step->values, row0, rows, 0, 1, s->left_stored);
    if (st != NULL)
        return st;
    m->kernels->convert(s->d, SHEAF_F32, s->left_stored, step->values->dtype, rows);
    sheaf__lora_add(s->w, s->d, step->scale, rows);
    return NULL;
}

static sheaf_status *put_rows(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                              const sheaf__merge_step *step, int64_t row0, int64_t rows)
{
    int64_t low = 0, high = step->npicks;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (step->pick[middle].row < row0)
            low = middle + 1;
        else
            high = middle;
    }
    sheaf_status *st = NULL;
    for (; low < step->npicks && step->pick[low].row < row0 + rows && st == NULL; low++) {
        const sheaf__merge_pick *p = &step->pick[low];
        st = sheaf__lora_read_view(step->adapter, step->values, p->from, 1, m->col0, m->cols, s->d);
        if (st == NULL)
            m->kernels->convert(s->w + (p->row - row0) * m->cols, SHEAF_F32, s->d,
                                step->values->dtype, m->cols);
    }
    return st;
}

/* One step. *later: the last one, if it is a plain sum, is left in s->d for the rounding to add. */
static sheaf_status *take_step(sheaf__merge_scratch *s, const sheaf__merge_rows *m, int number,
                               const float *packed, int64_t row0, int64_t rows, bool *later)
{
    const sheaf__merge_step *step = &m->t->step[number];
    const bool exact = m->mode != SHEAF_MERGE_ROUND_ONCE;
    const int64_t n = rows * m->cols;
    if (step->kind == SHEAF__MERGE_BIAS)
        return add_bias(s, m, step, row0, rows);
    if (step->kind == SHEAF__MERGE_PICKS)
        return put_rows(s, m, step, row0, rows);
    sheaf_status *st = make_delta(s, m, step, packed, row0, rows);
    if (st != NULL)
        return st;
    if (step->magnitude != NULL) {
        sheaf__lora_add(s->w, s->d, step->scale, n);
        if (step->factor != NULL)
            apply_factor(s->w, step, m, row0, rows);
    } else if (exact && (m->mode == SHEAF_MERGE_LIKE_PEFT_SAFE || step->rounded)) {
        m->kernels->scale(s->d, step->scale, n);
        round_in_place(s->d, s->out, m, n);
        sheaf__lora_add(s->w, s->d, 1, n);
    } else if (later != NULL && number == m->t->nsteps - 1) {
        *later = true;
    } else {
        sheaf__lora_add(s->w, s->d, step->scale, n);
    }
    return NULL;
}

/* Steps [0, count) on s->w. */
static sheaf_status *take_steps(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                                int64_t rows, int count, bool *later)
{
    const float *packed = m->right;
    sheaf_status *st = sheaf__merge_start(s, m, row0, rows);
    for (int i = 0; i < count && st == NULL; i++) {
        const sheaf__merge_step *step = &m->t->step[i];
        st = take_step(s, m, i, packed, row0, rows, later);
        if (step->kind == SHEAF__MERGE_DELTA)
            packed += sheaf__lora_packed_floats(step->rank, m->cols);
        if (m->mode != SHEAF_MERGE_ROUND_ONCE && i + 1 < count) /* PEFT rounds after each adapter */
            round_in_place(s->w, s->out, m, rows * m->cols);
    }
    return st;
}

/* A finite value must stay finite: float16 ends at 65504. */
static sheaf_status *check_finite(const sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                  int64_t row0, int64_t n)
{
    const sheaf__merge_tensor *t = m->t;
    m->kernels->convert(s->d, SHEAF_F32, s->out, t->out_dtype, n);
    m->kernels->convert(s->w, SHEAF_F32, s->was, t->out_dtype, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(s->d[i]) && (isfinite(s->w[i]) || t->whole != NULL)) {
            sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "'%s', row %" PRId64 ", column %" PRId64,
                                          t->name, row0 + i / m->cols, m->col0 + i % m->cols);
            sheaf_expected(st, "a finite %s after the merge", sheaf_dtype_torch_name(t->out_dtype));
            sheaf_found(st, "%g; it was %g", (double)s->d[i], (double)s->w[i]);
            return sheaf_try_this(st, t->out_dtype == SHEAF_F16
                                          ? "`dtype bfloat16` or `dtype float32`"
                                          : "is the adapter damaged?");
        }
    return NULL;
}

sheaf_status *sheaf__merge_tile(sheaf__lora_change *change, sheaf__merge_scratch *s,
                                sheaf__merge_rows *m, int64_t row0, int64_t rows)
{
    /* Compute threads may flush denormals; the merge keeps them, as PEFT does. */
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    bool later = false;
    const int64_t n = rows * m->cols;
    sheaf_status *st = take_steps(s, m, row0, rows, m->t->nsteps, &later);
    if (st == NULL) {
        const float scale = later ? m->t->step[m->t->nsteps - 1].scale : 1;
        sheaf__lora_finish(change, s->out, m->t->out_dtype, s->w, later ? s->d : NULL, scale,
                           s->was, n);
        if (!change->finite)
            st = check_finite(s, m, row0, n);
    }
    sheaf__mode_set(before);
    return st;
}

sheaf_status *sheaf__merge_sum(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                               int64_t rows, int step)
{
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    sheaf_status *st = take_steps(s, m, row0, rows, step + 1, NULL);
    sheaf__mode_set(before);
    return st;
}
