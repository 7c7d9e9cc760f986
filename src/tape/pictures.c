/* pictures.c - see pictures.h: where pictures lie, their patches, class rows, a vector as rows.
 * Positions are in pictures_grid.c, attention in attention.c. */
#include "base/base.h"
#include "tape/pictures_inner.h"

#include "tape/rows.h"

/* ---- where pictures lie ---- */

static sheaf_status *misfit(const sheaf__pictures *p, int64_t i)
{
    const sheaf__view *view = &p->in->picture[i].of[p->number];
    const sheaf__tower *t = &p->tower;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "image %lld", (long long)i + 1);
    if (t->ragged)
        sheaf_expected(st, "sides that are multiples of %lld pixels", (long long)t->patch);
    else
        sheaf_expected(st, "%lld x %lld pixels", (long long)t->width, (long long)t->height);
    return sheaf_found(st, "%lld x %lld", (long long)view->width, (long long)view->height);
}

static bool fits(const sheaf__tower *t, const sheaf__view *view)
{
    if (!t->ragged)
        return view->height == t->height && view->width == t->width;
    return view->height > 0 && view->width > 0 && view->height % t->patch == 0 &&
           view->width % t->patch == 0;
}

sheaf_status *sheaf__pictures_layout(sheaf__picture_at **out, const sheaf__context *c,
                                     const sheaf__pictures *p)
{
    *out = NULL;
    if (p->in == NULL || c->device->class->counts)
        return NULL;
    sheaf__picture_at *at = malloc((size_t)(p->images + 1) * sizeof *at);
    if (at == NULL)
        return sheaf__no_memory("sizes of the images");
    int64_t first = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < p->images && st == NULL; i++) {
        const sheaf__view *view = &p->in->picture[i].of[p->number];
        if (!fits(&p->tower, view))
            st = misfit(p, i);
        at[i] = (sheaf__picture_at){ first, sheaf__patches_along(view->height, &p->tower),
                                     sheaf__patches_along(view->width, &p->tower) };
        first += st == NULL
                     ? sheaf__picture_seen(p->in->picture, p->images, i, &p->tower, p->number)
                     : 0;
    }
    at[p->images] = (sheaf__picture_at){ first, 0, 0 };
    if (st == NULL && first != p->patches)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "images"), "%lld patches in all",
                                        (long long)p->patches),
                         "%lld", (long long)first);
    if (st == NULL)
        *out = at;
    else
        free(at);
    return st;
}

int64_t sheaf__picture_of(const sheaf__picture_at *at, const sheaf__pictures *p, int64_t row,
                          int64_t *patch)
{
    int64_t low = 0, high = p->images;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (at[middle].first + (p->class_row ? middle : 0) <= row)
            low = middle;
        else
            high = middle;
    }
    *patch = row - at[low].first - (p->class_row ? low + 1 : 0);
    return low;
}

/* ---- patches ---- */

typedef struct patches_params {
    sheaf__pictures of;
    sheaf__value *y;
} patches_params;

typedef struct patches_args {
    const sheaf__context *c;
    const patches_params *p;
    const sheaf__picture_at *at;
} patches_args;

static void cut_patches(void *arg, int64_t begin, int64_t end, int worker)
{
    const patches_args *a = arg;
    const sheaf__tower *t = &a->p->of.tower;
    const sheaf__value *v = a->p->y;
    for (int64_t r = begin; r < end; r++) {
        int64_t patch;
        const int64_t image = sheaf__picture_of(a->at, &a->p->of, r, &patch);
        const sheaf__view *view = &a->p->of.in->picture[image].of[a->p->of.number];
        const int64_t y0 = patch / a->at[image].across * t->patch,
                      x0 = patch % a->at[image].across * t->patch;
        int64_t to = r * v->cols;
        for (int64_t channel = 0; channel < t->channels; channel++)
            for (int64_t y = 0; y < t->patch; y++, to += t->patch) {
                const float *line = view->pixels + (channel * view->height + y0 + y) * view->width;
                const int64_t n = y0 + y >= view->height         ? 0
                                  : x0 + t->patch <= view->width ? t->patch
                                                                 : view->width - x0;
                a->c->device->kernels->round(sheaf__at(v->data, to, a->c->dtype), a->c->dtype,
                                             line + x0, n);
                memset(sheaf__at(v->data, to + n, a->c->dtype), 0, /* behind the picture's edge */
                       (size_t)(t->patch - n) * sheaf_dtype_bytes(a->c->dtype));
            }
    }
}

