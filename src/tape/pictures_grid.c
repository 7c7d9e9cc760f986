/* pictures_grid.c - positions on a grid for pictures of their own sizes; see pictures.h.
 *
 * A position is a weighted sum of rows of the table, the weights a product of one for the row of
 * the picture and one for its column:
 *     p[r][c] = sum over i, j ascending of (a[r][i] * b[c][j]) * table[i][j]
 * in float32, each product and sum rounded on its own, the first product begins it; of a weight 1
 * alone it is the table's row itself. Weights are worked out in double and rounded once.
 *
 * Bicubic, of a grid of n to one of m: s = n / m, place x = s (r + 1/2) - 1/2, taps at the four
 * whole numbers around x, clamped into [0, n). Smooth: centre x = s (r + 1/2), f = max(s, 1), taps
 * i from trunc(x - 2 f + 1/2) up to, without, trunc(x + 2 f + 1/2), inside [0, n), each with the
 * kernel at (i - x + 1/2) / f, divided by their sum. Keys' kernel for both: for u = |distance|
 *     (a + 2) u^3 - (a + 3) u^2 + 1 up to 1,  a u^3 - 5 a u^2 + 8 a u - 4 a up to 2.
 *
 * Buckets, of a picture of m rows and a table of n: b(r, m) = how many of 1/n, 2/n, ... are not
 * above r/m, both as torch.arange() gives them in float32 (SigLIP's NaViT in MiniCPM-V's
 * modeling_navit_siglip.py). Rounding decides where they would be equal. */
#include <math.h>

#include "base/base.h"
#include "base/elementary.h"
#include "schema/grid.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

/* How the rows (or columns) of a picture with `out` of them are made of `in` of the table. */
typedef struct axis {
    int64_t in, out, most; /* room for `most` taps each */
    int *count;            /* [out] */
    int32_t *index;        /* [out, most] */
    float *weight;         /* [out, most] */
} axis;

typedef struct grid_params {
    sheaf__pictures of;
    sheaf__position_grid grid;
    sheaf__value *x, *y;
} grid_params;

typedef struct grid_args {
    const sheaf__context *c;
    const grid_params *p;
    const sheaf__picture_at *at;
    axis *down, *across; /* [images] */
    float *turned;       /* SINCOS: [turns, width / 2] sines, then cosines */
    int64_t turns;
} grid_args;

/* ---- weights ---- */

static double keys_kernel(double distance, double a)
{
    const double u = fabs(distance);
    if (u <= 1)
        return ((a + 2) * u - (a + 3)) * u * u + 1;
    return u < 2 ? ((a * u - 5 * a) * u + 8 * a) * u - 4 * a : 0;
}

static void cubic_taps(axis *x, int64_t r)
{
    const double place = (double)x->in / (double)x->out * ((double)r + 0.5) - 0.5;
    const double first = floor(place) - 1;
    for (int k = 0; k < 4; k++) {
        const double at = first + k, last = (double)(x->in - 1);
        x->index[r * x->most + k] = (int32_t)(at < 0 ? 0 : at > last ? last : at);
        x->weight[r * x->most + k] = (float)keys_kernel(place - at, -0.75);
    }
    x->count[r] = 4;
}

static double smooth_reach(int64_t in, int64_t out)
{
    return out < in ? (double)in / (double)out : 1;
}

static void smooth_taps(axis *x, int64_t r)
{
    const double f = smooth_reach(x->in, x->out),
                 centre = (double)x->in / (double)x->out * ((double)r + 0.5);
    int64_t begin = (int64_t)(centre - 2 * f + 0.5), end = (int64_t)(centre + 2 * f + 0.5);
    begin = begin < 0 ? 0 : begin;
    end = end > x->in ? x->in : end;
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += keys_kernel(((double)i - centre + 0.5) / f, -0.5);
    for (int64_t i = begin; i < end; i++) {
        x->index[r * x->most + i - begin] = (int32_t)i;
        x->weight[r * x->most + i - begin] =
            (float)(keys_kernel(((double)i - centre + 0.5) / f, -0.5) / sum);
    }
    x->count[r] = (int)(end - begin);
}

/* Element i of torch.arange(start, ..., step) in float32, of n: the processor's loop takes 16 at a
 * time, of which eight begin with a rounded element each. */
