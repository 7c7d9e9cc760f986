/* launch_weights.c - launches of operations on packed weights (ops/matmul/matmul_weight.h). Those
 * of `cuda` lie row by row, and are loaded by transfers. */
#include "ops/devices/gpu/kernels/weights.h"
#include "ops/devices/gpu/launch.h"
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/matmul_weight.h"

bool sheaf__gpu_op_weight_refresh(sheaf__gpu *gpu, const sheaf__call *call)
{
    const mm_load *l = call->arguments;
    if (l->w.quantised)
        return false;
    const sheaf__weight_rows rows = { mm_row_at(&l->w, 0), l->src, l->w.n * l->w.k };
    sheaf__gpu_each(gpu, SHEAF__TYPED(weight_refresh, l->w.dtype), mm_div_up(rows.n, 8), &rows,
                    sizeof rows);
    return true;
}

/* Rows of a weight are rows of a table. */
bool sheaf__gpu_op_packed_rows(sheaf__gpu *gpu, const sheaf__call *call)
{
    const mm_lookup *l = call->arguments;
    sheaf__lookup table = { .pieces = l->pieces,
                            .tokens = l->tokens,
                            .x = l->x,
                            .dtype = l->dtype,
                            .from = l->w[0].dtype,
                            .cols = l->w[0].k };
    for (int i = 0; i < l->pieces.count; i++) {
        if (l->w[i].quantised) /* tables are not: linear layers alone */
            return false;
        table.pieces.at[i] = l->w[i].ahead == NULL ? NULL : mm_row_at(&l->w[i], 0);
    }
    sheaf__gpu_each(gpu, SHEAF__TYPED(table_rows, l->dtype),
                    l->tokens.n *
                        sheaf__gpu_threads(table.cols, sheaf__gpu_narrow(l->dtype, table.from)),
                    &table, sizeof table);
    return true;
}
