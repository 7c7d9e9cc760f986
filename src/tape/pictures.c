/* pictures.c - see pictures.h: where pictures lie, their patches, class rows, a vector as rows.
 * Positions are in pictures_grid.c, attention in attention.c. */
#include "base/base.h"
#include "tape/pictures_inner.h"

#include "tape/rows.h"

/* ---- where pictures lie ---- */

static int64_t listed_of(const sheaf__pictures *p)
{
    return p->listed > 0 ? p->listed : p->images;
}

static sheaf_status *misfit(const sheaf__pictures *p, int64_t i)
{
    const sheaf__view *view = &p->in->picture[i].of[p->number];
    const sheaf__tower *t = &p->tower;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "image %lld", (long long)i + 1);
    if (t->ragged)
        sheaf_expected(st, "sides that are multiples of %lld pixels", (long long)sheaf__unit_of(t));
    else
        sheaf_expected(st, "%lld x %lld pixels", (long long)t->width, (long long)t->height);
    return sheaf_found(st, "%lld x %lld", (long long)view->width, (long long)view->height);
}

/* Groups in place of pictures. */
static sheaf_status *join(sheaf__picture_at *at, const sheaf__pictures *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->images; i++)
        if (i == 0 || !p->in->picture[i].joins)
            at[n++] = (sheaf__picture_at){ at[i].first, 1, 0, 0 };
    if (n != p->groups)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "images"),
                                          "%lld groups of frames", (long long)p->groups),
                           "%lld", (long long)n);
    at[n] = at[p->images];
    for (int64_t i = 0; i < n; i++)
        at[i].across = at[i + 1].first - at[i].first;
    return NULL;
}

sheaf_status *sheaf__pictures_layout(sheaf__picture_at **out, const sheaf__pictures *p)
{
    *out = NULL;
    if (p->in == NULL || p->in->picture == NULL)
        return NULL;
    sheaf__picture_at *at = malloc((size_t)(p->images + 1) * sizeof *at);
    if (at == NULL)
        return sheaf__no_memory("sizes of the images");
    int64_t first = 0, n = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < listed_of(p) && n <= p->images && st == NULL; i++) {
        const sheaf__view *view = &p->in->picture[i].of[p->number];
        const sheaf__picture_at is = { first, sheaf__patches_along(view->height, &p->tower),
                                       sheaf__patches_along(view->width, &p->tower), 0 };
        const bool inside = n > 0 && sheaf__picture_inside(&p->in->picture[i], &p->tower);
        if (!sheaf__view_fits(view, &p->tower) ||
            (inside && (is.down != at[n - 1].down || is.across != at[n - 1].across)))
            st = misfit(p, i);
        if (inside || st != NULL)
            continue;
        if (n < p->images)
            at[n] = is;
        n++;
        first += sheaf__picture_seen(p->in->picture, listed_of(p), i, &p->tower, p->number);
    }
    if (st == NULL && n != p->images)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "images"), "%lld", (long long)p->images), "%lld",
            (long long)n);
    at[p->images] = (sheaf__picture_at){ first, 0, 0, 0 };
    if (st == NULL && first != p->patches)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "images"), "%lld patches in all",
                                        (long long)p->patches),
                         "%lld", (long long)first);
    if (st == NULL && p->groups > 0 && p->groups < p->images)
        st = join(at, p);
    if (st == NULL)
        *out = at;
    else
        free(at);
    return st;
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
    const int64_t *begin; /* [images + 1] pictures of in->picture that each is made of */
    void *to;             /* the host's */
} patches_args;

static int64_t repeats_of(const sheaf__tower *t)
{
    return t->repeats > 0 ? t->repeats : 1;
}

static void cut_patches(void *arg, int64_t begin, int64_t end, int worker)
{
    const patches_args *a = arg;
    const sheaf__pictures *of = &a->p->of;
    const sheaf__tower *t = &of->tower;
    const sheaf_dtype dtype = a->c->dtype;
    for (int64_t r = begin; r < end; r++) {
        int64_t patch;
        const int64_t image = sheaf__picture_of(a->at, of->images, false, r, &patch);
        const int64_t first = a->begin[image], last = a->begin[image + 1] - 1;
        const int64_t y0 = patch / a->at[image].across * t->patch,
                      x0 = patch % a->at[image].across * t->patch;
        const int64_t lines = t->patch * repeats_of(t); /* of a channel */
        int64_t to = r * a->p->y->cols;
        for (int64_t channel = 0; channel < t->channels; channel++)
            for (int64_t k = 0; k < lines; k++, to += t->patch) {
                const int64_t y = k % t->patch, frame = first + k / t->patch;
                const sheaf__view *view =
                    &of->in->picture[frame < last ? frame : last].of[of->number];
                const float *line = view->pixels + (channel * view->height + y0 + y) * view->width;
                const int64_t n = y0 + y >= view->height         ? 0
                                  : x0 + t->patch <= view->width ? t->patch
                                                                 : view->width - x0;
                a->c->device->kernels->round(sheaf__at(a->to, to, dtype), dtype, line + x0, n);
                memset(sheaf__at(a->to, to + n, dtype), 0, /* behind the picture's edge */
                       (size_t)(t->patch - n) * sheaf_dtype_bytes(dtype));
            }
    }
}

/* The pictures that each one of the tower's is made of, to free(). */
static sheaf_status *find_frames(int64_t **out, const sheaf__pictures *p)
{
    int64_t n = 0, *begin = *out = malloc((size_t)(p->images + 1) * sizeof *begin);
    if (begin == NULL)
        return sheaf__no_memory("frames of the images");
    for (int64_t i = 0; i < listed_of(p); i++)
        if (n == 0 || !sheaf__picture_inside(&p->in->picture[i], &p->tower))
            begin[n++] = i;
    begin[n] = listed_of(p);
    return NULL;
}

