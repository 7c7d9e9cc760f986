/* trained.c - operations of the optimizer, see tensor.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { CHUNK = 1 << 15, SUMS = 512 };

/* ---- norms ---- */

static void squares_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__squares_of *s = arg;
    for (int64_t i = begin; i < end; i++)
        s->each[i].sum = k->squares(s->each[i].x, s->each[i].n);
}

void sheaf__op_squares(sheaf__device *device, sheaf__squares *of, int64_t count)
{
    sheaf__operand operand[SUMS];
    for (int64_t first = 0, n; first < count; first += n) {
        n = count - first < SUMS ? count - first : SUMS;
        sheaf__squares_of s = { of + first, n };
        for (int64_t i = 0; i < n; i++) {
            operand[i] = SHEAF__READS(s.each[i].x, (size_t)s.each[i].n * sizeof(float));
            s.each[i].sum = 0;
        }
        sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_SQUARES,
                                           .arguments = &s,
                                           .operand = operand,
                                           .operands = (int)n,
                                           .part = squares_part,
                                           .rows = n,
                                           .grain = 1 });
    }
}

/* ---- AdamW ---- */

static void update_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__update *u = arg;
    k->adamw(u->master + begin, u->moment1 + begin, u->moment2 + begin, u->grad + begin,
             end - begin, &u->how);
}

void sheaf__op_adamw(sheaf__device *device, sheaf__update u)
{
    const size_t bytes = (size_t)u.n * sizeof(float);
    const sheaf__operand operand[] = { SHEAF__WRITES(u.master, bytes),
                                       SHEAF__WRITES(u.moment1, bytes),
                                       SHEAF__WRITES(u.moment2, bytes),
                                       SHEAF__READS(u.grad, bytes) };
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_ADAMW,
                                       .arguments = &u,
                                       .operand = operand,
                                       .operands = 4,
                                       .part = update_part,
                                       .rows = u.n,
                                       .grain = CHUNK });
}
