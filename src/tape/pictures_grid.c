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
 * Linear, of a grid of n to one of m: place x = r (n - 1) / (m - 1) in float32, of m 1: 0; taps at
 * the whole numbers around x, the second inside [0, n).
 *
 * Buckets, of a picture of m rows and a table of n: b(r, m) = how many of 1/n, 2/n, ... are not
 * above r/m, both as torch.arange() gives them in float32 (SigLIP's NaViT in MiniCPM-V's
 * modeling_navit_siglip.py). Rounding decides where they would be equal.
 *
 * Frames: a table of the pictures' own, a row of zeros and one for each of them, is taken as it
 * is. */
#include <math.h>

#include "base/base.h"
#include "base/elementary.h"
#include "schema/grid.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

typedef struct grid_params {
    sheaf__pictures of;
    sheaf__position_grid grid;
    sheaf__value *x, *y;
} grid_params;

/* The result of a run, the host's: all lines of sheaf__positions, or sines and cosines of them. */
typedef struct grid_lines {
    const grid_params *p;
    sheaf__picture_at *at;
    int64_t n, taps; /* as far as they are filled */
    int32_t *begin, *index;
    float *weight, *turned, *frames; /* frames: [images + 1, width] */
} grid_lines;

/* The rows or columns of a picture: `out` of them are made of `in` of the table's. */
typedef struct axis {
    int64_t in, out;
} axis;

static axis axis_of(const grid_lines *a, int64_t picture, bool across)
{
    const sheaf__position_grid *g = &a->p->grid;
    const sheaf__picture_at *at = &a->at[picture];
    return across ? (axis){ g->cols, at->across } : (axis){ g->rows, at->down };
}

/* ---- weights ---- */

static double keys_kernel(double distance, double a)
{
    const double u = fabs(distance);
    if (u <= 1)
        return ((a + 2) * u - (a + 3)) * u * u + 1;
    return u < 2 ? ((a * u - 5 * a) * u + 8 * a) * u - 4 * a : 0;
}

static void add_tap(grid_lines *a, int64_t index, double weight)
{
    a->index[a->taps] = (int32_t)index;
    a->weight[a->taps++] = (float)weight;
}

static void cubic_taps(grid_lines *a, axis x, int64_t r)
{
    const double place = (double)x.in / (double)x.out * ((double)r + 0.5) - 0.5;
    const double first = floor(place) - 1;
    for (int k = 0; k < 4; k++) {
        const double at = first + k, last = (double)(x.in - 1);
        add_tap(a, (int64_t)(at < 0 ? 0 : at > last ? last : at), keys_kernel(place - at, -0.75));
    }
}

/* The rows of the table that row r is made of, and the variables of their weights. */
static sheaf_range smooth_reach(axis x, int64_t r, double *f, double *centre)
{
    *f = x.out < x.in ? (double)x.in / (double)x.out : 1;
    *centre = (double)x.in / (double)x.out * ((double)r + 0.5);
    const int64_t begin = (int64_t)(*centre - 2 * *f + 0.5),
                  end = (int64_t)(*centre + 2 * *f + 0.5);
    return (sheaf_range){ begin < 0 ? 0 : begin, end > x.in ? x.in : end };
}

