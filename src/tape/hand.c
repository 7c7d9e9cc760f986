/* hand.c - see hand.h. */
#include "tape/hand.h"

sheaf_status *sheaf__hand(sheaf__context *c, void *bytes, size_t size, int stage)
{
    return sheaf_comm_broadcast(c->world, bytes, size, stage * c->ranks);
}

typedef struct hand_params {
    sheaf__value *x;
    int stage;
} hand_params;

static sheaf_status *hand_forward(sheaf__tape *tape, sheaf__op *op)
{
    const hand_params *p = op->params;
    return sheaf__hand(sheaf__tape_context(tape), p->x->data,
                       (size_t)p->x->rows * (size_t)p->x->cols * sheaf_dtype_bytes(p->x->dtype),
                       p->stage);
}

sheaf__value *sheaf__record_hand(sheaf__tape *tape, sheaf__value *x, int stage, const char *name,
                                 int64_t rows, int64_t cols)
{
    sheaf__op *op = sheaf__tape_op(tape, name, hand_forward, NULL, sizeof(hand_params));
    const unsigned use = x == NULL
                             ? SHEAF__MAKE
                             : SHEAF__CHANGE; /* the stage's other ranks get the bytes they have */
    if (x == NULL)
        x = sheaf__tape_value(tape, name, rows, cols, sheaf__tape_context(tape)->dtype);
    *(hand_params *)op->params = (hand_params){ x, stage };
    sheaf__op_arg(op, x, use);
    return x;
}
