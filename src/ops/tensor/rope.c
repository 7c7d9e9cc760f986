/* rope.c - rotary embedding of rows, see tensor.h; formulas in ops/kernels.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { ROWS = 32 };

static void half_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__rope *r = arg;
    int32_t own[ROWS];
    for (int64_t i = begin; i < end && r->position == NULL; i++)
        own[i - begin] = (int32_t)i;
    k->rope(sheaf__at(r->x, begin * r->ld, r->dtype), r->ld, r->cos, r->sin,
            r->position == NULL ? own : r->position + begin, end - begin, r->heads, r->head_dim,
            r->rot, r->inverse, r->dtype);
}

static void pairs_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__rope *r = arg;
    int32_t position[ROWS];
    for (int64_t i = begin; i < end; i++) /* a grid's class token: -1 */
        position[i - begin] =
            r->position != NULL ? r->position[i] : (int32_t)(i % (r->positions + 1)) - 1;
    k->rope_pairs(sheaf__at(r->x, begin * r->ld, r->dtype), r->ld, r->cos, r->sin, position,
                  end - begin, r->heads, r->head_dim, r->rot, r->inverse, r->dtype);
}

static void run(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                sheaf__rope *r, int64_t angles)
{
    const size_t table = (size_t)(r->positions * angles) * sizeof(float);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(r->x, sheaf__extent(r->rows, r->ld, r->heads * r->head_dim, r->dtype)),
        SHEAF__READS(r->cos, table),
        SHEAF__READS(r->sin, table),
        SHEAF__READS(r->position, (size_t)r->rows * sizeof(int32_t)),
    };
    sheaf__run(device,
               &(sheaf__call){ operation, r, SHEAF__OPERANDS(operand), part, r->rows, ROWS });
}

void sheaf__op_rope(sheaf__device *device, sheaf__rope rope)
{
    run(device, SHEAF__OP_ROPE, half_part, &rope, rope.rot / 2);
}

void sheaf__op_rope_pairs(sheaf__device *device, sheaf__rope rope)
{
    run(device, SHEAF__OP_ROPE_PAIRS, pairs_part, &rope, rope.rot);
}
