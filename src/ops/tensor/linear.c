/* linear.c - what layers do beside their products, see tensor.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

static void finish_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__finishing *f = arg;
    k->finish(sheaf__at(f->y, begin * f->ldy, f->dtype), f->ldy, f->sum + begin * f->lds, f->lds,
              f->alpha, f->by, f->bias,
              f->residual == NULL ? NULL : sheaf__at(f->residual, begin * f->ldr, f->dtype), f->ldr,
              end - begin, f->cols, f->dtype);
}

static void run_finish(sheaf__device *device, sheaf__finishing *f, int64_t grain)
{
    const sheaf__operand operand[] = {
        SHEAF__WRITES(f->y, sheaf__extent(f->rows, f->ldy, f->cols, f->dtype)),
        SHEAF__READS(f->sum, sheaf__extent(f->rows, f->lds, f->cols, SHEAF_F32)),
        SHEAF__READS(f->by, (size_t)f->cols * sizeof(float)),
        SHEAF__READS(f->bias, (size_t)f->cols * sizeof(float)),
        SHEAF__READS(f->residual, sheaf__extent(f->rows, f->ldr, f->cols, f->dtype)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_FINISH, f, SHEAF__OPERANDS(operand), finish_part,
                                       f->rows, grain });
}

void sheaf__op_finish(sheaf__device *device, void *y, const float *sum, const float *by,
                      const float *bias, const void *residual, int64_t rows, int64_t cols,
                      sheaf_dtype dtype)
{
    run_finish(
        device,
        &(sheaf__finishing){ y, sum, by, bias, residual, cols, cols, cols, rows, cols, 1, dtype },
        16);
}

void sheaf__op_scale_round(sheaf__device *device, void *y, const float *sum, float scale,
                           int64_t rows, int64_t ld, int64_t cols, sheaf_dtype dtype)
{
    run_finish(device,
               &(sheaf__finishing){ y, sum, NULL, NULL, NULL, ld, ld, 0, rows, cols, scale, dtype },
               256);
}

static void magnitudes_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    (void)k;
    for (int64_t i = begin; i < end; i++)
        sheaf__magnitude(arg, i);
}

void sheaf__op_magnitudes(sheaf__device *device, sheaf__magnitudes m)
{
    const size_t bytes = (size_t)m.n * sizeof(float);
    const sheaf__operand operand[] = { SHEAF__WRITES(m.by, bytes), SHEAF__WRITES(m.inverse, bytes),
                                       SHEAF__READS(m.magnitude, bytes),
                                       SHEAF__READS(m.squares, bytes) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_MAGNITUDES, &m, SHEAF__OPERANDS(operand),
                                       magnitudes_part, m.n, 1 << 10 });
}

static void dropout_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__dropping *d = arg;
    sheaf__dropout how = d->how;
    how.sample += begin;
    how.position += begin;
    k->dropout(sheaf__at(d->y, begin * d->cols, d->dtype),
               sheaf__at(d->x, begin * d->cols, d->dtype), d->cols, end - begin, d->cols, &how,
               d->dtype);
}

void sheaf__op_dropout(sheaf__device *device, void *y, const void *x, int64_t rows, int64_t cols,
                       const sheaf__dropout *how, sheaf_dtype dtype)
{
    sheaf__dropping d = { y, x, *how, rows, cols, dtype };
    const size_t bytes = (size_t)(rows * cols) * sheaf_dtype_bytes(dtype),
                 names = (size_t)rows * sizeof(int64_t);
    const sheaf__operand operand[] = { SHEAF__WRITES(d.y, bytes), SHEAF__READS(d.x, bytes),
                                       SHEAF__READS(d.how.sample, names),
                                       SHEAF__READS(d.how.position, names) };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_DROPOUT, &d, SHEAF__OPERANDS(operand),
                                       dropout_part, rows, 64 });
}

static void noise_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__noisy *a = arg;
    sheaf__noise how = a->how;
    how.sample += begin;
    how.position += begin;
    how.half += begin;
    k->noise(sheaf__at(a->x, begin * a->cols, a->dtype), a->cols, end - begin, a->cols, &how,
             a->dtype);
}

void sheaf__op_noise(sheaf__device *device, void *x, int64_t rows, int64_t cols,
                     const sheaf__noise *how, sheaf_dtype dtype)
{
    sheaf__noisy a = { x, rows, cols, *how, dtype };
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.x, (size_t)(rows * cols) * sheaf_dtype_bytes(dtype)),
        SHEAF__READS(a.how.sample, (size_t)rows * sizeof(int64_t)),
        SHEAF__READS(a.how.position, (size_t)rows * sizeof(int64_t)),
        SHEAF__READS(a.how.half, (size_t)rows * sizeof(float)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_NOISE, &a, SHEAF__OPERANDS(operand), noise_part,
                                       rows, 32 });
}
