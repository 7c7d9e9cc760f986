/* transfer.c - see transfer.h. */
#include "tape/transfer.h"

#include "tape/rows.h"

sheaf_status *sheaf__transfer(const sheaf__context *c, void *bytes, size_t size, int stage)
{
    return sheaf_comm_broadcast(c->world, bytes, size, stage * c->ranks);
}

typedef struct hand_params {
    sheaf__value *x;
    int stage;
    void *buffer; /* of a run */
} hand_params;

static sheaf_status *hand_forward(sheaf__tape *tape, sheaf__op *op)
{
    const hand_params *p = op->params;
    const sheaf__context *c = sheaf__tape_context(tape);
    return sheaf__broadcast_among(
        c, c->world, p->x->data, (size_t)(p->x->rows * p->x->cols) * sheaf_dtype_bytes(p->x->dtype),
        p->stage * c->ranks);
}

static sheaf_status *store_forward(sheaf__tape *tape, sheaf__op *op)
{
    const hand_params *p = op->params;
    sheaf__copy(sheaf__tape_context(tape), p->buffer, p->x->data, p->x->rows * p->x->cols, false);
    return NULL;
}

static sheaf_status *recall_forward(sheaf__tape *tape, sheaf__op *op)
{
    const hand_params *p = op->params;
    sheaf__copy(sheaf__tape_context(tape), p->x->data, p->buffer, p->x->rows * p->x->cols, false);
    return NULL;
}

static sheaf__value *record(sheaf__tape *tape, const char *name, sheaf__op_fn *forward,
                            hand_params how, unsigned use)
{
    sheaf__op *op = sheaf__tape_op(tape, name, forward, NULL, sizeof how);
    *(hand_params *)op->params = how;
    sheaf__op_arg(op, how.x, use);
    return how.x;
}

/* The stage's other ranks get the bytes that they have. */
sheaf__value *sheaf__record_transfer(sheaf__tape *tape, sheaf__value *x, int stage,
                                     const char *name, int64_t rows, int64_t cols)
{
    const unsigned use = x == NULL ? SHEAF__MAKE : SHEAF__CHANGE;
    if (x == NULL)
        x = sheaf__tape_value(tape, name, rows, cols, sheaf__tape_context(tape)->dtype);
    return record(tape, name, hand_forward, (hand_params){ .x = x, .stage = stage }, use);
}

void sheaf__record_store(sheaf__tape *tape, sheaf__value *x, void *buffer)
{
    record(tape, x->name, store_forward, (hand_params){ .x = x, .buffer = buffer }, SHEAF__READ);
}

sheaf__value *sheaf__record_recall(sheaf__tape *tape, const void *buffer, const char *name,
                                   int64_t rows, int64_t cols)
{
    sheaf__value *x = sheaf__tape_value(tape, name, rows, cols, sheaf__tape_context(tape)->dtype);
    return record(tape, name, recall_forward, (hand_params){ .x = x, .buffer = (void *)buffer },
                  SHEAF__MAKE);
}
