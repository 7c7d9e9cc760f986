/* layers.c - see layers.h, and vision.h for GELU and the rotary embedding on a grid. */
#include "tape/layers.h"

#include <string.h>

#include "tape/linear.h"
#include "tape/rows.h"
#include "tape/vision.h"

/* ---- RMSNorm, of rows or of the heads in them ---- */

typedef struct norm_params {
    sheaf__norm *norm;
    const sheaf__linear *like; /* of heads: the layer that gave x; else NULL */
    sheaf__value *x, *y, *rstd;
    int64_t heads; /* in a row; 1: it is one */
} norm_params;

static void norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const int64_t at = begin * p->x->cols;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->rmsnorm(
        sheaf__at(p->y->data, at, t), (float *)p->rstd->data + begin * p->heads,
        sheaf__at(p->x->data, at, t), p->norm->weight, (end - begin) * p->heads, p->norm->width,
        p->norm->eps, p->norm->once, t);
}

/* Remade while the rows are in the cache. */
static void norm_back_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const sheaf__kernels *k = a->c->device->kernels;
    const int64_t w = p->norm->width, at = begin * p->x->cols, n = (end - begin) * p->heads;
    const sheaf_dtype t = a->c->dtype;
    void *y = sheaf__at(p->y->grad, at, t), *x = sheaf__at(p->x->data, at, t);
    float *rstd = (float *)p->rstd->data + begin * p->heads;
    if (p->x->needs_grad)
        k->rmsnorm_back(sheaf__at(p->x->grad, at, t), y, x, p->norm->weight, rstd, n, w,
                        !p->x->grad_fresh, t);
    if (p->y->remade)
        k->rmsnorm(y, rstd, x, p->norm->weight, n, w, p->norm->eps, p->norm->once, t);
}

/* With a mean of zero n of a LayerNorm is that of an RMSNorm. */
static void norm_weight_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const norm_params *p = a->params;
    const int64_t w = p->norm->width;
    a->c->device->kernels->layernorm_dw(p->norm->trained->grad[0], NULL, p->y->grad, w, p->x->data,
                                        w, NULL, p->rstd->data, p->x->rows, begin, end,
                                        a->c->dtype);
}

/* The weight of heads, which every rank holds whole, has the sum over slices as its gradient:
 * within a slice head after head, rows ascending in blocks of 256; then the tree. */
typedef struct heads_args {
    sheaf__context *c;
    const norm_params *p;
    float *part; /* [slices held][width] */
    float *rstd; /* [owned heads][rows] */
} heads_args;

enum { COLUMNS = 16 }; /* of the weight that a thread sums at a time */

static void transpose_scales(void *arg, int64_t begin, int64_t end, int worker)
{
    const heads_args *a = arg;
    const int64_t rows = a->p->x->rows;
    for (int64_t h = begin; h < end; h++)
        for (int64_t r = 0; r < rows; r++)
            a->rstd[h * rows + r] = ((float *)a->p->rstd->data)[r * a->p->heads + h];
}

/* Items are blocks of columns, slice after slice. */
static void weight_items(void *arg, int64_t begin, int64_t end, int worker)
{
    const heads_args *a = arg;
    const norm_params *p = a->p;
    const int64_t width = p->norm->width, rows = p->x->rows, ld = p->x->cols,
                  blocks = (width + COLUMNS - 1) / COLUMNS;
    const sheaf_dtype t = a->c->dtype;
    for (int64_t i = begin; i < end; i++) {
        const int s = (int)(i / blocks);
        const int64_t first = i % blocks * COLUMNS,
                      last = first + COLUMNS < width ? first + COLUMNS : width,
                      at = p->like->begin[p->like->first + s],
                      extent = p->like->extent[p->like->first + s];
        float *part = a->part + s * width;
        memset(part + first, 0, (size_t)(last - first) * sizeof *part);
        for (int64_t head = at; head < at + extent; head += width)
            a->c->device->kernels->layernorm_dw(
                part, NULL, sheaf__at(p->y->grad, head, t), ld, sheaf__at(p->x->data, head, t), ld,
                NULL, a->rstd + head / width * rows, rows, first, last, t);
    }
}

