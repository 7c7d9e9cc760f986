/* launch_norm.c - launches of norms (kernels/norm.h) and of sums of columns (kernels/columns.h). */
#include "ops/devices/gpu/kernels/columns.h"
#include "ops/devices/gpu/kernels/norm.h"
#include "ops/devices/gpu/launch.h"
#include "ops/tensor/rows.h"

enum { THREADS = 256, FLOATS = (8 << 10) + 64 }; /* of a block; in its shared memory, about */

/* The shape for rows of `cols` columns in `arrays` arrays: as many rows a block as fit, while there
 * are blocks for all multiprocessors. */
static lanes_shape shape_of(const sheaf__gpu *gpu, int64_t rows, int64_t cols, int arrays)
{
    const int64_t most = FLOATS / arrays / LANES * LANES, least = 2 * sheaf__gpu_processors(gpu),
                  chunk = cols > most ? most : (cols + LANES) / LANES * LANES,
                  pitch = chunk % 32 == 0 ? chunk + LANES : chunk; /* rows in other banks */
    int64_t each = 1;
    while (each < THREADS / LANES && 2 * each * pitch <= most && rows / (2 * each) >= least)
        each *= 2;
    return (lanes_shape){ (int32_t)each, (int32_t)chunk, (int32_t)pitch };
}

/* A launch of rows in such a shape. */
#define IN_LANES(gpu, name, rows_, slices_, arrays, a)                                             \
    SHEAF__LAUNCH(gpu, name, ((rows_) + (a)->shape.rows - 1) / (a)->shape.rows, slices_, THREADS,  \
                  (size_t)((a)->shape.rows * (a)->shape.pitch * (arrays)) * sizeof(float), a)

static void forward(sheaf__gpu *gpu, const char *kernel, norm_arguments *a)
{
    const sheaf__layer_norm *n = &a->of;
    a->shape = shape_of(gpu, n->rows, n->cols, 1);
    IN_LANES(gpu, kernel, n->rows, 1, 1, a);
}

static void backward(sheaf__gpu *gpu, norm_back_arguments *a)
{
    const sheaf__layer_norm *n = &a->of;
    a->shape = shape_of(gpu, n->rows, n->cols, 2);
    IN_LANES(gpu, SHEAF__TYPED(norm_back, n->dtype), n->rows, 1, 2, a);
}

/* ---- RMSNorm ---- */

static sheaf__layer_norm without_means(const sheaf__rmsnorm *n)
{
    return (sheaf__layer_norm){ .y = n->y,
                                .rstd = n->rstd,
                                .x = n->x,
                                .weight = n->weight,
                                .rows = n->rows,
                                .cols = n->width,
                                .width = n->width,
                                .eps = n->eps,
                                .plain = true,
                                .dtype = n->dtype };
}

bool sheaf__gpu_op_rmsnorm(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__rmsnorm *n = &((const sheaf__rms_call *)call->arguments)->of;
    forward(gpu, SHEAF__TYPED(rmsnorm, n->dtype),
            &(norm_arguments){ .of = without_means(n), .once = n->once });
    return true;
}

bool sheaf__gpu_op_rmsnorm_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__rms_call *a = call->arguments;
    if (a->dx != NULL)
        backward(gpu,
                 &(norm_back_arguments){ .of = without_means(&a->of), .dx = a->dx, .add = a->add });
    return a->again ? sheaf__gpu_op_rmsnorm(gpu, call) : true;
}

/* ---- LayerNorm ---- */

bool sheaf__gpu_op_layernorm(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__layer_call *a = call->arguments;
    forward(gpu, SHEAF__TYPED(layernorm, a->of.dtype),
            &(norm_arguments){ .of = a->of, .sums = !a->of.cut });
    return true;
}

bool sheaf__gpu_op_layernorm_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__layer_call *a = call->arguments;
    backward(gpu,
             &(norm_back_arguments){ .of = a->of, .dx = a->dx, .total = a->sum, .add = a->add });
    return true;
}

bool sheaf__gpu_op_layernorm_sums(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__layer_call *l = call->arguments;
    const sheaf__layer_norm *n = &l->of;
    const int arrays = l->which == SHEAF__SUMS_BACK ? 2 : 1;
    norm_sums_arguments a = { .of = *n, .sum = l->sum, .which = l->which };
    int64_t cols = 0;
    for (int s = 0; s < n->slices; s++) {
        a.begin[s] = n->begin[s], a.extent[s] = n->extent[s];
        cols = cols > n->extent[s] ? cols : n->extent[s];
    }
    a.shape = shape_of(gpu, n->rows, cols, arrays);
    if (n->slices > 0)
        IN_LANES(gpu,
                 arrays > 1 ? SHEAF__TYPED(norm_back_sums, n->dtype)
                            : SHEAF__TYPED(norm_sums, n->dtype),
                 n->rows, n->slices, arrays, &a);
    return true;
}

/* ---- sums of columns ---- */

static int64_t blocks_of(int64_t rows)
{
    return (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;
}

#define COLUMNS(gpu, dtype, a)                                                                     \
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(columns, dtype), ((a)->cols + THREADS - 1) / THREADS,          \
                  blocks_of((a)->rows), THREADS, 0, a)

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
        COLUMNS(gpu, dtype, &a);
        const columns_add_arguments of_w = { dw, a.sum, a.cols, blocks },
                                    of_b = { db, a.plain, a.cols, blocks };
        if (dw != NULL)
            SHEAF__EACH(gpu, "columns_add", a.cols, &of_w);
        if (db != NULL)
            SHEAF__EACH(gpu, "columns_add", a.cols, &of_b);
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
    const columns_arguments columns = { .dy = w->dy,
                                        .x = w->x,
                                        .rstd = w->rstd,
                                        .ld = w->ld,
                                        .rows = w->rows,
                                        .cols = w->ld,
                                        .head = w->width,
                                        .sum = scratch };
    if (blocks > 0)
        COLUMNS(gpu, w->dtype, &columns);
    heads_add_arguments a = { .to = w->part,
                              .sum = scratch,
                              .ld = w->ld,
                              .width = w->width,
                              .blocks = blocks,
                              .slices = w->slices };
    for (int s = 0; s < w->slices; s++)
        a.begin[s] = w->begin[s], a.extent[s] = w->extent[s];
    SHEAF__EACH(gpu, "heads_add", w->slices * w->width, &a);
    return true;
}
