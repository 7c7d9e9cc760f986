/* matmul_weight.c - packed weights on a device: filled from a file's rows, or from masters. */
#include "ops/call.h"
#include "ops/matmul/matmul_private.h"

typedef struct load {
    sheaf__packed w;
    const void *src; /* rows [first, first + count), the host's or the device's */
    sheaf_dtype from;
    int64_t ld, first, count;
} load;

static void pack(sheaf__device *device, void *arguments)
{
    load *l = arguments;
    sheaf__pack(&l->w, l->src, l->from, l->ld, l->first, l->count);
}

void sheaf__weight_load(sheaf__device *device, sheaf__packed *w, const void *src, sheaf_dtype from,
                        int64_t ld, int64_t first, int64_t count)
{
    load l = { *w, src, from, ld, first, count };
    const sheaf__operand operand = SHEAF__WRITES(l.w.ahead, mm_bytes_ahead(w));
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_LOAD,
                                       .arguments = &l,
                                       .operand = &operand,
                                       .operands = 1,
                                       .whole = pack });
}

/* By panels, over threads. */
static void refresh_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const load *l = arg;
    sheaf__packed w = l->w;
    const int64_t row = begin * MM_PANEL, last = mm_min(end * MM_PANEL, w.n);
    sheaf__pack(&w, (const float *)l->src + row * w.k, SHEAF_F32, w.k, row, last - row);
}

void sheaf__weight_refresh(sheaf__device *device, sheaf__packed *w, const float *master)
{
    load l = { .w = *w, .src = master };
    const sheaf__operand operand[] = { SHEAF__WRITES(l.w.ahead, mm_bytes_ahead(w)),
                                       SHEAF__READS(l.src, (size_t)(w->n * w->k) * sizeof(float)) };
    sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_WEIGHT_REFRESH,
                                       .arguments = &l,
                                       .operand = operand,
                                       .operands = 2,
                                       .part = refresh_part,
                                       .rows = mm_div_up(w->n, MM_PANEL),
                                       .grain = 1 });
}
