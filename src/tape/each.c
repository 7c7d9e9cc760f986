/* each.c - ops whose passes are one body each, over rows or elements (tape.h). */
#include "tape/tape.h"

sheaf_status *sheaf__op_rows(sheaf__tape *tape, const sheaf__op *op, int64_t rows, int64_t grain,
                             sheaf__body *body)
{
    sheaf__op_run run = { sheaf__tape_context(tape), op->params, false };
    sheaf__rows(run.c, rows, grain, body, &run);
    return NULL;
}

sheaf_status *sheaf__op_each(sheaf__tape *tape, const sheaf__op *op, bool backward)
{
    enum { ELEMENTS = 1 << 14 };
    sheaf__op_run run = { sheaf__tape_context(tape), op->params, backward };
    const int64_t rows = sheaf__rows_present(op->over);
    sheaf__rows(run.c, op->grain > 0 ? rows : rows * op->over->cols,
                op->grain > 0 ? op->grain : ELEMENTS, op->body[backward], &run);
    return NULL;
}

static sheaf_status *each_forward(sheaf__tape *tape, sheaf__op *op)
{
    return sheaf__op_each(tape, op, false);
}

static sheaf_status *each_backward(sheaf__tape *tape, sheaf__op *op)
{
    return sheaf__op_each(tape, op, true);
}

sheaf__op *sheaf__tape_each(sheaf__tape *tape, const char *name, size_t params_bytes,
                            const sheaf__value *over, int64_t grain, sheaf__body *forward,
                            sheaf__body *back)
{
    sheaf__op *op =
        sheaf__tape_op(tape, name, each_forward, back == NULL ? NULL : each_backward, params_bytes);
    op->body[0] = forward;
    op->body[1] = back;
    op->over = over;
    op->grain = grain;
    return op;
}
