/* layers.c - see layers.h, and vision.h for GELU and the rotary embedding on a grid. */
#include "tape/layers.h"

#include "tape/linear.h"
#include "tape/rows.h"
#include "tape/shards.h"
#include "tape/vision.h"

/* ---- RMSNorm, of rows or of the heads in them ---- */

typedef struct norm_params {
    sheaf__norm *norm;
    const sheaf__linear *like; /* of heads: the layer that gave x; else NULL */
    sheaf__value *x, *y, *rstd;
    int64_t heads; /* in a row; 1: it is one */
} norm_params;

static sheaf__rmsnorm operation_of(const sheaf__context *c, const norm_params *p, void *y)
{
    return (sheaf__rmsnorm){ y,
                             p->rstd->data,
                             p->x->data,
                             p->norm->weight,
                             sheaf__rows_present(p->x) * p->heads,
                             p->norm->width,
                             p->heads,
                             p->norm->eps,
                             p->norm->once,
                             c->dtype };
}

static sheaf_status *norm_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const norm_params *p = op->params;
    const sheaf__rmsnorm norm = operation_of(c, p, p->y->data);
    sheaf__op_rmsnorm(c->device, &norm);
    return NULL;
}

/* The weight of heads, which every rank holds whole, has the sum over slices as its gradient:
 * within a slice head after head; then the tree. */
static sheaf_status *heads_weight_gradient(sheaf__context *c, const norm_params *p)
{
    const sheaf__linear *like = p->like;
    const int64_t width = p->norm->width, rows = p->x->rows;
    float *sums = NULL, *rstd = NULL, *part[SHEAF_MAX_SLICES], *spare = NULL, *total = NULL;
    sheaf_status *st =
        sheaf__alloc(&sums, c, (size_t)(like->count * width) * sizeof(float), SHEAF_MEM_SCRATCH);
    TRY(st, sheaf__alloc(&spare, c, (size_t)width * sizeof(float), SHEAF_MEM_SCRATCH));
    TRY(st,
        sheaf__alloc(&rstd, c, (size_t)((p->heads + 1) * rows) * sizeof(float), SHEAF_MEM_SCRATCH));
    if (st == NULL) {
        sheaf__op_transpose(c->device, rstd, p->rstd->data, rows, p->heads);
        sheaf__op_heads_weight(
            c->device, (sheaf__heads_weight){ sums, p->y->grad, p->x->data, rstd, p->x->cols, rows,
                                              width, like->count, like->begin + like->first,
                                              like->extent + like->first, c->dtype });
        for (int s = 0; s < like->count; s++)
            part[s] = sums + s * width;
        st = sheaf__sum_partials(c, &like->tree, part, like->first, spare, 1, width, &total);
    }
    if (st == NULL)
        sheaf__op_add(c->device, p->norm->trained->grad[0], total, width);
    sheaf__free(c, rstd);
    sheaf__free(c, spare);
    sheaf__free(c, sums);
    return st;
}

static sheaf_status *norm_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const norm_params *p = op->params;
    const sheaf__rmsnorm norm = operation_of(c, p, p->y->grad);
    sheaf_status *st = NULL;
    if (p->norm->trained != NULL && p->like != NULL)
        st = heads_weight_gradient(c, p);
    else if (p->norm->trained != NULL)
        st = sheaf__sum_shards(c,
                               &(sheaf__norm_weight){ .dw = p->norm->trained->grad[0],
                                                      .dy = p->y->grad,
                                                      .x = p->x->data,
                                                      .rstd = p->rstd->data,
                                                      .ld = p->norm->width,
                                                      .cols = p->norm->width,
                                                      .dtype = c->dtype },
                               p->x);
    if (st == NULL && (p->x->needs_grad || p->y->remade))
        sheaf__op_rmsnorm_back(c->device, &norm, p->x->needs_grad ? p->x->grad : NULL,
                               !p->x->grad_fresh, p->y->remade);
    return st;
}

/* ahead: without a backward pass. */
static sheaf__value *record_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                 const sheaf__linear *like, bool ahead)
{
    const int64_t heads = x->cols / norm->width;
    const bool flows = (x->needs_grad || norm->trained != NULL) && !ahead;
    sheaf__value *all =
        x->all_ahead == NULL ? NULL : record_norm(tape, x->all_ahead, norm, NULL, true);
    sheaf__op *op = sheaf__tape_op(tape, norm->name, norm_forward, flows ? norm_backward : NULL,
                                   sizeof(norm_params));
    norm_params *p = op->params;
    *p = (norm_params){ norm,
                        like,
                        x,
                        sheaf__tape_like(tape, x, norm->name, x->cols, x->dtype),
                        sheaf__tape_like(tape, x, "norm scale", heads, SHEAF_F32),
                        heads };
    p->y->all_ahead = all;
    if (norm->trained == NULL && like == NULL) /* row by row */
        p->y->grad_rows = x->grad_rows;
    op->cheap = op->remakes = like == NULL;
    sheaf__op_makes(op, p->y, x, SHEAF__KEEP_NEAR);
    sheaf__op_arg(op, p->rstd, SHEAF__MAKE | SHEAF__KEEP);
    return p->y;
}

sheaf__value *sheaf__record_rmsnorm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm)
{
    return record_norm(tape, x, norm, NULL, false);
}

sheaf__value *sheaf__record_head_norm(sheaf__tape *tape, sheaf__value *x, sheaf__norm *norm,
                                      const sheaf__linear *like)
{
    return record_norm(tape, x, norm, like, false);
}

void sheaf__norm_refresh(sheaf__context *c, sheaf__norm *norm)
{
    if (norm->trained != NULL)
        sheaf__refresh(c, norm->weight, norm->trained->weight[0], norm->width, norm->one);
}