static float arange(double start, double step, int64_t i, int64_t n)
{
    if (i >= n - n % 16)
        return (float)(start + step * (double)i);
    const float first = (float)(start + step * (double)(i - i % 8));
    return (float)((double)first + (double)(i % 8) * step);
}

static void bucket_tap(axis *x, int64_t r)
{
    const double step = 1.0 / (double)x->in, each = 1.0 / (double)x->out;
    const int64_t n = (int64_t)ceil((1.0 - step) / step), m = (int64_t)ceil((1.0 - 1e-6) / each);
    const float place = arange(0, each, r, m);
    int32_t bucket = 0;
    while (bucket < n && bucket + 1 < x->in && arange(step, step, bucket, n) <= place)
        bucket++;
    x->index[r * x->most] = bucket;
    x->weight[r * x->most] = 1;
    x->count[r] = 1;
}

static void fill_axis(axis *x, sheaf__position_kind kind)
{
    for (int64_t r = 0; r < x->out; r++) {
        if (kind == SHEAF__GRID_BUCKETS)
            bucket_tap(x, r);
        else if (kind == SHEAF__GRID_AS_IS || x->in == x->out) {
            x->index[r * x->most] = (int32_t)r;
            x->weight[r * x->most] = 1;
            x->count[r] = 1;
        } else if (kind == SHEAF__GRID_CUBIC)
            cubic_taps(x, r);
        else
            smooth_taps(x, r);
    }
}

static void release(axis *x)
{
    free(x->count);
    free(x->index);
    free(x->weight);
}

static sheaf_status *make_axis(axis *x, sheaf__position_kind kind, int64_t in, int64_t out)
{
    const int64_t reach = 2 * (int64_t)ceil(2 * smooth_reach(in, out)) + 2;
    *x = (axis){ in,
                 out,
                 reach,
                 calloc((size_t)out, sizeof *x->count),
                 calloc((size_t)(out * reach), sizeof *x->index),
                 calloc((size_t)(out * reach), sizeof *x->weight) };
    if (x->count == NULL || x->index == NULL || x->weight == NULL)
        return sheaf__no_memory("positions of the images");
    fill_axis(x, kind);
    return NULL;
}

/* ---- sines and cosines ---- */

/* Line `begin` and on of `turned`: of position c, sin(c f_j) for j < width / 4, then their
 * cosines (schema/grid.h). */
static void turn_lines(void *arg, int64_t begin, int64_t end, int worker)
{
    const grid_args *a = arg;
    const int64_t quarter = a->p->x->cols / 4;
    for (int64_t line = begin; line < end; line++)
        for (int64_t j = 0; j < quarter; j++) {
            const double angle = (double)sheaf__grid_angle(line, j, quarter);
            a->turned[line * 2 * quarter + j] = (float)sheaf__sin_d(angle);
            a->turned[line * 2 * quarter + quarter + j] = (float)sheaf__cos_d(angle);
        }
}

/* ---- what a run needs ---- */

static sheaf_status *wrong_grid(const grid_params *p, const sheaf__picture_at *at, int64_t i)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "image %lld", (long long)i + 1),
                                      "%lld x %lld patches, as the positions have",
                                      (long long)p->grid.cols, (long long)p->grid.rows),
                       "%lld x %lld", (long long)at[i].across, (long long)at[i].down);
}

static sheaf_status *find_axes(grid_args *a)
{
    const grid_params *p = a->p;
    const sheaf__position_grid *g = &p->grid;
    const int64_t n = p->of.images;
    a->down = calloc((size_t)n + 1, sizeof *a->down);
    a->across = calloc((size_t)n + 1, sizeof *a->across);
    sheaf_status *st =
        a->down == NULL || a->across == NULL ? sheaf__no_memory("positions of the images") : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf__picture_at *at = &a->at[i];
        if (g->kind == SHEAF__GRID_AS_IS && (at->down != g->rows || at->across != g->cols))
            return wrong_grid(p, a->at, i);
        st = make_axis(&a->down[i], g->kind, g->rows, at->down);
        TRY(st, make_axis(&a->across[i], g->kind, g->cols, at->across));
    }
    return st;
}

