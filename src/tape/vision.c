/* vision.c - see vision.h; LayerNorm lies in layernorm.c. */
#include "tape/vision.h"

#include "tape/pictures.h"
#include "tape/row_map.h"
#include "tape/rows.h"

static float *grad_of(const sheaf__vector *vector)
{
    return vector->trained->grad[0];
}

static bool trains(const sheaf__vector *vector)
{
    return vector != NULL && vector->trained != NULL;
}

/* The rows that a list names; and those of an image's patches, which lie behind its class token. */
static sheaf__row_map behind_class(int64_t patches)
{
    return (sheaf__row_map){ NULL, patches, 1, 0 };
}

/* grad[j] += sum over images of row j of each, j < rows; dy [images * stride, width] */
static void sum_images(const sheaf__context *c, float *grad, const void *dy, int64_t images,
                       int64_t stride, int64_t rows, int64_t width)
{
    sheaf__column_sums(c, grad, dy, stride * width, images, rows * width);
}

/* round(x + position), x in `from` */
static void add_position(const sheaf__context *c, void *y, const void *x, sheaf_dtype from,
                         const float *position, int64_t n)
{
    const sheaf__kernels *k = c->device->kernels;
    float part[256];
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t m = n - i < 256 ? n - i : 256;
        k->widen(part, sheaf__at(x, i, from), from, m);
        k->add(part, part, position + i, m);
        k->round(sheaf__at(y, i, c->dtype), c->dtype, part, m);
    }
}

sheaf__value *sheaf__record_patches(sheaf__tape *tape, const sheaf__images_in *in, int64_t images,
                                    const sheaf__tower *tower, int number)
{
    const int64_t each =
        sheaf__patches_along(tower->height, tower) * sheaf__patches_along(tower->width, tower);
    return sheaf__record_picture_patches(
        tape, &(sheaf__pictures){ in, images, images * each, *tower, number, false });
}

/* ---- class token and positions ---- */

typedef struct tokens_params {
    int64_t images, patches;
    sheaf__vector *class_token, *positions;
    sheaf__value *x, *y;
} tokens_params;

static void token_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const tokens_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    const int64_t width = p->x->cols, all = p->patches + 1;
    for (int64_t r = begin; r < end; r++) {
        const int64_t image = r / all, token = r % all;
        const bool first = token == 0;
        add_position(a->c, sheaf__at(p->y->data, r * width, t),
                     first ? (const void *)p->class_token->data
                           : sheaf__at(p->x->data, (image * p->patches + token - 1) * width, t),
                     first ? SHEAF_F32 : t, p->positions->data + token * width, width);
    }
}

static sheaf_status *tokens_forward(sheaf__tape *tape, sheaf__op *op)
{
    const tokens_params *p = op->params;
    return sheaf__op_rows(tape, op, p->y->rows, 16, token_rows);
}

static sheaf_status *tokens_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const tokens_params *p = op->params;
    const int64_t width = p->x->cols, all = p->patches + 1;
    if (trains(p->class_token))
        sum_images(c, grad_of(p->class_token), p->y->grad, p->images, all, 1, width);
    if (trains(p->positions))
        sum_images(c, grad_of(p->positions), p->y->grad, p->images, all, all, width);
    if (p->x->needs_grad)
        sheaf__gather(c, p->x->grad, p->y->grad, behind_class(p->patches), p->x->rows, width,
                      !p->x->grad_fresh);
    return NULL;
}

sheaf__value *sheaf__record_tokens(sheaf__tape *tape, sheaf__value *patches, int64_t images,
                                   sheaf__vector *class_token, sheaf__vector *positions)
{
    const bool flows = patches->needs_grad || trains(class_token) || trains(positions);
    sheaf__op *op = sheaf__tape_op(tape, positions->name, tokens_forward,
                                   flows ? tokens_backward : NULL, sizeof(tokens_params));
    tokens_params *p = op->params;
    *p = (tokens_params){ images,
                          patches->rows / images,
                          class_token,
                          positions,
                          patches,
                          sheaf__tape_value(tape, "image tokens", patches->rows + images,
                                            patches->cols, patches->dtype) };
    return sheaf__op_makes(op, p->y, patches, flows, 0);
}

static void grid_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const tokens_params *p = a->params;
    const sheaf__row_map from = behind_class(p->patches);
    const sheaf_dtype t = a->c->dtype;
    const int64_t width = p->x->cols;
    for (int64_t r = begin; r < end; r++)
        add_position(a->c, sheaf__at(p->y->data, r * width, t),
                     sheaf__at(p->x->data, sheaf__row_map_at(&from, r) * width, t), t,
                     p->positions->data + r % p->patches * width, width);
}

