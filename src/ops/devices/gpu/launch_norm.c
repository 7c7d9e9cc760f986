/* launch_norm.c - launches of norms (kernels/norm.h). */
#include "ops/devices/gpu/kernels/norm.h"
#include "ops/devices/gpu/launch.h"

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

static void launch(sheaf__gpu *gpu, const char *kernel, int64_t rows, int64_t slices,
                   const lanes_shape *shape, int arrays, const void *arguments, size_t bytes)
{
    sheaf__gpu_launch(gpu,
                      &(sheaf__launch){
                          .kernel = kernel,
                          .blocks = { (rows + shape->rows - 1) / shape->rows, slices },
                          .threads = THREADS,
                          .shared = (size_t)(shape->rows * shape->pitch * arrays) * sizeof(float),
                          .arguments = arguments,
                          .bytes = bytes,
                      });
}

static void forward(sheaf__gpu *gpu, const char *kernel, norm_arguments *a)
{
    const sheaf__layer_norm *n = &a->of;
    a->shape = shape_of(gpu, n->rows, n->cols, 1);
    launch(gpu, kernel, n->rows, 1, &a->shape, 1, a, sizeof *a);
}

static void backward(sheaf__gpu *gpu, norm_back_arguments *a)
{
    const sheaf__layer_norm *n = &a->of;
    a->shape = shape_of(gpu, n->rows, n->cols, 2);
    launch(gpu, SHEAF__TYPED(norm_back, n->dtype), n->rows, 1, &a->shape, 2, a, sizeof *a);
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
        launch(gpu,
               arrays > 1 ? SHEAF__TYPED(norm_back_sums, n->dtype)
                          : SHEAF__TYPED(norm_sums, n->dtype),
               n->rows, n->slices, &a.shape, arrays, &a, sizeof a);
    return true;
}