static sheaf_status *find_turns(grid_args *a)
{
    const int64_t half = a->p->x->cols / 2;
    for (int64_t i = 0; i < a->p->of.images; i++) {
        a->turns = a->at[i].down > a->turns ? a->at[i].down : a->turns;
        a->turns = a->at[i].across > a->turns ? a->at[i].across : a->turns;
    }
    a->turned = malloc((size_t)(a->turns * half) * sizeof *a->turned);
    if (a->turned == NULL)
        return sheaf__no_memory("positions of the images");
    sheaf__rows(a->c, a->turns, 1, turn_lines, a);
    return NULL;
}

/* Runs body over [0, n) with all that it reads; not on dry. */
static sheaf_status *with_grid(sheaf__context *c, const grid_params *p, int64_t n, int64_t grain,
                               void (*body)(void *, int64_t, int64_t, int))
{
    grid_args a = { .c = c, .p = p };
    sheaf__picture_at *at = NULL;
    if (c->device->class->counts)
        return NULL;
    sheaf_status *st = sheaf__pictures_layout(&at, c, &p->of);
    a.at = at;
    for (int64_t i = 0; i < p->of.images && st == NULL && p->grid.strip; i++) {
        at[i].across = at[i + 1].first - at[i].first;
        at[i].down = 1;
    }
    TRY(st, p->grid.kind == SHEAF__GRID_SINCOS ? find_turns(&a) : find_axes(&a));
    if (st == NULL)
        sheaf__rows(c, n, grain, body, &a);
    for (int64_t i = 0; i < p->of.images; i++) {
        if (a.down != NULL)
            release(&a.down[i]);
        if (a.across != NULL)
            release(&a.across[i]);
    }
    free(a.down);
    free(a.across);
    free(a.turned);
    free(at);
    return st;
}

/* ---- the op ---- */

enum { PART = 256 };

/* Of the position at row r, column c of picture i: how many rows of the table it is made of; the
 * k-th of them, and its weight. */
static int taps_of(const grid_args *a, int64_t i, int64_t r, int64_t c)
{
    return a->down[i].count[r] * a->across[i].count[c];
}
static int64_t tap(float *weight, const grid_args *a, int64_t i, int64_t r, int64_t c, int k)
{
    const axis *down = &a->down[i], *across = &a->across[i];
    const int64_t y = r * down->most + k / across->count[c],
                  x = c * across->most + k % across->count[c];
    *weight = down->weight[y] * across->weight[x];
    return down->index[y] * a->p->grid.cols + across->index[x];
}

/* Columns [from, from + n) of that position. */
static void blend(float *out, const grid_args *a, int64_t i, int64_t r, int64_t c, int64_t from,
                  int64_t n)
{
    const sheaf__vector *table = a->p->grid.table;
    const float *first = table->data + (a->p->grid.class_row ? table->width : 0) + from;
    const sheaf__kernels *kernels = a->c->device->kernels;
    float part[PART], w;
    for (int k = 0; k < taps_of(a, i, r, c); k++) {
        float *to = k > 0 ? part : out;
        const int64_t row = tap(&w, a, i, r, c, k);
        memcpy(to, first + row * table->width, (size_t)n * sizeof *to);
        kernels->scale(to, w, n);
        if (k > 0)
            kernels->add(out, out, part, n);
    }
}

/* A row's first half is of its column, its second of its row. */
static void turned(float *out, const grid_args *a, int64_t r, int64_t c, int64_t from, int64_t n)
{
    const int64_t half = a->p->x->cols / 2;
    for (int64_t e = 0, m; e < n; e += m) {
        const bool first = from + e < half;
        const int64_t line = first ? c : r, column = first ? from + e : from + e - half;
        m = half - column < n - e ? half - column : n - e;
        memcpy(out + e, a->turned + line * half + column, (size_t)m * sizeof *out);
    }
}

