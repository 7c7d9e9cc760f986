/* launch_columns.c - launches of sums of columns (kernels/columns.h). */
#include "ops/devices/gpu/kernels/columns.h"
#include "ops/devices/gpu/launch.h"
#include "ops/tensor/norm.h"
#include "ops/tensor/rows.h"

enum { THREADS = 256 };

static int64_t blocks_of(int64_t rows)
{
    return (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;
}

static void launch(sheaf__gpu *gpu, const columns_arguments *a, sheaf_dtype dtype)
{
    sheaf__gpu_launch(
        gpu, &(sheaf__launch){ .kernel = SHEAF__TYPED(columns, dtype),
                               .blocks = { (a->cols + THREADS - 1) / THREADS, blocks_of(a->rows) },
                               .threads = THREADS,
                               .arguments = a,
                               .bytes = sizeof *a });
}

/* dw += the sums of dy * n, db += those of dy; as many blocks of rows at a time as scratch has
 * space for; false: for none. Either may be NULL. */
static bool add_columns(sheaf__gpu *gpu, const columns_arguments *all, float *dw, float *db,
                        sheaf_dtype dtype)
{
    const int64_t space = SHEAF__GPU_SCRATCH / sizeof(float) / 2 / (size_t)(all->cols + 1),
                  most = (space < 1 << 15 ? space : 1 << 15) * COLUMN_ROWS;
    float *scratch = sheaf__gpu_scratch(gpu);
    if (most == 0)
        return false;
    for (int64_t first = 0, n; first < all->rows; first += n) {
        n = all->rows - first < most ? all->rows - first : most;
        const int64_t skipped = first * all->ld * (int64_t)sheaf_dtype_bytes(dtype),
                      blocks = blocks_of(n);
        columns_arguments a = *all;
        a.dy = (const char *)a.dy + skipped;
        a.x = a.x == NULL ? NULL : (const char *)a.x + skipped;
        a.mean = a.mean == NULL ? NULL : a.mean + first;
        a.rstd = a.rstd == NULL ? NULL : a.rstd + first;
        a.rows = n;
        a.sum = dw == NULL ? NULL : scratch;
        a.plain = db == NULL ? NULL : scratch + blocks * a.cols;
        launch(gpu, &a, dtype);
        const columns_add_arguments of_w = { dw, a.sum, a.cols, blocks },
                                    of_b = { db, a.plain, a.cols, blocks };
        if (dw != NULL)
            sheaf__gpu_each(gpu, "columns_add", a.cols, &of_w, sizeof of_w);
        if (db != NULL)
            sheaf__gpu_each(gpu, "columns_add", a.cols, &of_b, sizeof of_b);
    }
    return true;
}

bool sheaf__gpu_op_column_sums(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__columns *c = call->arguments;
    return add_columns(
        gpu, &(columns_arguments){ .dy = c->dy, .ld = c->ld, .rows = c->rows, .cols = c->cols },
        NULL, c->grad, c->dtype);
}

bool sheaf__gpu_op_norm_weight(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__norm_weight *w = call->arguments;
    return add_columns(gpu,
                       &(columns_arguments){ .dy = w->dy,
                                             .x = w->x,
                                             .mean = w->mean,
                                             .rstd = w->rstd,
                                             .ld = w->ld,
                                             .rows = w->rows,
                                             .cols = w->cols,
                                             .head = w->cols },
                       w->dw, w->db, w->dtype);
}

bool sheaf__gpu_op_heads_weight(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__heads_weight *w = call->arguments;
    const int64_t blocks = blocks_of(w->rows);
    if ((size_t)(blocks * w->ld) * sizeof(float) > SHEAF__GPU_SCRATCH || blocks >= 1 << 16)
        return false;
    float *scratch = sheaf__gpu_scratch(gpu);
    if (blocks > 0 && w->ld > 0)
        launch(gpu,
               &(columns_arguments){ .dy = w->dy,
                                     .x = w->x,
                                     .rstd = w->rstd,
                                     .ld = w->ld,
                                     .rows = w->rows,
                                     .cols = w->ld,
                                     .head = w->width,
                                     .sum = scratch },
               w->dtype);
    heads_add_arguments a = { .to = w->part,
                              .sum = scratch,
                              .ld = w->ld,
                              .width = w->width,
                              .blocks = blocks,
                              .slices = w->slices };
    for (int s = 0; s < w->slices; s++)
        a.begin[s] = w->begin[s], a.extent[s] = w->extent[s];
    sheaf__gpu_each(gpu, "heads_add", w->slices * w->width, &a, sizeof a);
    return true;
}
