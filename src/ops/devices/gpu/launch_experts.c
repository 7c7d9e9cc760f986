/* launch_experts.c - launches of a mixture of experts (kernels/experts.h). */
#include "ops/devices/gpu/kernels/experts.h"
#include "ops/devices/gpu/launch.h"

static bool choice(sheaf__gpu *gpu, const char *kernel, const sheaf__choice *of)
{
    choice_arguments a = { *of, CHOICE_ROWS, (int32_t)of->experts | 1 };
    size_t shared;
    if (of->experts > 1 << 14)
        return false;
    while ((shared = (size_t)a.rows * ((size_t)a.pitch + 1) * sizeof(float)) > SHEAF__GPU_SHARED)
        a.rows /= 2;
    sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = kernel,
                                             .blocks = { (of->rows + a.rows - 1) / a.rows },
                                             .threads = CHOICE_THREADS,
                                             .shared = shared,
                                             .arguments = &a,
                                             .bytes = sizeof a });
    return true;
}

bool sheaf__gpu_op_choice(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__choice *of = call->arguments;
    return choice(gpu, SHEAF__TYPED(choice, of->dtype), of);
}

bool sheaf__gpu_op_choice_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__choice *of = call->arguments;
    return choice(gpu, SHEAF__TYPED(choice_back, of->dtype), of);
}

bool sheaf__gpu_op_share_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__share *s = call->arguments;
    if (s->dweights != NULL)
        sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = SHEAF__TYPED(share_dot, s->dtype),
                                                 .blocks = { s->rows },
                                                 .threads = SHARE_THREADS,
                                                 .shared = 2 * SHARE_CHUNK * sizeof(double),
                                                 .arguments = s,
                                                 .bytes = sizeof *s });
    if (s->dy != NULL)
        sheaf__gpu_each(gpu, SHEAF__TYPED(share_back, s->dtype),
                        s->rows * sheaf__gpu_threads(s->cols, s->dtype), s, sizeof *s);
    return true;
}