static void add_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const grid_args *a = arg;
    const grid_params *p = a->p;
    const sheaf__kernels *k = a->c->device->kernels;
    const sheaf_dtype t = a->c->dtype;
    const int64_t width = p->x->cols;
    float position[PART], x[PART];
    for (int64_t row = begin; row < end; row++) {
        int64_t patch;
        const int64_t i = sheaf__picture_of(a->at, &p->of, row, &patch);
        const int64_t r = patch < 0 ? 0 : patch / a->at[i].across,
                      c = patch < 0 ? 0 : patch % a->at[i].across;
        for (int64_t from = 0, n; from < width; from += n) {
            n = width - from < PART ? width - from : PART;
            void *to = sheaf__at(p->y->data, row * width + from, t);
            k->widen(x, sheaf__at(p->x->data, row * width + from, t), t, n);
            if (patch < 0 && p->grid.class_row)
                k->add(x, x, p->grid.table->data + from, n);
            else if (patch >= 0 && r < a->at[i].down) { /* not behind the picture's own */
                if (p->grid.kind == SHEAF__GRID_SINCOS)
                    turned(position, a, r, c, from, n);
                else
                    blend(position, a, i, r, c, from, n);
                k->round(to, t, position, n);
                k->widen(position, to, t, n);
                k->add(x, x, position, n);
            }
            k->round(to, t, x, n);
        }
    }
}

static sheaf_status *grid_forward(sheaf__tape *tape, sheaf__op *op)
{
    const grid_params *p = op->params;
    return with_grid(sheaf__tape_context(tape), p, p->x->rows, 4, add_rows);
}

enum { COLUMNS = 128 };

/* Columns of one row of dy go to the table's rows that the position was made of. */
static void spread(const grid_args *a, float *grad, const float *dy, int64_t i, int64_t r,
                   int64_t c, int64_t n)
{
    const int64_t width = a->p->x->cols;
    const sheaf__kernels *kernels = a->c->device->kernels;
    float part[COLUMNS], w;
    for (int k = 0; k < taps_of(a, i, r, c); k++) {
        float *to = grad + tap(&w, a, i, r, c, k) * width;
        memcpy(part, dy, (size_t)n * sizeof *part);
        kernels->scale(part, w, n);
        kernels->add(to, to, part, n);
    }
}

/* The table's gradient, some of its columns: pictures and their rows one after the other. */
static void sum_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    const grid_args *a = arg;
    const grid_params *p = a->p;
    const sheaf_dtype t = a->c->dtype;
    const int64_t width = p->x->cols, with_class = p->grid.class_row ? width : 0;
    float *grad = p->grid.table->trained->grad[0], dy[COLUMNS];
    for (int64_t from = begin, n; from < end; from += n) {
        n = end - from < COLUMNS ? end - from : COLUMNS;
        for (int64_t row = 0, i = 0, patch; row < p->x->rows; row++) {
            i = sheaf__picture_of(a->at, &p->of, row, &patch);
            if ((patch < 0 && !p->grid.class_row) ||
                patch >= a->at[i].down * a->at[i].across) /* behind the picture's own */
                continue;
            a->c->device->kernels->widen(dy, sheaf__at(p->y->grad, row * width + from, t), t, n);
            if (patch < 0)
                a->c->device->kernels->add(grad + from, grad + from, dy, n);
            else
                spread(a, grad + with_class + from, dy, i, patch / a->at[i].across,
                       patch % a->at[i].across, n);
        }
    }
}

static sheaf_status *grid_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const grid_params *p = op->params;
    sheaf_status *st = NULL;
    if (p->grid.table != NULL && p->grid.table->trained != NULL)
        st = with_grid(c, p, p->x->cols, COLUMNS, sum_columns);
    if (st == NULL)
        sheaf__pass_gradient(c, p->x, p->y);
    return st;
}

sheaf__value *sheaf__record_grid_positions(sheaf__tape *tape, sheaf__value *x,
                                           const sheaf__pictures *of,
                                           const sheaf__position_grid *grid)
{
    const bool flows = x->needs_grad || (grid->table != NULL && grid->table->trained != NULL);
    sheaf__op *op = sheaf__tape_op(tape, grid->table == NULL ? "positions" : grid->table->name,
                                   grid_forward, flows ? grid_backward : NULL, sizeof(grid_params));
    grid_params *p = op->params;
    *p = (grid_params){ *of, *grid, x,
                        sheaf__tape_like(tape, x, "with positions", x->cols, x->dtype) };
    return sheaf__op_makes(op, p->y, x, 0);
}
