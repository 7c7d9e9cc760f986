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

/* The rows or columns of a picture, `out` of them, which are made of `in` of the table's, as lines
 * of sheaf__positions: from those of all pictures. */
typedef struct axis {
    int64_t in, out, most;
    int32_t *count; /* [out] */
    int32_t *index; /* [out, most] */
    float *weight;  /* [out, most] */
} axis;

typedef struct grid_params {
    sheaf__pictures of;
    sheaf__position_grid grid;
    sheaf__value *x, *y;
} grid_params;

/* What a run works out, the host's: all lines, or their sines and cosines. */
typedef struct grid_lines {
    const grid_params *p;
    sheaf__picture_at *at;
    int64_t n, most;
    int32_t *count, *index;
    float *weight, *turned;
} grid_lines;

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
    x->count[r] = (int32_t)(end - begin);
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

/* Room for the taps of each row or column. */
static int64_t reach_of(sheaf__position_kind kind, int64_t in, int64_t out)
{
    if (kind != SHEAF__GRID_CUBIC_SMOOTH)
        return kind == SHEAF__GRID_CUBIC ? 4 : 1;
    return 2 * (int64_t)ceil(2 * smooth_reach(in, out)) + 2;
}

/* ---- sines and cosines ---- */

/* Line `begin` and on of `turned`: of position c, sin(c f_j) for j < width / 4, then their
 * cosines (schema/grid.h). */
static void turn_lines(void *arg, int64_t begin, int64_t end, int worker)
{
    const grid_lines *a = arg;
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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static sheaf_status *find_axes(grid_lines *a)
{
    const sheaf__position_grid *g = &a->p->grid;
    const int64_t pictures = a->p->of.images;
    for (int64_t i = 0; i < pictures; i++) {
        sheaf__picture_at *at = &a->at[i];
        if (g->kind == SHEAF__GRID_AS_IS && (at->down != g->rows || at->across != g->cols))
            return wrong_grid(a->p, a->at, i);
        at->line = a->n;
        a->n += at->down + at->across;
        a->most = larger(a->most, larger(reach_of(g->kind, g->rows, at->down),
                                         reach_of(g->kind, g->cols, at->across)));
    }
    const size_t taps = (size_t)(a->n * a->most) + 1;
    a->count = calloc((size_t)a->n + 1, sizeof *a->count);
    a->index = calloc(taps, sizeof *a->index);
    a->weight = calloc(taps, sizeof *a->weight);
    if (a->count == NULL || a->index == NULL || a->weight == NULL)
        return sheaf__no_memory("positions of the images");
    for (int64_t i = 0; i < 2 * pictures; i++) {
        const sheaf__picture_at *at = &a->at[i / 2];
        const bool across = i % 2 != 0;
        const int64_t line = at->line + (across ? at->down : 0);
        fill_axis(&(axis){ .in = across ? g->cols : g->rows,
                           .out = across ? at->across : at->down,
                           .most = a->most,
                           .count = a->count + line,
                           .index = a->index + line * a->most,
                           .weight = a->weight + line * a->most },
                  g->kind);
    }
    return NULL;
}

static sheaf_status *find_turns(const sheaf__context *c, grid_lines *a)
{
    for (int64_t i = 0; i < a->p->of.images; i++)
        a->n = larger(a->n, larger(a->at[i].down, a->at[i].across));
    a->turned = malloc((size_t)(a->n * (a->p->x->cols / 2)) * sizeof *a->turned + 1);
    if (a->turned == NULL)
        return sheaf__no_memory("positions of the images");
    sheaf__rows(c, a->n, 1, turn_lines, a);
    return NULL;
}

static void release(grid_lines *a)
{
    free(a->at);
    free(a->count);
    free(a->index);
    free(a->weight);
    free(a->turned);
}

/* NULL in a->at: nothing is known of the pictures. */
static sheaf_status *find_lines(grid_lines *a, const sheaf__context *c, const grid_params *p)
{
    *a = (grid_lines){ .p = p };
    sheaf_status *st = sheaf__pictures_layout(&a->at, &p->of);
    if (st != NULL || a->at == NULL)
        return st;
    for (int64_t i = 0; i < p->of.images && p->grid.strip; i++) {
        a->at[i].across = a->at[i + 1].first - a->at[i].first;
        a->at[i].down = 1;
    }
    return p->grid.kind == SHEAF__GRID_SINCOS ? find_turns(c, a) : find_axes(a);
}

/* ---- the op ---- */

/* Adds positions, or (backward) gives their table its gradient. */
static sheaf_status *run(sheaf__context *c, const grid_params *p, bool backward)
{
    sheaf__device *device = c->device;
    const sheaf__vector *table = p->grid.table;
    grid_lines a;
    sheaf__positions to = { .images = p->of.images,
                            .class_row = p->of.class_row,
                            .table = table == NULL ? NULL : table->data,
                            .rows = p->grid.rows,
                            .cols = p->grid.cols,
                            .first = p->grid.class_row };
    sheaf_status *st = find_lines(&a, c, p);
    const size_t taps = (size_t)(a.n * a.most) * 4;
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } list[] = { { &to.at, a.at, (size_t)(to.images + 1) * sizeof *a.at },
                 { &to.taps, a.count, (size_t)a.n * 4 },
                 { &to.index, a.index, taps },
                 { &to.weight, a.weight, taps },
                 { &to.turned, a.turned, (size_t)(a.n * (p->x->cols / 2)) * 4 } };
    to.lines = a.n;
    to.most = a.most;
    for (size_t i = 0; i < sizeof list / sizeof *list && st == NULL; i++)
        if (list[i].from != NULL)
            st = sheaf__lend(list[i].to, device, list[i].from, list[i].bytes);
    if (st == NULL && a.at != NULL && backward)
        sheaf__op_add_positions_back(device, table->trained->grad[0], p->y->grad, to, p->x->rows,
                                     p->x->cols, c->dtype);
    else if (st == NULL && a.at != NULL)
        sheaf__op_add_positions(device, p->y->data, p->x->data, to, p->x->rows, p->x->cols,
                                c->dtype);
    const void *const lent[] = { to.at, to.taps, to.index, to.weight, to.turned };
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        sheaf__reclaim(lent[i], device);
    release(&a);
    return st;
}

static sheaf_status *grid_forward(sheaf__tape *tape, sheaf__op *op)
{
    return run(sheaf__tape_context(tape), op->params, false);
}

static sheaf_status *grid_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const grid_params *p = op->params;
    sheaf_status *st = NULL;
    if (p->grid.table != NULL && p->grid.table->trained != NULL)
        st = run(c, p, true);
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
