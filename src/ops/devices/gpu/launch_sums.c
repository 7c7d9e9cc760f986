/* launch_sums.c - launches that give the host numbers (kernels/sums.h). */
#include "ops/devices/gpu/kernels/sums.h"
#include "ops/devices/gpu/launch.h"
#include "ops/tensor/trained.h"

bool sheaf__gpu_op_squares(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { ARRAYS = 512 };
    const sheaf__squares_of *of = call->arguments;
    squares_item item[ARRAYS];
    double sum[ARRAYS] = { 0 };
    for (int64_t first = 0, n; first < of->count; first += n) {
        n = of->count - first < ARRAYS ? of->count - first : ARRAYS;
        for (int64_t i = 0; i < n; i++)
            item[i] = (squares_item){ of->each[first + i].x, of->each[first + i].n };
        const squares_arguments a = { sheaf__gpu_stage(gpu, item, (size_t)n * sizeof *item),
                                      sheaf__gpu_scratch(gpu) };
        if (a.item == NULL)
            return true; /* the device's failure */
        sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = "squares",
                                                 .blocks = { n },
                                                 .threads = SQUARES_THREADS,
                                                 .shared = 2 * SQUARES_CHUNK * sizeof(double),
                                                 .arguments = &a,
                                                 .bytes = sizeof a });
        sheaf__gpu_read(gpu, sum, a.sum, (size_t)n * sizeof *sum);
        for (int64_t i = 0; i < n; i++)
            of->each[first + i].sum = sum[i];
    }
    return true;
}

bool sheaf__gpu_op_is_finite(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { THREADS = 256, PER_BLOCK = THREADS * 8 * 4, BLOCKS = 1024 };
    const sheaf__look *of = call->arguments;
    const int64_t all = (of->n + PER_BLOCK - 1) / PER_BLOCK, blocks = all < BLOCKS ? all : BLOCKS;
    int32_t found[BLOCKS] = { 0 };
    const finite_arguments a = { *of, sheaf__gpu_scratch(gpu) };
    sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = SHEAF__TYPED(finite, of->from),
                                             .blocks = { blocks },
                                             .threads = THREADS,
                                             .shared = THREADS / 32 * sizeof(int32_t),
                                             .arguments = &a,
                                             .bytes = sizeof a });
    sheaf__gpu_read(gpu, found, a.found, (size_t)blocks * sizeof *found);
    for (int64_t b = 0; b < blocks; b++)
        if (found[b])
            sheaf__look_found(of);
    return true;
}