static sheaf_status *heads_weight_gradient(sheaf__context *c, const norm_params *p)
{
    const sheaf__linear *like = p->like;
    const int64_t width = p->norm->width, blocks = (width + COLUMNS - 1) / COLUMNS;
    heads_args a = { c, p, NULL, NULL };
    float *part[SHEAF_MAX_SLICES], *spare = NULL, *total = NULL;
    sheaf_status *st =
        sheaf__alloc(&a.part, c, (size_t)(like->count * width) * sizeof(float), SHEAF_MEM_SCRATCH);
    TRY(st, sheaf__alloc(&spare, c, (size_t)width * sizeof(float), SHEAF_MEM_SCRATCH));
    TRY(st, sheaf__alloc(&a.rstd, c, (size_t)((p->heads + 1) * p->x->rows) * sizeof(float),
                         SHEAF_MEM_SCRATCH));
    if (st == NULL) {
        sheaf__rows(c, p->heads, 1, transpose_scales, &a);
        sheaf__rows(c, like->count * blocks, 1, weight_items, &a);
        for (int s = 0; s < like->count; s++)
            part[s] = a.part + s * width;
        st = sheaf__sum_partials(c, &like->tree, part, like->first, spare, 1, width, &total);
    }
    if (st == NULL)
        sheaf__add(c, p->norm->trained->grad[0], total, width);
    sheaf__free(c, a.rstd);
    sheaf__free(c, spare);
    sheaf__free(c, a.part);
    return st;
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    const norm_params *p = op->params;
    sheaf_status *st = NULL;
    if (p->norm->trained != NULL && p->like != NULL)
        st = heads_weight_gradient(sheaf__tape_context(tape), p);
    else if (p->norm->trained != NULL)
        sheaf__op_rows(tape, op, p->norm->width, 64, norm_weight_columns);
    if (st == NULL && (p->x->needs_grad || p->y->remade))
        sheaf__op_each(tape, op, true);
    return st;
}

static sheaf__value *record_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                 const sheaf__linear *like)
{
    const int64_t heads = x->cols / norm->width;
    const bool flows = x->needs_grad || norm->trained != NULL;
    sheaf__op *op = sheaf__tape_each(tape, norm->name, sizeof(norm_params), x, 16, norm_rows,
                                     flows ? norm_back_rows : NULL);
    norm_params *p = op->params;
    *p = (norm_params){ norm,
                        like,
                        x,
                        sheaf__tape_like(tape, x, norm->name, x->cols, x->dtype),
                        sheaf__tape_like(tape, x, "norm scale", heads, SHEAF_F32),
                        heads };
    if (flows)
        op->backward = norm_backward;
    if (norm->trained == NULL && like == NULL) /* row by row */
        p->y->grad_rows = x->grad_rows;
    op->cheap = op->remakes = like == NULL;
    sheaf__op_makes(op, p->y, x, SHEAF__KEEP);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | SHEAF__KEEP);
    return p->y;
}

sheaf__value *sheaf__record_rmsnorm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm)
{
    return record_norm(tape, x, norm, NULL);
}

sheaf__value *sheaf__record_head_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                      const sheaf__linear *like)
{
    return record_norm(tape, x, norm, like);
}

void sheaf__norm_refresh(sheaf__context *c, sheaf__norm *norm)
{
    if (norm->trained != NULL)
        sheaf__refresh(c, norm->weight, norm->trained->weight[0], norm->width, norm->one);
}

/* ---- rotary embedding ---- */

enum { ROWS = 32 };

typedef struct rope_params {
    sheaf__rope_table *table; /* NULL: by pairs, of rows on a grid, by cos and sin */
    const float *cos, *sin;
    int64_t heads, head_dim, queries; /* queries: rows of a sequence, or of an image */
    const sheaf__rows_in *in;
    sheaf__value *x;
} rope_params;

typedef struct rope_args {
    sheaf__context *c;
    const rope_params *p;
    bool inverse;
    int64_t first; /* row that is number 0 of what is divided */
} rope_args;

static void rope_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const rope_args *a = arg;
    const rope_params *p = a->p;
    const sheaf__kernels *k = a->c->device->kernels;
    const int64_t row = a->first + begin, n = end - begin, ld = p->x->cols;
    void *x = sheaf__at(a->inverse ? p->x->grad : p->x->data, row * ld, a->c->dtype);
    int32_t position[ROWS];
    if (p->table != NULL) {
        k->rope(x, ld, p->table->cos, p->table->sin, p->in->position + row, n, p->heads,
                p->head_dim, p->table->rot, a->inverse, a->c->dtype);
        return;
    }
    for (int64_t r = 0; r < n; r++)
        position[r] = (int32_t)((row + r) % p->queries) - 1; /* the class token: -1 */
    k->rope_pairs(x, ld, p->cos, p->sin, position, n, p->heads, p->head_dim, a->inverse,
                  a->c->dtype);
}

/* Positions of the sequence in rows [begin, end), without the padding behind it, of which a row has
 * as much as its neighbours are longer. */
static int64_t own_length(const rope_params *p, int64_t begin, int64_t end)
{
    const sheaf__rows_in *in = p->in;
    const uint8_t *mask = in->key_mask;
    if (mask != NULL && in->keys >= p->queries) {
        mask += begin / p->queries * in->mask_ld + in->keys - p->queries;
        while (end > begin + 1 && mask[(end - 1) % p->queries] == 0)
            end--;
    }
    return in->position[end - 1] + (int64_t)1;
}

/* Sequences turn by the angles of their own length: positions ascend by one, and begin again with
 * each that is packed behind another. */
