/* launch_logits.c - launches of what ops/tensor/loss.c and images.c do that sums nothing. */
#include "ops/devices/cuda/launch_elements.h"
#include "ops/tensor/images.h"
#include "ops/tensor/loss.h"

/* ---- logits ---- */

bool sheaf__cuda_op_softcap(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__capped *c = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(softcap, c->dtype),
                     sheaf__cuda_threads(c->rows * c->cols, SHEAF_F32), c, sizeof *c);
    return true;
}

bool sheaf__cuda_op_softcap_back(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__capped *c = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(softcap_back, c->dtype),
                     sheaf__cuda_threads(c->rows * c->cols, c->dtype), c, sizeof *c);
    return true;
}

bool sheaf__cuda_op_row_labels(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__of_rows *o = call->arguments;
    sheaf__cuda_each(gpu, "row_labels", o->l.rows, o, sizeof *o);
    return true;
}

bool sheaf__cuda_op_row_first(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__of_rows *o = call->arguments;
    sheaf__cuda_launch(gpu, &(sheaf__launch){ .kernel = "row_first",
                                              .blocks = { o->l.rows },
                                              .threads = 256,
                                              .shared = 8 * sizeof(int32_t),
                                              .arguments = o,
                                              .bytes = sizeof *o });
    return true;
}

/* ---- rows of pictures ---- */

bool sheaf__cuda_op_add_rows(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__repeats *r = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(add_rows, r->dtype),
                     r->copies * sheaf__cuda_threads(r->n, r->dtype), r, sizeof *r);
    return true;
}

bool sheaf__cuda_op_add_positions(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__placed *p = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(add_positions, p->dtype),
                     p->rows * sheaf__cuda_threads(p->width, p->dtype), p, sizeof *p);
    return true;
}
