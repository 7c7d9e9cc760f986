/* shrink.c - matrices in 8 bits, see tensor.h. */
#include "ops/shrink/shrink.h"

#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { GRAIN = 16 };

static int64_t blocks_of(int64_t cols)
{
    return (cols + SHEAF__SHRINK_BLOCK - 1) / SHEAF__SHRINK_BLOCK;
}

/* Parts of whole blocks are one part. */
size_t sheaf__shrunk_init(sheaf__shrunk *out, int64_t rows, int64_t cols, const int64_t *part,
                          int parts, sheaf_dtype dtype)
{
    bool whole = true;
    *out = (sheaf__shrunk){ .rows = rows, .cols = cols, .dtype = dtype };
    for (int i = 0; i < parts; i++) {
        out->part[i] = (int32_t)part[i];
        out->blocks += blocks_of(part[i]);
        whole = whole && part[i] % SHEAF__SHRINK_BLOCK == 0;
    }
    out->parts = parts;
    if (parts == 0 || whole) {
        out->parts = 1;
        out->part[0] = (int32_t)cols;
        out->blocks = blocks_of(cols);
    }
    return (size_t)rows * (size_t)(out->cols + out->blocks);
}

static void shrink_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__shrunk *s = arg;
    int64_t at = begin * s->cols, block = begin * s->blocks;
    for (int64_t row = begin; row < end; row++)
        for (int32_t i = 0; i < s->parts; i++) {
            k->shrink(s->codes + at, s->scales + block, sheaf__at(s->x, at, s->dtype), s->part[i],
                      s->dtype);
            at += s->part[i];
            block += blocks_of(s->part[i]);
        }
}

static void expand_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__shrunk *s = arg;
    int64_t at = begin * s->cols, block = begin * s->blocks;
    for (int64_t row = begin; row < end; row++)
        for (int32_t i = 0; i < s->parts; i++) {
            k->expand(sheaf__at(s->x, at, s->dtype), s->codes + at, s->scales + block, s->part[i],
                      s->dtype);
            at += s->part[i];
            block += blocks_of(s->part[i]);
        }
}

static void run(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                sheaf__shrunk s, bool shrinks)
{
    const size_t numbers = (size_t)(s.rows * s.cols);
    const sheaf__operand operand[] = {
        { &s.x, numbers * sheaf_dtype_bytes(s.dtype), !shrinks },
        { &s.codes, numbers, shrinks },
        { &s.scales, (size_t)(s.rows * s.blocks), shrinks },
    };
    sheaf__run(device,
               &(sheaf__call){ operation, &s, SHEAF__OPERANDS(operand), part, s.rows, GRAIN });
}

void sheaf__op_shrink(sheaf__device *device, const sheaf__shrunk *s)
{
    run(device, SHEAF__OP_SHRINK, shrink_part, *s, true);
}

void sheaf__op_expand(sheaf__device *device, const sheaf__shrunk *s)
{
    run(device, SHEAF__OP_EXPAND, expand_part, *s, false);
}
