/* tape_ends.h - both ends of a small tape: numbers that bfloat16 holds, where values come from (a
 * source, which takes their gradient) and where they go to (a sink, which gives one). For the tests
 * of this folder. */
#pragma once

#include "tests/check.h"

#include "tape/tape.h"

/* Multiples of 1/64 in [-1, 1]: exact in bfloat16. */
static inline float number(int64_t i, uint64_t salt)
{
    uint64_t h = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u + salt * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 29)) * 0x94d049bb133111ebu;
    return (float)((int)(h >> 40) % 129 - 64) / 64;
}

static inline float *numbers(int64_t n, uint64_t salt)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = number(i, salt);
    return x;
}

/* device_copy - memory of the device with these bytes; NULL: with anything. It goes with the
 * device.
 */
static inline void *device_copy(sheaf__device *device, const void *from, size_t bytes)
{
    void *at;
    CHECK_OK(sheaf__device_alloc(&at, device, bytes, SHEAF_MEM_WEIGHTS));
    if (from != NULL)
        CHECK_OK(sheaf__upload(device, at, from, bytes));
    return at;
}

/* ---- where values come from and go to ---- */

typedef struct end_params {
    sheaf__value *x;
    const float *give; /* source: data; sink: gradient */
    float *take;       /* source: gradient; sink: data */
    int64_t ld, col;   /* columns [col, col + x->cols) of matrices with rows of ld */
} end_params;

static void copy_in(const sheaf__context *c, const end_params *p, void *to)
{
    const size_t row = (size_t)p->x->cols * sheaf_dtype_bytes(p->x->dtype);
    for (int64_t r = 0; r < p->x->rows; r++)
        CHECK_OK(sheaf__upload_rounded(c->device, (char *)to + (size_t)r * row, p->x->dtype,
                                       p->give + r * p->ld + p->col, SHEAF_F32, p->x->cols));
}

static void copy_out(const sheaf__context *c, const end_params *p, void *from)
{
    const size_t row = (size_t)p->x->cols * sheaf_dtype_bytes(p->x->dtype),
                 bytes = (size_t)p->x->rows * row;
    char *host;
    CHECK_OK(sheaf__borrow(&host, c->device, from, bytes, true));
    for (int64_t r = 0; r < p->x->rows && host != NULL; r++)
        c->device->kernels->widen(p->take + r * p->ld + p->col, host + (size_t)r * row, p->x->dtype,
                                  p->x->cols);
    CHECK_OK(sheaf__return(host, c->device, from, bytes, false));
}

static sheaf_status *source_forward(sheaf__tape *tape, sheaf__op *op)
{
    const end_params *p = op->params;
    copy_in(sheaf__tape_context(tape), p, p->x->data);
    return NULL;
}

static sheaf_status *source_backward(sheaf__tape *tape, sheaf__op *op)
{
    const end_params *p = op->params;
    copy_out(sheaf__tape_context(tape), p, p->x->grad);
    return NULL;
}

static inline sheaf__value *source_of(sheaf__tape *tape, int64_t rows, int64_t cols, bool frozen,
                                      const float *data, float *grad, int64_t ld, int64_t col)
{
    sheaf__op *op = sheaf__tape_op(tape, "source", source_forward, frozen ? NULL : source_backward,
                                   sizeof(end_params));
    sheaf__value *x =
        sheaf__tape_value(tape, "source", rows, cols, sheaf__tape_context(tape)->dtype);
    *(end_params *)op->params = (end_params){ x, data, grad, ld, col };
    x->needs_grad = !frozen;
    sheaf__op_arg(op, x, SHEAF__MAKE | (frozen ? 0 : SHEAF__GRAD_READ));
    return x;
}

static sheaf_status *sink_forward(sheaf__tape *tape, sheaf__op *op)
{
    const end_params *p = op->params;
    copy_out(sheaf__tape_context(tape), p, p->x->data);
    return NULL;
}

static sheaf_status *sink_backward(sheaf__tape *tape, sheaf__op *op)
{
    sheaf__context *c = sheaf__tape_context(tape);
    const end_params *p = op->params;
    assert_true(p->x->grad_fresh); /* sinks are recorded last */
    copy_in(c, p, p->x->grad);
    return NULL;
}

static inline void sink_of(sheaf__tape *tape, sheaf__value *x, const float *weight, float *data,
                           int64_t ld, int64_t col)
{
    sheaf__op *op = sheaf__tape_op(tape, "sink", sink_forward, x->needs_grad ? sink_backward : NULL,
                                   sizeof(end_params));
    *(end_params *)op->params = (end_params){ x, weight, data, ld, col };
    sheaf__op_arg(op, x, SHEAF__READ | SHEAF__GRAD_WRITE);
}