/* By the host, which has the pixels. */
static sheaf_status *patches_forward(sheaf__tape *tape, sheaf__op *op)
{
    patches_args a = { .c = sheaf__tape_context(tape), .p = op->params };
    const sheaf__value *y = a.p->y;
    const size_t bytes = (size_t)(y->rows * y->cols) * sheaf_dtype_bytes(y->dtype);
    sheaf__picture_at *at = NULL;
    int64_t *begin = NULL;
    sheaf_status *st = sheaf__pictures_layout(&at, &a.p->of);
    if (at != NULL)
        TRY(st, find_frames(&begin, &a.p->of));
    a.at = at;
    a.begin = begin;
    TRY(st, sheaf__borrow(&a.to, a.c->device, y->data, bytes, false));
    if (st == NULL && at != NULL)
        sheaf__rows(a.c, y->rows, 8, cut_patches, &a);
    TRY(st, sheaf__return(a.to, a.c->device, y->data, bytes, true));
    free(begin);
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
                             of->tower.channels * repeats_of(&of->tower) * of->tower.patch *
                                 of->tower.patch,
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

/* Rows of the wide value, of the device's memory. */
typedef struct wide_rows {
    int32_t *list; /* the host's */
    const int32_t *patches, *class;
} wide_rows;

static void release_rows(wide_rows *rows, const sheaf__context *c)
{
    sheaf__reclaim(rows->patches, c->device);
    free(rows->list);
}

/* Those that hold patches, one after the other, and behind them those that hold class rows. */
static sheaf_status *find_rows(wide_rows *out, const sheaf__context *c, const sheaf__pictures *p)
{
    const size_t bytes = (size_t)(p->patches + p->images) * sizeof *out->list;
    sheaf__picture_at *at = NULL;
    *out = (wide_rows){ .list = NULL };
    sheaf_status *st = sheaf__pictures_layout(&at, p);
    TRY(st, sheaf__host_list(&out->list, c->device, bytes));
    for (int64_t i = 0; i < p->images && out->list != NULL; i++) {
        const int64_t first = sheaf__patches_before(at, p, i);
        out->list[p->patches + i] = (int32_t)(first + i);
        for (int64_t k = first; k < sheaf__patches_before(at, p, i + 1); k++)
            out->list[k] = (int32_t)(k + i + 1);
    }
    free(at);
    TRY(st, sheaf__lend(&out->patches, c->device, out->list, bytes));
    if (st == NULL && out->patches != NULL)
        out->class = out->patches + p->patches;
    return st;
}

static sheaf_status *class_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    const int64_t width = p->wide->cols;
    wide_rows rows;
    sheaf_status *st = find_rows(&rows, c, &p->of);
    if (st == NULL) {
        const sheaf__row_map patches = sheaf__row_map_listed(rows.patches, p->wide->rows),
                             class = sheaf__row_map_listed(rows.class, p->wide->rows);
        if (p->token == NULL)
            sheaf__gather(c, p->narrow->data, p->wide->data, patches, p->of.patches, width, false);
        else {
            sheaf__scatter(c, p->wide->data, p->narrow->data, patches, p->of.patches, width, false);
            sheaf__set_rows(c, p->wide->data, p->token->data, class, p->of.images, width);
        }
    }
    release_rows(&rows, c);
    return st;
}

static sheaf_status *add_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    wide_rows rows;
    sheaf_status *st = find_rows(&rows, c, &p->of);
    if (st == NULL && p->token->trained != NULL)
        st = sheaf__sum_mapped(c, p->token->trained->grad[0], p->wide->grad,
                               sheaf__row_map_listed(rows.class, p->wide->rows), p->of.images,
                               p->wide->cols);
    if (st == NULL && p->narrow->needs_grad)
        sheaf__gather(c, p->narrow->grad, p->wide->grad,
                      sheaf__row_map_listed(rows.patches, p->wide->rows), p->of.patches,
                      p->wide->cols, !p->narrow->grad_fresh);
    release_rows(&rows, c);
    return st;
}

static sheaf_status *drop_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const class_params *p = op->params;
    wide_rows rows;
    sheaf_status *st = find_rows(&rows, c, &p->of);
    if (st == NULL)
        sheaf__scatter_gradient(c, p->wide, p->narrow->grad,
                                sheaf__row_map_listed(rows.patches, p->wide->rows), p->of.patches);
    release_rows(&rows, c);
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
    sheaf__op_convert(c->device, p->y->data, c->dtype, p->vector->data, SHEAF_F32,
                      p->y->rows * p->y->cols);
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

static sheaf_status *repeat_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const repeat_params *p = op->params;
    const int64_t n = p->x->rows * p->x->cols;
    for (int64_t i = 0; i < p->n; i++)
        sheaf__copy(c, sheaf__at(p->y->data, i * n, c->dtype), p->x->data, n, false);
    return NULL;
}

static sheaf_status *repeat_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const repeat_params *p = op->params;
    sheaf__op_sum_copies(c->device, p->x->grad, p->y->grad, p->x->rows * p->x->cols, p->n,
                         !p->x->grad_fresh, c->dtype);
    return NULL;
}

sheaf__value *sheaf__record_repeat(sheaf__tape *tape, sheaf__value *x, int64_t n)
{
    sheaf__op *op = sheaf__tape_op(tape, "copies of rows", repeat_forward,
                                   x->needs_grad ? repeat_backward : NULL, sizeof(repeat_params));
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows * n, x->cols, x->dtype);
    sheaf__cut_as(y, x);
    *(repeat_params *)op->params = (repeat_params){ x, y, n };
    return sheaf__op_makes(op, y, x, 0);
}
