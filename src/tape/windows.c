/* windows.c - see windows.h. */
#include "tape/windows.h"

#include "base/base.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

/* ---- the order ---- */

/* A picture in squares, and the side of a window in them. */
typedef struct squares {
    int64_t down, across, side;
} squares;

static squares squares_of(const sheaf__tower *t, const sheaf__picture_at *at)
{
    squares s = { at->down / t->merge, at->across / t->merge, t->window };
    if (s.side == 0) /* one window */
        s.side = s.down > s.across ? s.down : s.across;
    return s;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Calls take(arg, r, c, h, w) for each window: its first square, and its sides. */
static void each_window(squares s,
                        void (*take)(void *arg, int64_t r, int64_t c, int64_t h, int64_t w),
                        void *arg)
{
    for (int64_t r = 0; r < s.down; r += s.side)
        for (int64_t c = 0; c < s.across; c += s.side)
            take(arg, r, c, smaller(s.side, s.down - r), smaller(s.side, s.across - c));
}

typedef struct ordering {
    int32_t *to;                  /* the next place */
    int64_t first, across, merge; /* row by row: of the picture; merge 1: squares themselves */
} ordering;

static void order_window(void *arg, int64_t r, int64_t c, int64_t h, int64_t w)
{
    ordering *o = arg;
    const int64_t m = o->merge;
    for (int64_t i = 0; i < h * w; i++)
        for (int64_t k = 0; k < m * m; k++)
            *o->to++ = (int32_t)(o->first + ((r + i / w) * m + k / m) * o->across +
                                 (c + i % w) * m + k % m);
}

sheaf_status *sheaf__windows_order(int32_t **out, const sheaf__context *c,
                                   const sheaf__picture_at *at, const sheaf__pictures *p,
                                   bool joined)
{
    const sheaf__tower *t = &p->tower;
    const int64_t square = t->merge * t->merge, n = joined ? p->patches / square : p->patches;
    sheaf_status *st = sheaf__host_list(out, c->device, (size_t)n * sizeof **out);
    if (st != NULL || *out == NULL || at == NULL)
        return st;
    ordering o = { .to = *out, .merge = joined ? 1 : t->merge };
    for (int64_t i = 0; i < p->images; i++) {
        const squares s = squares_of(t, &at[i]);
        o.first = joined ? at[i].first / square : at[i].first;
        o.across = joined ? s.across : at[i].across;
        each_window(s, order_window, &o);
    }
    return NULL;
}

static void count_window(void *arg, int64_t r, int64_t c, int64_t h, int64_t w)
{
    (*(int64_t *)arg)++;
}

typedef struct grouping {
    int64_t *next, square;
} grouping;

static void group_window(void *arg, int64_t r, int64_t c, int64_t h, int64_t w)
{
    grouping *g = arg;
    g->next[1] = g->next[0] + h * w * g->square;
    g->next++;
}

/* A plan counts windows of their full size. */
sheaf_status *sheaf__windows_groups(sheaf__row_groups *out, const sheaf__pictures *p)
{
    const sheaf__tower *t = &p->tower;
    const int64_t square = t->merge * t->merge, full = square * t->window * t->window;
    sheaf__picture_at *at = NULL;
    *out = (sheaf__row_groups){ .count = (p->patches + full - 1) / full };
    sheaf_status *st = sheaf__pictures_layout(&at, p);
    if (st != NULL || at == NULL)
        return st;
    out->count = 0;
    for (int64_t i = 0; i < p->images; i++)
        each_window(squares_of(t, &at[i]), count_window, &out->count);
    out->begin = malloc((size_t)(out->count + 1) * sizeof *out->begin);
    if (out->begin != NULL) {
        grouping g = { out->begin, square };
        *g.next = 0;
        for (int64_t i = 0; i < p->images; i++)
            each_window(squares_of(t, &at[i]), group_window, &g);
    } else {
        st = sheaf__no_memory("windows of the images");
    }
    free(at);
    return st;
}

/* ---- rows in another order ---- */

typedef struct order_params {
    sheaf__pictures of;
    bool joined; /* rows are squares, whose order is undone; else patches */
    sheaf__value *x, *y;
} order_params;

/* y of x, or (backward) the gradient of x of that of y. */
static sheaf_status *run_order(sheaf__context *c, const order_params *p, bool backward)
{
    const sheaf__value *x = p->x;
    sheaf__picture_at *at = NULL;
    int32_t *order = NULL;
    const int32_t *list = NULL;
    sheaf_status *st = sheaf__pictures_layout(&at, &p->of);
    TRY(st, sheaf__windows_order(&order, c, at, &p->of, p->joined));
    TRY(st, sheaf__lend(&list, c->device, order, (size_t)x->rows * sizeof *list));
    if (st == NULL) {
        const sheaf__row_map map = sheaf__row_map_listed(list, x->rows);
        const bool gathers = p->joined == backward; /* wide: row by row */
        void *wide =
                 backward ? (p->joined ? p->y->grad : x->grad) : (p->joined ? p->y->data : x->data),
             *dense =
                 backward ? (p->joined ? x->grad : p->y->grad) : (p->joined ? x->data : p->y->data);
        const bool adds = backward && !x->grad_fresh;
        if (gathers)
            sheaf__gather(c, dense, wide, map, x->rows, x->cols, adds);
        else
            sheaf__scatter(c, wide, dense, map, x->rows, x->cols, adds);
    }
    sheaf__reclaim(list, c->device);
    free(order);
    free(at);
    return st;
}

static sheaf_status *order_forward(sheaf__tape *tape, sheaf__op *op)
{
    return run_order(sheaf__tape_context(tape), op->params, false);
}

static sheaf_status *order_backward(sheaf__tape *tape, sheaf__op *op)
{
    return run_order(sheaf__tape_context(tape), op->params, true);
}

static sheaf__value *record_order(sheaf__tape *tape, sheaf__value *x, const sheaf__pictures *of,
                                  bool joined)
{
    sheaf__op *op =
        sheaf__tape_op(tape, joined ? "squares in their order" : "order of windows", order_forward,
                       x->needs_grad ? order_backward : NULL, sizeof(order_params));
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows, x->cols, x->dtype);
    *(order_params *)op->params = (order_params){ *of, joined, x, y };
    return sheaf__op_makes(op, y, x, 0);
}