static sheaf_status *patches_forward(sheaf__tape *tape, sheaf__op *op)
{
    patches_args args = { sheaf__tape_context(tape), op->params, NULL };
    sheaf__picture_at *at = NULL;
    sheaf_status *st = sheaf__pictures_layout(&at, args.c, &args.p->of);
    args.at = at;
    if (st == NULL)
        sheaf__rows(args.c, args.p->y->rows, 8, cut_patches, &args);
    free(at);
    return st;
}

sheaf__value *sheaf__record_picture_patches(sheaf__tape *tape, const sheaf__pictures *of)
{
    sheaf__op *op = sheaf__tape_op(tape, "patches", patches_forward, NULL, sizeof(patches_params));
    patches_params *p = op->params;
    p->of = *of;
    p->of.class_row = false;
    p->y = sheaf__tape_value(tape, "patches", of->patches,
                             of->tower.channels * of->tower.patch * of->tower.patch,
                             sheaf__tape_context(tape)->dtype);
    sheaf__op_arg(op, p->y, SHEAF__MAKE);
    return p->y;
}

/* ---- class rows ---- */

typedef struct class_params {
    sheaf__pictures of;
    sheaf__vector *token;        /* NULL: they are dropped */
    sheaf__value *narrow, *wide; /* without them, and with them */
} class_params;

/* The rows of the wide value that hold patches, one after the other, and those that hold class
 * rows behind them. To free(); NULL on dry. */
static sheaf_status *wide_rows(int32_t **out, const sheaf__context *c, const sheaf__pictures *p)
{
    sheaf__picture_at *at = NULL;
    int32_t *row = NULL;
    sheaf_status *st = sheaf__pictures_layout(&at, c, p);
    if (st == NULL && !c->device->class->counts) {
        row = malloc((size_t)(p->patches + p->images) * sizeof *row);
        st = row == NULL ? sheaf__no_memory("rows of the images") : NULL;
    }
    for (int64_t i = 0; i < p->images && row != NULL; i++) {
        row[p->patches + i] = (int32_t)(sheaf__patches_before(at, p, i) + i);
        for (int64_t k = sheaf__patches_before(at, p, i); k < sheaf__patches_before(at, p, i + 1);
             k++)
            row[k] = (int32_t)(k + i + 1);
    }
    free(at);
    *out = row;
    return st;
}

static sheaf_status *class_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    const int64_t width = p->wide->cols;
    int32_t *row = NULL;
    sheaf_status *st = wide_rows(&row, c, &p->of);
    if (row == NULL)
        return st;
    if (p->token == NULL)
        sheaf__gather(c, p->narrow->data, p->wide->data, sheaf__row_map_listed(row, p->wide->rows),
                      p->of.patches, width, false);
    else {
        sheaf__scatter(c, p->wide->data, p->narrow->data, sheaf__row_map_listed(row, p->wide->rows),
                       p->of.patches, width, false);
        sheaf__set_rows(c, p->wide->data, p->token->data,
                        sheaf__row_map_listed(row + p->of.patches, p->wide->rows), p->of.images,
                        width);
    }
    free(row);
    return NULL;
}

static sheaf_status *add_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    int32_t *row = NULL;
    sheaf_status *st = wide_rows(&row, c, &p->of);
    if (st == NULL && p->token->trained != NULL)
        st = sheaf__sum_mapped(
            c, p->token->trained->grad[0], p->wide->grad,
            sheaf__row_map_listed(row == NULL ? NULL : row + p->of.patches, p->wide->rows),
            p->of.images, p->wide->cols);
    if (st == NULL && p->narrow->needs_grad)
        sheaf__gather(c, p->narrow->grad, p->wide->grad, sheaf__row_map_listed(row, p->wide->rows),
                      p->of.patches, p->wide->cols, !p->narrow->grad_fresh);
    free(row);
    return st;
}

static sheaf_status *drop_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    int32_t *row = NULL;
    sheaf_status *st = wide_rows(&row, c, &p->of);
    if (row != NULL)
        sheaf__scatter_gradient(c, p->wide, p->narrow->grad,
                                sheaf__row_map_listed(row, p->wide->rows), p->of.patches);
    free(row);
    return st;
}