/* ---- rotary embedding ---- */

typedef struct rope_params {
    sheaf__rope_table *table; /* NULL: of rows on a grid, by cos and sin */
    const float *cos, *sin;
    int64_t heads, head_dim, queries; /* queries: rows of a sequence, or of an image */
    const sheaf__rows_in *in;
    sheaf__value *x;
} rope_params;

/* Rows [begin, end). */
static void turn_rows(const sheaf__context *c, const rope_params *p, int64_t begin, int64_t end,
                      bool inverse)
{
    const int64_t ld = p->x->cols;
    sheaf__rope r = { .x = sheaf__at(inverse ? p->x->grad : p->x->data, begin * ld, c->dtype),
                      .cos = p->cos,
                      .sin = p->sin,
                      .ld = ld,
                      .rows = end - begin,
                      .heads = p->heads,
                      .head_dim = p->head_dim,
                      .rot = p->head_dim,
                      .positions = p->queries - 1,
                      .inverse = inverse,
                      .dtype = c->dtype };
    if (p->table == NULL) {
        sheaf__op_rope_pairs(c->device, r);
        return;
    }
    r.cos = p->table->cos;
    r.sin = p->table->sin;
    r.rot = p->table->rot;
    r.positions = p->table->positions;
    r.position = p->in->position + begin;
    (p->table->pairs ? sheaf__op_rope_pairs : sheaf__op_rope)(c->device, r);
}

/* Positions of the sequence in rows [begin, end), without the padding behind it, of which a row has
 * as much as its neighbours are longer. */
static int64_t own_length(const rope_params *p, int64_t begin, int64_t end)
{
    const sheaf__rows_in *in = p->in;
    const uint8_t *mask = in->host.key_mask;
    if (mask != NULL && in->keys >= p->queries) {
        mask += begin / p->queries * in->mask_ld + in->keys - p->queries;
        while (end > begin + 1 && mask[(end - 1) % p->queries] == 0)
            end--;
    }
    return in->host.position[end - 1] + (int64_t)1;
}

/* Sequences turn by the angles of their own length: positions ascend by one, and begin again with
 * each that is packed behind another. A plan that does not know them has one length. */
static sheaf_status *turn(sheaf__context *c, const rope_params *p, bool inverse)
{
    const int64_t rows = p->x->rows;
    if (p->table == NULL || p->table->lengthen == NULL || p->in->host.ids == NULL) {
        turn_rows(c, p, 0, rows, inverse);
        return NULL;
    }
    const int32_t *position = p->in->host.position;
    for (int64_t begin = 0, end; begin < rows; begin = end) {
        for (end = begin + 1; end < rows && end % p->queries != 0; end++)
            if (position[end] != position[end - 1] + 1)
                break;
        sheaf_status *st = p->table->lengthen(p->table, c->device, own_length(p, begin, end));
        if (st != NULL)
            return st;
        turn_rows(c, p, begin, end, inverse);
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

static int64_t numel(const sheaf__value *x)
{
    return sheaf__rows_present(x) * x->cols;
}

static sheaf_status *swiglu_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const activation_params *p = op->params;
    sheaf__op_swiglu(c->device, p->y->data, p->x->data, p->up->data, numel(p->x), p->gelu,
                     c->dtype);
    return NULL;
}

/* A remade value takes the place of its gradient. */
static sheaf_status *swiglu_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const activation_params *p = op->params;
    void *dy = p->y->grad;
    sheaf__op_swiglu_back(c->device, p->x->grad, p->up->grad, p->y->remade ? dy : NULL, dy,
                          p->x->data, p->up->data, numel(p->x), p->gelu, c->dtype);
    return NULL;
}

sheaf__value *sheaf__record_swiglu(sheaf__tape *tape, sheaf__value *gate, sheaf__value *up,
                                   bool gelu)
{
    const char *name = gelu ? "geglu" : "swiglu";
    sheaf__op *op =
        sheaf__tape_op(tape, name, swiglu_forward, gate->needs_grad ? swiglu_backward : NULL,
                       sizeof(activation_params));
    sheaf__value *h = sheaf__tape_like(tape, gate, name, gate->cols, gate->dtype);
    *(activation_params *)op->params = (activation_params){ gelu, true, gate, up, h };
    op->cheap = op->remakes = true;
    sheaf__op_arg(op, gate, SHEAF__READ | SHEAF__KEEP_NEAR | SHEAF__GRAD_WRITE | SHEAF__OVER);
    return sheaf__op_makes(op, h, up, SHEAF__KEEP_NEAR | SHEAF__OVER);
}

static sheaf_status *gelu_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const activation_params *p = op->params;
    sheaf__op_gelu(c->device, p->y->data, p->x->data, numel(p->x), p->tanh, c->dtype);
    return NULL;
}

static sheaf_status *gelu_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const activation_params *p = op->params;
    sheaf__op_gelu_back(c->device, p->x->grad, p->y->grad, p->x->data, numel(p->x),
                        !p->x->grad_fresh, p->tanh, c->dtype);
    return NULL;
}

sheaf__value *sheaf__record_gelu(sheaf__tape *tape, sheaf__value *x, bool tanh)
{
    sheaf__op *op = sheaf__tape_op(tape, "gelu", gelu_forward, x->needs_grad ? gelu_backward : NULL,
                                   sizeof(activation_params));
    sheaf__value *y = sheaf__tape_like(tape, x, "gelu", x->cols, x->dtype);
    *(activation_params *)op->params = (activation_params){ true, tanh, x, NULL, y };
    op->cheap = true;
    return sheaf__op_makes(op, y, x, SHEAF__KEEP_NEAR | SHEAF__OVER);
}