static sheaf_status *grid_forward(sheaf__tape *tape, sheaf__op *op)
{
    const tokens_params *p = op->params;
    if (p->positions != NULL)
        sheaf__op_rows(tape, op, p->y->rows, 16, grid_rows);
    else
        sheaf__gather(sheaf__tape_context(tape), p->y->data, p->x->data, behind_class(p->patches),
                      p->y->rows, p->y->cols, false);
    return NULL;
}

static sheaf_status *grid_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const tokens_params *p = op->params;
    const int64_t width = p->x->cols;
    if (trains(p->positions))
        sum_images(c, grad_of(p->positions), p->y->grad, p->images, p->patches, p->patches, width);
    if (!p->x->needs_grad)
        return NULL;
    if (p->x->grad_fresh)
        sheaf__set_rows(c, p->x->grad, NULL, (sheaf__row_map){ NULL, 1, 0, p->patches }, p->images,
                        width);
    sheaf__scatter(c, p->x->grad, p->y->grad, behind_class(p->patches), p->y->rows, width,
                   !p->x->grad_fresh);
    return NULL;
}

sheaf__value *sheaf__record_grid(sheaf__tape *tape, sheaf__value *tokens, int64_t images,
                                 sheaf__vector *positions)
{
    const bool flows = tokens->needs_grad || trains(positions);
    sheaf__op *op =
        sheaf__tape_op(tape, positions == NULL ? "image grid" : positions->name, grid_forward,
                       flows ? grid_backward : NULL, sizeof(tokens_params));
    tokens_params *p = op->params;
    *p = (tokens_params){
        images,
        tokens->rows / images - 1,
        NULL,
        positions,
        tokens,
        sheaf__tape_value(tape, "image grid", tokens->rows - images, tokens->cols, tokens->dtype)
    };
    return sheaf__op_makes(op, p->y, tokens, flows, 0);
}

/* ---- GELU ---- */

typedef struct gelu_params {
    bool tanh; /* by it, not by erf */
    sheaf__value *x, *y;
} gelu_params;
static void gelu_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const gelu_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->gelu(sheaf__at(p->y->data, begin, t), sheaf__at(p->x->data, begin, t),
                                end - begin, p->tanh, t);
}

static sheaf_status *gelu_forward(sheaf__tape *tape, sheaf__op *op)
{
    const gelu_params *p = op->params;
    return sheaf__op_rows(tape, op, p->x->rows * p->x->cols, 1 << 14, gelu_elements);
}

static void gelu_back_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const sheaf__op_run *a = arg;
    const gelu_params *p = a->params;
    const sheaf_dtype t = a->c->dtype;
    a->c->device->kernels->gelu_back(
        sheaf__at(p->x->grad, begin, t), sheaf__at(p->y->grad, begin, t),
        sheaf__at(p->x->data, begin, t), end - begin, !p->x->grad_fresh, p->tanh, t);
}

static sheaf_status *gelu_backward(sheaf__tape *tape, sheaf__op *op)
{
    const gelu_params *p = op->params;
    return sheaf__op_rows(tape, op, p->x->rows * p->x->cols, 1 << 14, gelu_back_elements);
}

sheaf__value *sheaf__record_gelu(sheaf__tape *tape, sheaf__value *x, bool tanh)
{
    const bool flows = x->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "gelu", gelu_forward, flows ? gelu_backward : NULL,
                                   sizeof(gelu_params));
    gelu_params *p = op->params;
    *p = (gelu_params){ tanh, x, sheaf__tape_value(tape, "gelu", x->rows, x->cols, x->dtype) };
    op->cheap = true;
    return sheaf__op_makes(op, p->y, x, flows, SHEAF__KEEP | SHEAF__OVER);
}

/* ---- rotary embedding on a grid ---- */

enum { TURN = 64 };

typedef struct turn_params {
    const float *cos, *sin;
    int64_t tokens, heads, head_dim;
    sheaf__value *x;
} turn_params;
typedef struct turn_args {
    const sheaf__context *c;
    const turn_params *p;
    bool inverse;
} turn_args;

static void turn_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const turn_args *a = arg;
    const turn_params *p = a->p;
    int32_t position[TURN];
    for (int64_t r = begin; r < end; r++)
        position[r - begin] = (int32_t)(r % p->tokens) - 1; /* the class token: -1 */
    a->c->device->kernels->rope_pairs(
        sheaf__at(a->inverse ? p->x->grad : p->x->data, begin * p->x->cols, a->c->dtype),
        p->x->cols, p->cos, p->sin, position, end - begin, p->heads, p->head_dim, a->inverse,
        a->c->dtype);
}

