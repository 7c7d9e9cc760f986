/* launch_shrink.c - launches of ops/tensor/shrink.c. */
#include "ops/shrink/shrink.h"
#include "ops/devices/cuda/launch_elements.h"
#include "ops/tensor/shrink.h"

bool sheaf__cuda_op_shrink(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__shrunk *s = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(shrink, s->dtype), s->rows * s->blocks * SHEAF__SHRINK_BLOCK,
                     s, sizeof *s);
    return true;
}

bool sheaf__cuda_op_expand(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__shrunk *s = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(expand, s->dtype), s->rows * s->blocks * SHEAF__SHRINK_BLOCK,
                     s, sizeof *s);
    return true;
}
