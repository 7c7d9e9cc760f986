/* vision.c - see vision.h; LayerNorm lies in layernorm.c, GELU and the rotary embedding on a grid
 * in layers.c. */
#include "tape/vision.h"

#include "tape/pictures.h"
#include "tape/rows.h"

static float *grad_of(const sheaf__vector *vector)
{
    return vector->trained->grad[0];
}

static bool trains(const sheaf__vector *vector)
{
    return vector != NULL && vector->trained != NULL;
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

typedef struct positions_params {
    int64_t images;
    sheaf__vector *positions; /* one for each row of an image */
    sheaf__value *x;
} positions_params;

static sheaf_status *positions_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const positions_params *p = op->params;
    sheaf__op_add_rows(c->device, p->x->data, p->positions->data,
                       p->x->rows / p->images * p->x->cols, p->images, c->dtype);
    return NULL;
}

static sheaf_status *positions_backward(sheaf__tape *tape, sheaf__op *op)
{
    const positions_params *p = op->params;
    const int64_t all = p->x->rows / p->images * p->x->cols;
    if (trains(p->positions))
        sheaf__column_sums(sheaf__tape_context(tape), grad_of(p->positions), p->x->grad, all,
                           p->images, all);
    return NULL;
}

static void record_positions(sheaf__tape *tape, sheaf__value *x, int64_t images,
                             sheaf__vector *positions)
{
    const bool flows = x->needs_grad || trains(positions);
    sheaf__op *op = sheaf__tape_op(tape, positions->name, positions_forward,
                                   flows ? positions_backward : NULL, sizeof(positions_params));
    *(positions_params *)op->params = (positions_params){ images, positions, x };
    sheaf__op_changes(op, x, flows);
}

sheaf__value *sheaf__record_tokens(sheaf__tape *tape, sheaf__value *patches, int64_t images,
                                   sheaf__vector *class_token, sheaf__vector *positions)
{
    const sheaf__pictures of = { .images = images, .patches = patches->rows };
    sheaf__value *x = sheaf__record_class_rows(tape, patches, &of, class_token);
    record_positions(tape, x, images, positions);
    return x;
}

sheaf__value *sheaf__record_grid(sheaf__tape *tape, sheaf__value *tokens, int64_t images,
                                 sheaf__vector *positions)
{
    const sheaf__pictures of = { .images = images, .patches = tokens->rows - images };
    sheaf__value *x = sheaf__record_without_class(tape, tokens, &of);
    if (positions != NULL)
        record_positions(tape, x, images, positions);
    return x;
}

/* ---- blocks of a grid ---- */

typedef struct blocks_params {
    int64_t across, side;
    sheaf__value *x, *y;
} blocks_params;

/* Every element of x has one place in y, so both directions are copies: place (dy, dx) of all
 * blocks at a time, element by element, as those of a channel become neighbours. */
static void move_blocks(const sheaf__context *c, const blocks_params *p, void *joined, void *apart,
                        bool back)
{
    const int64_t width = p->x->cols, side = p->side, area = side * side, blocks = p->across / side;
    const int64_t in_y[3] = { blocks * width * area, width * area, area },
                  in_x[3] = { side * p->across * width, side * width, 1 };
    for (int64_t place = 0; place < area; place++) {
        void *y = sheaf__at(joined, place, c->dtype),
             *x = sheaf__at(apart, (place / side * p->across + place % side) * width, c->dtype);
        sheaf__boxes boxes = { .dtype = c->dtype,
                               .dst = back ? x : y,
                               .src = back ? y : x,
                               .count = { p->x->rows / p->across / side, blocks, width },
                               .cols = 1 };
        memcpy(boxes.ld_dst, back ? in_x : in_y, sizeof in_x);
        memcpy(boxes.ld_src, back ? in_y : in_x, sizeof in_x);
        sheaf__op_copy_boxes(c->device, boxes);
    }
}

