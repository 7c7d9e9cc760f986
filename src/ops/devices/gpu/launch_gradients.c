/* launch_gradients.c - launches of gradients of tables (kernels/gradients.h). */
#include "ops/devices/gpu/kernels/gradients.h"
#include "ops/devices/gpu/launch.h"
#include "ops/tensor/images.h"

/* Threads for a row of n columns. */
static int threads_for(int64_t n)
{
    return n < 256 ? (int)((n + 31) / 32 * 32) : 256;
}

static bool by_token(sheaf__gpu *gpu, const sheaf__lookup *l, bool factor)
{
    const int64_t n = l->tokens.n;
    if (n == 0 || l->cols == 0)
        return true;
    if ((size_t)(2 * n) * sizeof(int32_t) > SHEAF__GPU_SCRATCH)
        return false;
    int32_t *order = sheaf__gpu_scratch(gpu);
    const tokens_sort_arguments sort = { l->tokens, order, order + n };
    const tokens_add_arguments add = { *l, order, order + n, factor };
    const int threads = threads_for(l->cols);
    sheaf__gpu_each(gpu, "tokens_sort", 32 * n, &sort, sizeof sort);
    sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = SHEAF__TYPED(tokens_add, l->dtype),
                                             .blocks = { n, (l->cols + threads - 1) / threads },
                                             .threads = threads,
                                             .arguments = &add,
                                             .bytes = sizeof add });
    return true;
}

bool sheaf__gpu_op_table_gradient(sheaf__gpu *gpu, const sheaf__call *call)
{
    return by_token(gpu, call->arguments, false);
}

bool sheaf__gpu_op_factor_gradient(sheaf__gpu *gpu, const sheaf__call *call)
{
    return by_token(gpu, call->arguments, true);
}

bool sheaf__gpu_op_add_positions_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__placed *a = call->arguments;
    const int64_t rows = a->of.rows * a->of.cols + a->of.first;
    const int threads = threads_for(a->width);
    if (rows > 0 && a->width > 0)
        sheaf__gpu_launch(gpu,
                          &(sheaf__launch){ .kernel = SHEAF__TYPED(add_positions_back, a->dtype),
                                            .blocks = { rows, (a->width + threads - 1) / threads },
                                            .threads = threads,
                                            .arguments = a,
                                            .bytes = sizeof *a });
    return true;
}