static sheaf_status *turn_forward(sheaf__tape *tape, sheaf__op *op)
{
    turn_args args = { sheaf__tape_context(tape), op->params, false };
    sheaf__rows(args.c, args.p->x->rows, TURN, turn_rows, &args);
    return NULL;
}

static sheaf_status *turn_backward(sheaf__tape *tape, sheaf__op *op)
{
    turn_args args = { sheaf__tape_context(tape), op->params, true };
    sheaf__rows(args.c, args.p->x->rows, TURN, turn_rows, &args);
    return NULL;
}

void sheaf__record_rope_grid(sheaf__tape *tape, sheaf__value *x, const float *cos, const float *sin,
                             int64_t images, int64_t heads, int64_t head_dim)
{
    sheaf__op *op = sheaf__tape_op(tape, "rotary embedding", turn_forward,
                                   x->needs_grad ? turn_backward : NULL, sizeof(turn_params));
    *(turn_params *)op->params = (turn_params){ cos, sin, x->rows / images, heads, head_dim, x };
    sheaf__op_arg(op, x, SHEAF__CHANGE | SHEAF__TURNS);
}

/* ---- images in the sequences ---- */

typedef struct image_params {
    int64_t images, patches;
    sheaf__vector *boi, *eoi; /* or NULL */
    const sheaf__images_in *in;
    sheaf__value *x, *v;
    bool turns; /* the op that made x wants its gradient */
} image_params;

/* Rows before and behind the patches of each image. */
static int64_t before(const image_params *p)
{
    return p->boi != NULL;
}
static int64_t after(const image_params *p)
{
    return p->eoi != NULL;
}

/* Rows of x that hold the first, the inner, the last, or all of each image's rows. */
static sheaf__row_map boi_rows(const image_params *p)
{
    return (sheaf__row_map){ p->in->image_row, 1, 0, p->patches + after(p) };
}
static sheaf__row_map patch_rows(const image_params *p)
{
    return (sheaf__row_map){ p->in->image_row, p->patches, before(p), after(p) };
}
static sheaf__row_map eoi_rows(const image_params *p)
{
    return (sheaf__row_map){ p->in->image_row, 1, before(p) + p->patches, 0 };
}

static sheaf_status *images_forward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const image_params *p = op->params;
    const int64_t width = p->x->cols;
    if (p->boi != NULL)
        sheaf__set_rows(c, p->x->data, p->boi->data, boi_rows(p), p->images, width);
    sheaf__scatter(c, p->x->data, p->v->data, patch_rows(p), p->v->rows, width, false);
    if (p->eoi != NULL)
        sheaf__set_rows(c, p->x->data, p->eoi->data, eoi_rows(p), p->images, width);
    return NULL;
}

static sheaf_status *images_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const image_params *p = op->params;
    const int64_t width = p->x->cols;
    sheaf_status *st = NULL;
    if (trains(p->boi))
        st = sheaf__sum_mapped(c, grad_of(p->boi), p->x->grad, boi_rows(p), p->images, width);
    if (st == NULL && trains(p->eoi))
        st = sheaf__sum_mapped(c, grad_of(p->eoi), p->x->grad, eoi_rows(p), p->images, width);
    if (st != NULL)
        return st;
    if (p->v->needs_grad)
        sheaf__gather(c, p->v->grad, p->x->grad, patch_rows(p), p->v->rows, width,
                      !p->v->grad_fresh);
    if (p->turns)
        sheaf__set_rows(c, p->x->grad, NULL, sheaf__row_map_listed(p->in->image_row),
                        p->images * (before(p) + p->patches + after(p)), width);
    return NULL;
}