static void smooth_taps(grid_lines *a, axis x, int64_t r)
{
    double f, centre, sum = 0;
    const sheaf_range reach = smooth_reach(x, r, &f, &centre);
    for (int64_t i = reach.begin; i < reach.end; i++)
        sum += keys_kernel(((double)i - centre + 0.5) / f, -0.5);
    for (int64_t i = reach.begin; i < reach.end; i++)
        add_tap(a, i, keys_kernel(((double)i - centre + 0.5) / f, -0.5) / sum);
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

static void bucket_tap(grid_lines *a, axis x, int64_t r)
{
    const double step = 1.0 / (double)x.in, each = 1.0 / (double)x.out;
    const int64_t n = (int64_t)ceil((1.0 - step) / step), m = (int64_t)ceil((1.0 - 1e-6) / each);
    const float place = arange(0, each, r, m);
    int64_t bucket = 0;
    while (bucket < n && bucket + 1 < x.in && arange(step, step, bucket, n) <= place)
        bucket++;
    add_tap(a, bucket, 1);
}

static void linear_taps(grid_lines *a, axis x, int64_t r)
{
    const float place = (float)r * (float)(x.in - 1) / (float)(x.out > 1 ? x.out - 1 : 1);
    const int64_t first = (int64_t)place, next = first + 1 < x.in ? first + 1 : first;
    const float rest = place - (float)first;
    add_tap(a, first, 1 - rest);
    add_tap(a, next, rest);
}

static void add_axis(grid_lines *a, axis x)
{
    const sheaf__position_kind kind = a->p->grid.kind;
    for (int64_t r = 0; r < x.out; r++) {
        a->begin[a->n++] = (int32_t)a->taps;
        if (kind == SHEAF__GRID_BUCKETS)
            bucket_tap(a, x, r);
        else if (kind == SHEAF__GRID_AS_IS || x.in == x.out)
            add_tap(a, r, 1);
        else if (kind == SHEAF__GRID_LINEAR)
            linear_taps(a, x, r);
        else if (kind == SHEAF__GRID_CUBIC)
            cubic_taps(a, x, r);
        else
            smooth_taps(a, x, r);
    }
    a->begin[a->n] = (int32_t)a->taps;
}

/* How many taps that gives. */
static int64_t taps_of(sheaf__position_kind kind, axis x)
{
    int64_t sum = 0;
    if (kind == SHEAF__GRID_BUCKETS || kind == SHEAF__GRID_AS_IS || x.in == x.out)
        return x.out;
    if (kind == SHEAF__GRID_LINEAR)
        return 2 * x.out;
    if (kind == SHEAF__GRID_CUBIC)
        return 4 * x.out;
    for (int64_t r = 0; r < x.out; r++) {
        double f, centre;
        const sheaf_range reach = smooth_reach(x, r, &f, &centre);
        sum += reach.end - reach.begin;
    }
    return sum;
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

/* Row i + 1 of picture i: of its frame. */
static void frame_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const grid_lines *a = arg;
    const sheaf__images_in *in = a->p->of.in;
    const int64_t width = a->p->x->cols, half = width / 2;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < half && in->picture[i].frame > 0; j++) {
            const double angle = (double)sheaf__grid_angle(in->picture[i].frame - 1, j, half);
            a->frames[(i + 1) * width + j] = (float)sheaf__sin_d(angle);
            a->frames[(i + 1) * width + half + j] = (float)sheaf__cos_d(angle);
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

/* Lines and taps of all pictures, one after the other; those of equal ones are counted once. */
static sheaf_status *count_axes(grid_lines *a)
{
    const sheaf__position_grid *g = &a->p->grid;
    axis before[2] = { { 0 } };
    int64_t of[2] = { 0 };
    for (int64_t i = 0; i < 2 * a->p->of.images; i++) {
        const int across = (int)(i % 2);
        const axis x = axis_of(a, i / 2, across);
        if (g->kind == SHEAF__GRID_AS_IS && x.in != x.out)
            return wrong_grid(a->p, a->at, i / 2);
        if (x.out != before[across].out)
            of[across] = taps_of(g->kind, x);
        before[across] = x;
        a->at[i / 2].line = across ? a->at[i / 2].line : a->n;
        a->n += x.out;
        a->taps += of[across];
    }
    return NULL;
}

static sheaf_status *find_axes(const sheaf__context *c, grid_lines *a)
{
    sheaf_status *st = count_axes(a);
    TRY(st, sheaf__host_list(&a->begin, c->device, (size_t)(a->n + 1) * sizeof *a->begin));
    TRY(st, sheaf__host_list(&a->index, c->device, (size_t)a->taps * sizeof *a->index));
    TRY(st, sheaf__host_list(&a->weight, c->device, (size_t)a->taps * sizeof *a->weight));
    if (st != NULL || a->begin == NULL)
        return st;
    a->n = a->taps = 0;
    for (int64_t i = 0; i < 2 * a->p->of.images; i++)
        add_axis(a, axis_of(a, i / 2, i % 2 != 0));
    return NULL;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
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

/* A row of each picture, and a column for each of its patches, of one tap each. */
static sheaf_status *find_frames(const sheaf__context *c, grid_lines *a)
{
    const sheaf__pictures *of = &a->p->of;
    const int64_t n = of->images + of->patches;
    const size_t rows = (size_t)((of->images + 1) * a->p->x->cols) * sizeof *a->frames;
    sheaf_status *st = sheaf__host_list(&a->begin, c->device, (size_t)(n + 1) * sizeof *a->begin);
    TRY(st, sheaf__host_list(&a->index, c->device, (size_t)n * sizeof *a->index));
    TRY(st, sheaf__host_list(&a->weight, c->device, (size_t)n * sizeof *a->weight));
    TRY(st, sheaf__host_list(&a->frames, c->device, rows));
    for (int64_t i = 0; i < of->images && st == NULL; i++) {
        a->at[i].line = a->n;
        for (int64_t r = 0; r < 1 + a->at[i].across && a->begin != NULL; r++) {
            a->begin[a->n + r] = (int32_t)(a->n + r);
            a->index[a->n + r] = (int32_t)(r == 0 ? i + 1 : 0);
            a->weight[a->n + r] = 1;
        }
        a->n += 1 + a->at[i].across;
    }
    a->taps = a->n;
    if (st != NULL || a->begin == NULL)
        return st;
    a->begin[a->n] = (int32_t)a->n;
    memset(a->frames, 0, rows);
    if (of->in != NULL && of->in->picture != NULL)
        sheaf__rows(c, of->images, 1, frame_rows, a);
    return NULL;
}

static void release(grid_lines *a)
{
    free(a->at);
    free(a->begin);
    free(a->index);
    free(a->weight);
    free(a->turned);
    free(a->frames);
}

/* Of pictures that a plan does not know: in one row each, which takes the most lines, and taps too
 * where there are not fewer of them than the table's grid has rows and columns. */
static sheaf_status *assume(grid_lines *a)
{
    const sheaf__pictures *of = &a->p->of;
    const sheaf__position_grid *g = &a->p->grid;
    const bool as_is = g->kind == SHEAF__GRID_AS_IS;
    a->at = malloc((size_t)(of->images + 1) * sizeof *a->at);
    if (a->at == NULL)
        return sheaf__no_memory("sizes of the images");
    for (int64_t i = 0; i <= of->images; i++) {
        const int64_t first = sheaf__patches_before(NULL, of, i),
                      n = sheaf__patches_before(NULL, of, i + 1) - first;
        a->at[i] = (sheaf__picture_at){ first, as_is ? g->rows : 1, as_is ? g->cols : n, 0 };
    }
    return NULL;
}

static sheaf_status *find_lines(grid_lines *a, const sheaf__context *c, const grid_params *p)
{
    *a = (grid_lines){ .p = p };
    sheaf_status *st = sheaf__pictures_layout(&a->at, &p->of);
    if (st == NULL && a->at == NULL)
        st = assume(a);
    const bool strip = p->grid.strip || p->grid.kind == SHEAF__GRID_FRAMES;
    for (int64_t i = 0; i < p->of.images && st == NULL && strip; i++) {
        a->at[i].across = a->at[i + 1].first - a->at[i].first;
        a->at[i].down = 1;
    }
    return TRY(st, p->grid.kind == SHEAF__GRID_SINCOS   ? find_turns(c, a)
                   : p->grid.kind == SHEAF__GRID_FRAMES ? find_frames(c, a)
                                                        : find_axes(c, a));
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
    const bool turns = p->grid.kind == SHEAF__GRID_SINCOS;
    const bool frames = p->grid.kind == SHEAF__GRID_FRAMES;
    if (frames) {
        to.rows = p->of.images + 1;
        to.cols = 1;
    }
    const size_t lines = (size_t)a.n, taps = (size_t)a.taps * 4;
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } list[] = { { &to.at, a.at, (size_t)(to.images + 1) * sizeof *a.at },
                 { &to.begin, a.begin, turns ? 0 : (lines + 1) * 4 },
                 { &to.index, a.index, taps },
                 { &to.weight, a.weight, taps },
                 { &to.table, a.frames, frames ? (size_t)(to.rows * p->x->cols) * 4 : 0 },
                 { &to.turned, a.turned, turns ? lines * (size_t)(p->x->cols / 2) * 4 : 0 } };
    to.lines = a.n;
    to.taps = a.taps;
    for (size_t i = 0; i < sizeof list / sizeof *list && st == NULL; i++)
        if (list[i].bytes > 0)
            st = sheaf__lend(list[i].to, device, list[i].from, list[i].bytes);
    if (st == NULL && backward)
        sheaf__op_add_positions_back(device, table->trained->grad[0], p->y->grad, to, p->x->rows,
                                     p->x->cols, c->dtype);
    else if (st == NULL)
        sheaf__op_add_positions(device, p->y->data, p->x->data, to, p->x->rows, p->x->cols,
                                c->dtype);
    const void *const lent[] = { to.at,     to.begin,  to.index,
                                 to.weight, to.turned, frames ? to.table : NULL };
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