static sheaf_status *blocks_forward(sheaf__tape *tape, sheaf__op *op)
{
    const blocks_params *p = op->params;
    move_blocks(sheaf__tape_context(tape), p, p->y->data, p->x->data, false);
    return NULL;
}

static sheaf_status *blocks_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const blocks_params *p = op->params;
    void *dx;
    sheaf_status *st = sheaf__gradient_begin(&dx, c, p->x);
    if (st != NULL)
        return st;
    move_blocks(c, p, p->y->grad, dx, true);
    sheaf__gradient_end(c, p->x, dx, true);
    return NULL;
}

sheaf__value *sheaf__record_blocks(sheaf__tape *tape, sheaf__value *x, int64_t across, int64_t side)
{
    const int64_t area = side * side;
    sheaf__op *op = sheaf__tape_op(tape, "blocks of patches", blocks_forward,
                                   x->needs_grad ? blocks_backward : NULL, sizeof(blocks_params));
    sheaf__value *y = sheaf__tape_value(tape, op->name, x->rows / area, x->cols * area, x->dtype);
    *(blocks_params *)op->params = (blocks_params){ across, side, x, y };
    return sheaf__op_makes(op, y, x, 0);
}

/* ---- images in the sequences ---- */

typedef struct image_params {
    int64_t images, patches;
    sheaf__vector *boi, *eoi;   /* or NULL */
    const sheaf__images_in *in; /* NULL: x holds these rows alone */
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

/* Rows of the images in x; NULL: at the same place. */
static const int32_t *list_of(const image_params *p)
{
    return p->in == NULL ? NULL : p->in->image_row;
}

/* Rows of x that hold the first, the inner, the last, or all of each image's rows. */
static sheaf__row_map boi_rows(const image_params *p)
{
    return (sheaf__row_map){ list_of(p), 1, 0, p->patches + after(p), p->x->rows };
}
static sheaf__row_map patch_rows(const image_params *p)
{
    return (sheaf__row_map){ list_of(p), p->patches, before(p), after(p), p->x->rows };
}
static sheaf__row_map eoi_rows(const image_params *p)
{
    return (sheaf__row_map){ list_of(p), 1, before(p) + p->patches, 0, p->x->rows };
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
        sheaf__set_rows(c, p->x->grad, NULL, sheaf__row_map_listed(p->in->image_row, p->x->rows),
                        p->images * (before(p) + p->patches + after(p)), width);
    return NULL;
}

void sheaf__record_place_images(sheaf__tape *tape, sheaf__value *x, sheaf__value *v, int64_t images,
                                sheaf__vector *boi, sheaf__vector *eoi, const sheaf__images_in *in)
{
    const bool turns = x->needs_grad, flows = turns || v->needs_grad || trains(boi) || trains(eoi);
    /* Without rows around them, how many are of which image does not matter. */
    const int64_t groups = boi == NULL && eoi == NULL ? 1 : images;
    sheaf__op *op = sheaf__tape_op(tape, "images in the sequence", images_forward,
                                   flows ? images_backward : NULL, sizeof(image_params));
    *(image_params *)op->params =
        (image_params){ groups, v->rows / groups, boi, eoi, in, x, v, turns };
    sheaf__op_changes(op, x, flows);
    if (flows && !turns)
        x->grad_rows = (sheaf__grad_rows){ &in->image_row,
                                           v->rows + images * ((boi != NULL) + (eoi != NULL)) };
    sheaf__op_arg(op, v, SHEAF__READ | SHEAF__GRAD_WRITE);
}

sheaf__value *sheaf__record_around(sheaf__tape *tape, sheaf__value *v, int64_t images,
                                   sheaf__vector *boi, sheaf__vector *eoi)
{
    const bool flows = v->needs_grad || trains(boi) || trains(eoi);
    sheaf__op *op = sheaf__tape_op(tape, "images and rows around them", images_forward,
                                   flows ? images_backward : NULL, sizeof(image_params));
    sheaf__value *x = sheaf__tape_value(tape, op->name, v->rows + 2 * images, v->cols, v->dtype);
    *(image_params *)op->params =
        (image_params){ images, v->rows / images, boi, eoi, NULL, x, v, false };
    return sheaf__op_makes(op, x, v, 0);
}

/* ---- two streams ---- */

typedef struct stream_params {
    const sheaf__images_in *in;
    sheaf__value *whole, *stream[2];
    bool joins; /* the whole value is made of the streams; else they of it */
} stream_params;

/* Of values, or of their gradients, which go the other way. */
static sheaf_status *move_streams(sheaf__context *c, const stream_params *p, bool grad)
{
    const sheaf__value *all = p->whole;
    void *wide = grad ? all->grad : all->data;
    for (int i = 0; i < 2; i++) {
        const sheaf__value *one = p->stream[i];
        const sheaf__row_map map = sheaf__row_map_listed(p->in->stream[i], all->rows);
        void *dense = grad ? one->grad : one->data;
        if (p->joins != grad)
            sheaf__scatter(c, wide, dense, map, one->rows, all->cols, grad && !all->grad_fresh);
        else if (!grad || one->needs_grad)
            sheaf__gather(c, dense, wide, map, one->rows, all->cols, grad && !one->grad_fresh);
    }
    return NULL;
}

static sheaf_status *streams_forward(sheaf__tape *tape, sheaf__op *op)
{
    return move_streams(sheaf__tape_context(tape), op->params, false);
}

static sheaf_status *streams_backward(sheaf__tape *tape, sheaf__op *op)
{
    return move_streams(sheaf__tape_context(tape), op->params, true);
}

static void record_streams(sheaf__tape *tape, const char *name, stream_params how, bool flows)
{
    const unsigned reads = SHEAF__READ | SHEAF__GRAD_WRITE, makes = SHEAF__MAKE | SHEAF__GRAD_READ;
    sheaf__op *op =
        sheaf__tape_op(tape, name, streams_forward, flows ? streams_backward : NULL, sizeof how);
    *(stream_params *)op->params = how;
    sheaf__op_arg(op, how.whole, how.joins ? makes : reads);
    for (int i = 0; i < 2; i++)
        sheaf__op_arg(op, how.stream[i], how.joins ? reads : makes);
}

void sheaf__record_split(sheaf__tape *tape, sheaf__value *stream[2], sheaf__value *x,
                         const int64_t rows[2], const sheaf__images_in *in)
{
    static const char *const name[2] = { "text rows", "image rows" };
    for (int i = 0; i < 2; i++)
        if (rows[!i] == 0) { /* one stream alone */
            stream[i] = x;
            stream[!i] = NULL;
            return;
        }
    for (int i = 0; i < 2; i++) {
        stream[i] = sheaf__tape_value(tape, name[i], rows[i], x->cols, x->dtype);
        sheaf__cut_as(stream[i], x);
        stream[i]->needs_grad = x->needs_grad;
    }
    record_streams(tape, "text and image rows",
                   (stream_params){ in, x, { stream[0], stream[1] }, false }, x->needs_grad);
}

sheaf__value *sheaf__record_join(sheaf__tape *tape, sheaf__value *const stream[2],
                                 const int64_t rows[2], const sheaf__images_in *in)
{
    static const char name[] = "rows in their order";
    if (rows[0] == 0 || rows[1] == 0)
        return stream[rows[0] == 0];
    sheaf__value *whole =
        sheaf__tape_value(tape, name, rows[0] + rows[1], stream[0]->cols, stream[0]->dtype);
    sheaf__cut_as(whole, stream[0]);
    whole->needs_grad = stream[0]->needs_grad || stream[1]->needs_grad;
    record_streams(tape, name, (stream_params){ in, whole, { stream[0], stream[1] }, true },
                   whole->needs_grad);
    return whole;
}

void sheaf__vector_refresh(sheaf__context *c, sheaf__vector *vector)
{
    if (vector->trained != NULL)
        sheaf__refresh(c, vector->data, vector->trained->weight[0], vector->rows * vector->width,
                       false);
}