void sheaf__record_place_images(sheaf__tape *tape, sheaf__value *x, sheaf__value *v, int64_t images,
                                sheaf__vector *boi, sheaf__vector *eoi, const sheaf__images_in *in)
{
    const bool turns = x->needs_grad, flows = turns || v->needs_grad || trains(boi) || trains(eoi);
    sheaf__op *op = sheaf__tape_op(tape, "images in the sequence", images_forward,
                                   flows ? images_backward : NULL, sizeof(image_params));
    *(image_params *)op->params =
        (image_params){ images, v->rows / images, boi, eoi, in, x, v, turns };
    x->needs_grad = flows;
    if (flows && !turns)
        x->grad_rows = (sheaf__grad_rows){ &in->image_row,
                                           v->rows + images * ((boi != NULL) + (eoi != NULL)) };
    sheaf__op_arg(op, x, SHEAF__CHANGE | (turns ? SHEAF__TURNS : flows ? SHEAF__GIVES : 0));
    sheaf__op_arg(op, v, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
}

/* ---- two streams ---- */

typedef struct stream_params {
    const sheaf__images_in *in;
    sheaf__value *whole, *stream[2];
} stream_params;

/* Rows of the streams from the whole value, or gradients of it; or the other way round. */
static void take_streams(sheaf__context *c, const stream_params *p, bool grad)
{
    for (int i = 0; i < 2; i++) {
        const sheaf__value *one = p->stream[i], *all = p->whole;
        if (!grad || one->needs_grad)
            sheaf__gather(c, grad ? one->grad : one->data, grad ? all->grad : all->data,
                          sheaf__row_map_listed(p->in->stream[i]), one->rows, all->cols,
                          grad && !one->grad_fresh);
    }
}

static void give_streams(sheaf__context *c, const stream_params *p, bool grad)
{
    for (int i = 0; i < 2; i++) {
        const sheaf__value *one = p->stream[i], *all = p->whole;
        sheaf__scatter(c, grad ? all->grad : all->data, grad ? one->grad : one->data,
                       sheaf__row_map_listed(p->in->stream[i]), one->rows, all->cols,
                       grad && !all->grad_fresh);
    }
}

static sheaf_status *split_forward(sheaf__tape *tape, sheaf__op *op)
{
    take_streams(sheaf__tape_context(tape), op->params, false);
    return NULL;
}

static sheaf_status *split_backward(sheaf__tape *tape, sheaf__op *op)
{
    give_streams(sheaf__tape_context(tape), op->params, true);
    return NULL;
}

void sheaf__record_split(sheaf__tape *tape, sheaf__value *stream[2], sheaf__value *x,
                         const int64_t rows[2], const sheaf__images_in *in)
{
    if (rows[0] == 0 || rows[1] == 0) {
        stream[0] = rows[0] == 0 ? NULL : x;
        stream[1] = rows[0] == 0 ? x : NULL;
        return;
    }
    const bool flows = x->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "text and image rows", split_forward,
                                   flows ? split_backward : NULL, sizeof(stream_params));
    stream_params *p = op->params;
    *p = (stream_params){ .in = in, .whole = x };
    sheaf__op_arg(op, x, SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    for (int i = 0; i < 2; i++) {
        stream[i] = p->stream[i] = sheaf__tape_value(tape, i == 0 ? "text rows" : "image rows",
                                                     rows[i], x->cols, x->dtype);
        stream[i]->needs_grad = flows;
        sheaf__op_arg(op, stream[i], SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    }
}

static sheaf_status *join_forward(sheaf__tape *tape, sheaf__op *op)
{
    give_streams(sheaf__tape_context(tape), op->params, false);
    return NULL;
}

static sheaf_status *join_backward(sheaf__tape *tape, sheaf__op *op)
{
    take_streams(sheaf__tape_context(tape), op->params, true);
    return NULL;
}

sheaf__value *sheaf__record_join(sheaf__tape *tape, sheaf__value *const stream[2],
                                 const int64_t rows[2], const sheaf__images_in *in)
{
    if (rows[0] == 0 || rows[1] == 0)
        return stream[rows[0] == 0];
    const bool flows = stream[0]->needs_grad || stream[1]->needs_grad;
    sheaf__op *op = sheaf__tape_op(tape, "rows in their order", join_forward,
                                   flows ? join_backward : NULL, sizeof(stream_params));
    stream_params *p = op->params;
    *p = (stream_params){ in,
                          sheaf__tape_value(tape, "rows in their order", rows[0] + rows[1],
                                            stream[0]->cols, stream[0]->dtype),
                          { stream[0], stream[1] } };
    p->whole->needs_grad = flows;
    sheaf__op_arg(op, p->whole, SHEAF__MAKE | (flows ? SHEAF__GIVES : 0));
    for (int i = 0; i < 2; i++)
        sheaf__op_arg(op, stream[i], SHEAF__READ | (flows ? SHEAF__TAKES : 0));
    return p->whole;
}

void sheaf__vector_refresh(sheaf__context *c, sheaf__vector *vector)
{
    if (vector->trained != NULL)
        sheaf__refresh(c, vector->data, vector->trained->weight[0], vector->rows * vector->width);
}
