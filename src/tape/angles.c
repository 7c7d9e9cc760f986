/* angles.c - see angles.h. The host works out the angles of a run: it knows the positions. */
#include "tape/angles.h"

#include "base/base.h"
#include "ops/math/math.h"
#include "ops/math/round.h"
#include "tape/pictures_inner.h"
#include "tape/rows.h"

typedef struct turns_params {
    const sheaf__angles *angles;
    const sheaf__rows_in *in; /* of tokens; NULL: of patches */
    sheaf__pictures of;
    sheaf__turns y;
} turns_params;

/* The host's side of a run. */
typedef struct turning {
    const turns_params *p;
    const sheaf__picture_at *at; /* of patches, */
    const int32_t *order;        /* of all pictures */
    float *cos, *sin;
} turning;

/* The position of row r on each axis. */
static void position_of(int32_t out[3], const turning *t, int64_t r)
{
    const turns_params *p = t->p;
    if (p->in != NULL) {
        for (int axis = 0; axis < 3; axis++)
            out[axis] = p->in->host.position[axis * p->y.cos->rows + r];
        return;
    }
    int64_t patch;
    const int64_t image = sheaf__picture_of(t->at, p->of.images, false, t->order[r], &patch);
    out[0] = (int32_t)(patch / t->at[image].across);
    out[1] = (int32_t)(patch % t->at[image].across);
}

static void turn_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const turning *t = arg;
    const sheaf__angles *angles = t->p->angles;
    for (int64_t r = begin; r < end; r++) {
        int32_t position[3];
        position_of(position, t, r);
        for (int64_t j = 0; j < angles->pairs; j++) {
            const double angle = (double)((float)position[angles->axis[j]] * angles->frequency[j]);
            t->cos[r * angles->pairs + j] =
                sheaf__rounded((float)sheaf__cos_d(angle) * angles->attention, angles->dtype);
            t->sin[r * angles->pairs + j] =
                sheaf__rounded((float)sheaf__sin_d(angle) * angles->attention, angles->dtype);
        }
    }
}

static sheaf_status *turns_forward(sheaf__tape *tape, sheaf__op *op)
{
    const turns_params *p = op->params;
    const sheaf__value *cos = p->y.cos, *sin = p->y.sin;
    const size_t bytes = (size_t)(cos->rows * cos->cols) * sizeof(float);
    sheaf__context *c = sheaf__tape_context(tape);
    sheaf__device *device = c->device;
    turning t = { .p = p };
    sheaf__picture_at *at = NULL;
    int32_t *order = NULL;
    sheaf_status *st = p->in == NULL ? sheaf__pictures_layout(&at, &p->of) : NULL;
    if (p->in == NULL)
        TRY(st, sheaf__windows_order(&order, c, at, &p->of, false));
    t.at = at;
    t.order = order;
    TRY(st, sheaf__borrow(&t.cos, device, cos->data, bytes, false));
    TRY(st, sheaf__borrow(&t.sin, device, sin->data, bytes, false));
    const bool known = p->in != NULL ? p->in->host.ids != NULL : at != NULL;
    if (st == NULL && t.sin != NULL && known)
        sheaf__rows(c, cos->rows, 16, turn_rows, &t);
    st = sheaf__first_of(st, sheaf__return(t.cos, device, cos->data, bytes, true));
    st = sheaf__first_of(st, sheaf__return(t.sin, device, sin->data, bytes, true));
    free(order);
    free(at);
    return st;
}

static sheaf__turns record_turns(sheaf__tape *tape, turns_params how, int64_t rows)
{
    sheaf__op *op = sheaf__tape_op(tape, "rotary angles", turns_forward, NULL, sizeof how);
    turns_params *p = op->params;
    *p = how;
    p->y.cos = sheaf__tape_value(tape, "cosines", rows, how.angles->pairs, SHEAF_F32);
    p->y.sin = sheaf__tape_value(tape, "sines", rows, how.angles->pairs, SHEAF_F32);
    sheaf__op_arg(op, p->y.cos, SHEAF__MAKE);
    sheaf__op_arg(op, p->y.sin, SHEAF__MAKE);
    return p->y;
}

sheaf__turns sheaf__record_token_turns(sheaf__tape *tape, const sheaf__angles *angles,
                                       const sheaf__rows_in *in, int64_t rows)
{
    return record_turns(tape, (turns_params){ .angles = angles, .in = in }, rows);
}

sheaf__turns sheaf__record_patch_turns(sheaf__tape *tape, const sheaf__angles *angles,
                                       const sheaf__pictures *of)
{
    return record_turns(tape, (turns_params){ .angles = angles, .of = *of }, of->patches);
}

/* ---- rows that turn ---- */

typedef struct turned_params {
    sheaf__value *x;
    sheaf__turns by;
    int64_t head_dim;
} turned_params;

static void turn(const sheaf__context *c, const turned_params *p, void *x, bool inverse)
{
    sheaf__op_rope(c->device, (sheaf__rope){ .x = x,
                                             .cos = p->by.cos->data,
                                             .sin = p->by.sin->data,
                                             .ld = p->x->cols,
                                             .rows = p->x->rows,
                                             .heads = p->x->cols / p->head_dim,
                                             .head_dim = p->head_dim,
                                             .rot = 2 * p->by.cos->cols,
                                             .positions = p->x->rows,
                                             .inverse = inverse,
                                             .dtype = c->dtype });
}

static sheaf_status *turned_forward(sheaf__tape *tape, sheaf__op *op)
{
    const turned_params *p = op->params;
    turn(sheaf__tape_context(tape), p, p->x->data, false);
    return NULL;
}

static sheaf_status *turned_backward(sheaf__tape *tape, sheaf__op *op)
{
    const turned_params *p = op->params;
    turn(sheaf__tape_context(tape), p, p->x->grad, true);
    return NULL;
}

void sheaf__record_turned(sheaf__tape *tape, sheaf__value *x, sheaf__turns by, int64_t head_dim)
{
    sheaf__op *op = sheaf__tape_op(tape, "rotary embedding", turned_forward,
                                   x->needs_grad ? turned_backward : NULL, sizeof(turned_params));
    *(turned_params *)op->params = (turned_params){ x, by, head_dim };
    sheaf__op_arg(op, by.cos, SHEAF__READ | SHEAF__KEEP);
    sheaf__op_arg(op, by.sin, SHEAF__READ | SHEAF__KEEP);
    sheaf__op_changes(op, x, x->needs_grad);
}