static sheaf__value *record_class(sheaf__tape *tape, sheaf__value *x, const sheaf__pictures *of,
                                  sheaf__vector *token)
{
    const bool adds = token != NULL, flows = x->needs_grad || (adds && token->trained != NULL);
    sheaf__op *op = sheaf__tape_op(tape, adds ? token->name : "rows without class", class_forward,
                                   !flows ? NULL
                                   : adds ? add_backward
                                          : drop_backward,
                                   sizeof(class_params));
    sheaf__value *y =
        sheaf__tape_value(tape, adds ? "class rows and patches" : "patches without class",
                          of->patches + (adds ? of->images : 0), x->cols, x->dtype);
    class_params *p = op->params;
    *p = (class_params){ *of, token, adds ? x : y, adds ? y : x };
    p->of.class_row = false;
    return sheaf__op_makes(op, y, x, 0);
}

sheaf__value *sheaf__record_class_rows(sheaf__tape *tape, sheaf__value *x,
                                       const sheaf__pictures *pictures, sheaf__vector *class_token)
{
    return record_class(tape, x, pictures, class_token);
}

sheaf__value *sheaf__record_without_class(sheaf__tape *tape, sheaf__value *x,
                                          const sheaf__pictures *pictures)
{
    return record_class(tape, x, pictures, NULL);
}

/* ---- a vector as rows, and copies of rows ---- */

typedef struct vector_params {
    sheaf__vector *vector;
    sheaf__value *y;
} vector_params;

static sheaf_status *vector_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const vector_params *p = op->params;
    sheaf__convert(c, p->y->data, c->dtype, p->vector->data, SHEAF_F32, p->y->rows * p->y->cols);
    return NULL;
}

static sheaf_status *vector_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const vector_params *p = op->params;
    const int64_t n = p->y->rows * p->y->cols;
    sheaf__column_sums(c, p->vector->trained->grad[0], p->y->grad, n, 1, n);
    return NULL;
}

sheaf__value *sheaf__record_vector(sheaf__tape *tape, sheaf__vector *vector)
{
    sheaf__op *op =
        sheaf__tape_op(tape, vector->name, vector_forward,
                       vector->trained != NULL ? vector_backward : NULL, sizeof(vector_params));
    vector_params *p = op->params;
    *p = (vector_params){ vector, sheaf__tape_value(tape, vector->name, vector->rows, vector->width,
                                                    sheaf__tape_context(tape)->dtype) };
    return sheaf__op_makes(op, p->y, NULL, 0);
}

typedef struct repeat_params {
    sheaf__value *x, *y;
    int64_t n;
} repeat_params;

static void repeat_back(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const repeat_params *p = a->params;
    const sheaf__kernels *k = a->c->device->kernels;
    const sheaf_dtype t = a->c->dtype;
    const int64_t all = p->x->rows * p->x->cols;
    float sum[256], was[256];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < 256 ? end - i : 256;
        void *dx = sheaf__at(p->x->grad, i, t);
        for (int64_t e = 0; e < n; e++)
            sum[e] = 0;
        k->column_sums(sum, sheaf__at(p->y->grad, i, t), all, p->n, n, t);
        if (!p->x->grad_fresh) {
            k->widen(was, dx, t, n);
            k->add(sum, was, sum, n);
        }
        k->round(dx, t, sum, n);
    }
}

static sheaf_status *repeat_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const repeat_params *p = op->params;
    const int64_t n = p->x->rows * p->x->cols;
    for (int64_t i = 0; i < p->n; i++)
        sheaf__copy(c, sheaf__at(p->y->data, i * n, c->dtype), p->x->data, n, false);
    return NULL;
}

sheaf__value *sheaf__record_repeat(sheaf__tape *tape, sheaf__value *x, int64_t n)
{
    sheaf__op *op = sheaf__tape_each(tape, "copies of rows", sizeof(repeat_params), x, 0, NULL,
                                     x->needs_grad ? repeat_back : NULL);
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows * n, x->cols, x->dtype);
    *(repeat_params *)op->params = (repeat_params){ x, y, n };
    op->forward = repeat_forward;
    return sheaf__op_makes(op, y, x, 0);
}
