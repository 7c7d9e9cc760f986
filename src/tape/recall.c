/* recall.c - see recall.h. */
#include "tape/recall.h"

#include <string.h>

#include "tape/rows.h"

typedef struct copy_params {
    sheaf__value *x;
    void *buffer;
    bool store;
} copy_params;
typedef struct copy {
    const copy_params *p;
    sheaf_dtype dtype;
} copy;

static void copy_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const copy *c = arg;
    const sheaf__value *x = c->p->x;
    char *mine = sheaf__at(x->data, begin * x->cols, c->dtype),
         *kept = sheaf__at(c->p->buffer, begin * x->cols, c->dtype);
    memcpy(c->p->store ? kept : mine, c->p->store ? mine : kept,
           (size_t)((end - begin) * x->cols) * sheaf_dtype_bytes(c->dtype));
}

static sheaf_status *copy_forward(sheaf__tape *tape, sheaf__op *op)
{
    const copy_params *p = op->params;
    sheaf__rows(sheaf__tape_context(tape), p->x->rows, 32, copy_rows, &(copy){ p, p->x->dtype });
    return NULL;
}

static void record(sheaf__tape *tape, const char *name, copy_params p)
{
    sheaf__op *op = sheaf__tape_op(tape, name, copy_forward, NULL, sizeof p);
    *(copy_params *)op->params = p;
    sheaf__op_arg(op, p.x, p.store ? SHEAF__READ : SHEAF__MAKE);
}

void sheaf__record_store(sheaf__tape *tape, sheaf__value *x, void *buffer)
{
    record(tape, x->name, (copy_params){ x, buffer, true });
}

sheaf__value *sheaf__record_recall(sheaf__tape *tape, const void *buffer, const char *name,
                                   int64_t rows, int64_t cols)
{
    sheaf__value *x = sheaf__tape_value(tape, name, rows, cols, sheaf__tape_context(tape)->dtype);
    record(tape, name, (copy_params){ x, (void *)buffer, false });
    return x;
}