sheaf__value *sheaf__record_windows(sheaf__tape *tape, sheaf__value *x, const sheaf__pictures *of)
{
    return record_order(tape, x, of, false);
}

sheaf__value *sheaf__record_squares(sheaf__tape *tape, sheaf__value *x, const sheaf__pictures *of)
{
    return of->tower.window == 0 ? x : record_order(tape, x, of, true);
}

/* ---- columns ---- */

/* The columns of `wide` from `first` on are those of the parts. */
typedef struct part_params {
    sheaf__value *wide, *part[SHEAF__MOST_BESIDE];
    int64_t n, first;
    bool splits; /* part[0] is made of wide; else wide of the parts */
} part_params;

static sheaf_status *part_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const part_params *p = op->params;
    const int64_t all = p->wide->cols;
    int64_t at = p->first;
    for (int64_t i = 0; i < p->n; at += p->part[i++]->cols) {
        const sheaf__value *v = p->part[i];
        void *columns = sheaf__at(p->wide->data, at, c->dtype);
        if (p->splits)
            sheaf__copy_box(c, v->data, v->cols, columns, all, v->rows, v->cols);
        else
            sheaf__copy_box(c, columns, all, v->data, v->cols, v->rows, v->cols);
    }
    return NULL;
}

/* Of one part: into that of the wide value, of which other columns get nothing. */
static sheaf_status *split_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const part_params *p = op->params;
    const sheaf__value *w = p->wide, *v = p->part[0];
    void *dw;
    sheaf_status *st = sheaf__gradient_begin(&dw, c, w);
    if (st != NULL)
        return st;
    sheaf__op_zero(c->device, dw, w->rows * w->cols, c->dtype);
    sheaf__copy_box(c, sheaf__at(dw, p->first, c->dtype), w->cols, v->grad, v->cols, v->rows,
                    v->cols);
    sheaf__gradient_end(c, w, dw, true);
    return NULL;
}

static sheaf_status *join_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const part_params *p = op->params;
    int64_t at = p->first;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < p->n && st == NULL; at += p->part[i++]->cols) {
        const sheaf__value *v = p->part[i];
        void *dv;
        if (!v->needs_grad)
            continue;
        st = sheaf__gradient_begin(&dv, c, v);
        if (st == NULL) {
            sheaf__copy_box(c, dv, v->cols, sheaf__at(p->wide->grad, at, c->dtype), p->wide->cols,
                            v->rows, v->cols);
            sheaf__gradient_end(c, v, dv, true);
        }
    }
    return st;
}

