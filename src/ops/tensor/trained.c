/* trained.c - operations of the optimizer, see tensor.h. */
#include "ops/adamw/adamw.h"
#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { CHUNK = 1 << 15 };

/* ---- norms ---- */

static void squares_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__squares_of *s = arg;
    for (int64_t i = begin; i < end; i++)
        s->each[i].sum = k->squares(s->each[i].x, s->each[i].n);
}

void sheaf__op_squares(sheaf__device *device, sheaf__squares *of, int64_t count)
{
    sheaf__operand operand[SHEAF__SQUARES];
    for (int64_t first = 0, n; first < count; first += n) {
        n = count - first < SHEAF__SQUARES ? count - first : SHEAF__SQUARES;
        sheaf__squares_of s = { of + first, n };
        for (int64_t i = 0; i < n; i++) {
            operand[i] = SHEAF__READS(s.each[i].x, (size_t)s.each[i].n * sizeof(float));
            s.each[i].sum = 0;
        }
        sheaf__run(device,
                   &(sheaf__call){ SHEAF__OP_SQUARES, &s, operand, (int)n, squares_part, n, 1 });
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
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ADAMW, &u, SHEAF__OPERANDS(operand), update_part,
                                       u.n, CHUNK });
}

static void update8_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    enum { BLOCK = SHEAF__ADAMW8_BLOCK };
    const sheaf__update8 *u = arg;
    const int64_t first = begin * BLOCK, last = end * BLOCK < u->n ? end * BLOCK : u->n;
    const sheaf__moments8 to = { u->moment1 + first, u->moment2 + first, u->absmax1 + begin,
                                 u->absmax2 + begin, u->map };
    k->adamw8(u->master + first, &to, u->grad + first, last - first, &u->how);
}

void sheaf__op_adamw8(sheaf__device *device, sheaf__update8 u)
{
    enum { BLOCK = SHEAF__ADAMW8_BLOCK };
    const size_t n = (size_t)u.n, bytes = n * sizeof(float);
    const int64_t blocks = (u.n + BLOCK - 1) / BLOCK;
    const size_t scales = (size_t)blocks * sizeof(float);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(u.master, bytes),   SHEAF__WRITES(u.moment1, n),
        SHEAF__WRITES(u.moment2, n),      SHEAF__WRITES(u.absmax1, scales),
        SHEAF__WRITES(u.absmax2, scales), SHEAF__READS(u.grad, bytes),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ADAMW8, &u, SHEAF__OPERANDS(operand), update8_part,
                                       blocks, CHUNK / BLOCK });
}