static sheaf_status *turn(sheaf__context *c, const rope_params *p, bool inverse)
{
    rope_args a = { c, p, inverse, 0 };
    const int64_t rows = p->x->rows;
    if (p->table == NULL || p->table->lengthen == NULL || c->device->class->counts) {
        sheaf__rows(c, rows, ROWS, rope_rows, &a);
        return NULL;
    }
    for (int64_t end; a.first < rows; a.first = end) {
        for (end = a.first + 1; end < rows && end % p->queries != 0; end++)
            if (p->in->position[end] != p->in->position[end - 1] + 1)
                break;
        sheaf_status *st = p->table->lengthen(p->table, c->device, own_length(p, a.first, end));
        if (st != NULL)
            return st;
        sheaf__rows(c, end - a.first, ROWS, rope_rows, &a);
    }
    return NULL;
}

static sheaf_status *rope_forward(sheaf__tape *tape, sheaf__op *op)
{
    return turn(sheaf__tape_context(tape), op->params, false);
}

static sheaf_status *rope_backward(sheaf__tape *tape, sheaf__op *op)
{
    return turn(sheaf__tape_context(tape), op->params, true);
}

static void record_rope(sheaf__tape *tape, rope_params how)
{
    sheaf__op *op = sheaf__tape_op(tape, "rotary embedding", rope_forward,
                                   how.x->needs_grad ? rope_backward : NULL, sizeof how);
    *(rope_params *)op->params = how;
    sheaf__op_changes(op, how.x, how.x->needs_grad);
}

void sheaf__record_rope(sheaf__tape *tape, sheaf__value *x, sheaf__rope_table *table, int64_t heads,
                        int64_t head_dim, int64_t queries, const sheaf__rows_in *in)
{
    record_rope(tape, (rope_params){ table, NULL, NULL, heads, head_dim, queries, in, x });
}

void sheaf__record_rope_grid(sheaf__tape *tape, sheaf__value *x, const float *cos, const float *sin,
                             int64_t images, int64_t heads, int64_t head_dim)
{
    record_rope(tape, (rope_params){ NULL, cos, sin, heads, head_dim, x->rows / images, NULL, x });
}

/* ---- activations ---- */

typedef struct activation_params {
    bool gelu, tanh; /* swiglu: gates by gelu, not silu; gelu: by tanh, not erf */
    sheaf__value *x, *up, *y;
} activation_params;

static void swiglu_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const activation_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->swiglu(sheaf__at(p->y->data, begin, t), sheaf__at(p->x->data, begin, t),
                                  sheaf__at(p->up->data, begin, t), end - begin, p->gelu, t);
}

/* What is remade takes the place of its gradient. */
static void swiglu_back_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const activation_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    void *dy = sheaf__at(p->y->grad, begin, t);
    a->c->device->kernels->swiglu_back(sheaf__at(p->x->grad, begin, t),
                                       sheaf__at(p->up->grad, begin, t), p->y->remade ? dy : NULL,
                                       dy, sheaf__at(p->x->data, begin, t),
                                       sheaf__at(p->up->data, begin, t), end - begin, p->gelu, t);
}

sheaf__value *sheaf__record_swiglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up,
                                   bool gelu)
{
    const char *name = gelu ? "geglu" : "swiglu";
    sheaf__op *op =
        sheaf__tape_each(tape, name, sizeof(activation_params), gate, 0, swiglu_elements,
                         gate->needs_grad ? swiglu_back_elements : NULL);
    sheaf__value *h = sheaf__tape_like(tape, gate, name, gate->cols, gate->dtype);
    *(activation_params *)op->params = (activation_params){ gelu, true, gate, up, h };
    op->cheap = op->remakes = true;
    sheaf__op_arg(op, gate, SHEAF__READ | SHEAF__KEEP | SHEAF__GRAD_WRITE | SHEAF__OVER);
    return sheaf__op_makes(op, h, up, SHEAF__KEEP | SHEAF__OVER);
}

static void gelu_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const activation_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->gelu(sheaf__at(p->y->data, begin, t), sheaf__at(p->x->data, begin, t),
                                end - begin, p->tanh, t);
}

static void gelu_back_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const activation_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->gelu_back(
        sheaf__at(p->x->grad, begin, t), sheaf__at(p->y->grad, begin, t),
        sheaf__at(p->x->data, begin, t), end - begin, !p->x->grad_fresh, p->tanh, t);
}

sheaf__value *sheaf__record_gelu(sheaf__tape *tape, sheaf__value *x, bool tanh)
{
    sheaf__op *op = sheaf__tape_each(tape, "gelu", sizeof(activation_params), x, 0, gelu_elements,
                                     x->needs_grad ? gelu_back_elements : NULL);
    sheaf__value *y = sheaf__tape_like(tape, x, "gelu", x->cols, x->dtype);
    *(activation_params *)op->params = (activation_params){ true, tanh, x, NULL, y };
    op->cheap = true;
    return sheaf__op_makes(op, y, x, SHEAF__KEEP | SHEAF__OVER);
}