sheaf__value *sheaf__record_beside(sheaf__tape *tape, sheaf__value *const *x, int64_t n)
{
    bool flows = false;
    int64_t cols = 0;
    if (n == 1)
        return x[0];
    for (int64_t i = 0; i < n; i++) {
        flows = flows || x[i]->needs_grad;
        cols += x[i]->cols;
    }
    sheaf__op *op = sheaf__tape_op(tape, "columns beside each other", part_forward,
                                   flows ? join_backward : NULL, sizeof(part_params));
    part_params *p = op->params;
    *p = (part_params){ .wide = sheaf__tape_value(tape, op->name, x[0]->rows, cols, x[0]->dtype),
                        .n = n };
    memcpy(p->part, x, (size_t)n * sizeof *x);
    p->wide->needs_grad = flows;
    for (int64_t i = 0; i < n; i++)
        sheaf__op_arg(op, x[i], SHEAF__READ | (x[i]->needs_grad ? SHEAF__GRAD_WRITE : 0));
    sheaf__op_arg(op, p->wide, SHEAF__MAKE | (flows ? SHEAF__GRAD_READ : 0));
    return p->wide;
}

sheaf__value *sheaf__record_part(sheaf__tape *tape, sheaf__value *x, int64_t first, int64_t cols)
{
    if (first == 0 && cols == x->cols)
        return x;
    sheaf__op *op = sheaf__tape_op(tape, "some columns", part_forward,
                                   x->needs_grad ? split_backward : NULL, sizeof(part_params));
    part_params *p = op->params;
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows, cols, x->dtype);
    *p = (part_params){ .wide = x, .part = { y }, .n = 1, .first = first, .splits = true };
    return sheaf__op_makes(op, y, x, 0);
}

/* ---- squares ---- */

typedef struct join_params {
    sheaf__value *x, *y;
} join_params;

static sheaf_status *fold_forward(sheaf__tape *tape, sheaf__op *op)
{
    const join_params *p = op->params;
    sheaf__copy(sheaf__tape_context(tape), p->y->data, p->x->data, p->x->rows * p->x->cols, false);
    return NULL;
}

static sheaf_status *fold_backward(sheaf__tape *tape, sheaf__op *op)
{
    const join_params *p = op->params;
    sheaf__copy(sheaf__tape_context(tape), p->x->grad, p->y->grad, p->x->rows * p->x->cols,
                !p->x->grad_fresh);
    return NULL;
}

sheaf__value *sheaf__record_joined(sheaf__tape *tape, sheaf__value *x, int64_t merge)
{
    const int64_t n = merge * merge;
    sheaf__op *op = sheaf__tape_op(tape, "joined patches", fold_forward,
                                   x->needs_grad ? fold_backward : NULL, sizeof(join_params));
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows / n, x->cols * n, x->dtype);
    *(join_params *)op->params = (join_params){ x, y };
    return sheaf__op_makes(op, y, x, 0);
}

/* ---- added to the rows of pictures ---- */

typedef struct added_params {
    const sheaf__images_in *in;
    sheaf__value *x, *y;
} added_params;

static sheaf__row_map rows_of(const added_params *p)
{
    return sheaf__row_map_listed(p->in->image_row, p->x->rows);
}

static sheaf_status *added_forward(sheaf__tape *tape, sheaf__op *op)
{
    const added_params *p = op->params;
    sheaf__scatter(sheaf__tape_context(tape), p->x->data, p->y->data, rows_of(p), p->y->rows,
                   p->x->cols, true);
    return NULL;
}

static sheaf_status *added_backward(sheaf__tape *tape, sheaf__op *op)
{
    const added_params *p = op->params;
    if (p->y->needs_grad)
        sheaf__gather(sheaf__tape_context(tape), p->y->grad, p->x->grad, rows_of(p), p->y->rows,
                      p->x->cols, !p->y->grad_fresh);
    return NULL;
}

void sheaf__record_add_images(sheaf__tape *tape, sheaf__value *x, sheaf__value *y,
                              const sheaf__images_in *in)
{
    const bool flows = x->needs_grad || y->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "added to images", added_forward,
                                   flows ? added_backward : NULL, sizeof(added_params));
    *(added_params *)op->params = (added_params){ in, x, y };
    sheaf__op_changes(op, x, flows);
    sheaf__op_arg(op, y, SHEAF__READ | (y->needs_grad ? SHEAF__GRAD_WRITE : 0));
}
