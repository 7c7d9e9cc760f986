/* launch_loss.c - launches of what cross-entropy is made of (kernels/loss.h). */
#include "ops/devices/gpu/kernels/loss.h"
#include "ops/devices/gpu/launch.h"

bool sheaf__gpu_op_row_sums(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__of_rows *o = call->arguments;
    const sheaf__row_sums *to = &o->sums;
    row_sums_arguments a = { .l = o->l,
                             .max = o->max,
                             .exponentials = to->exponentials,
                             .logits = to->logits,
                             .ld = to->ld };
    for (int s = 0; s < to->slices; s++)
        a.begin[s] = to->begin[s], a.extent[s] = to->extent[s];
    if (to->slices > 0)
        sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = "row_sums",
                                                 .blocks = { o->l.rows, to->slices },
                                                 .threads = ROW_SUMS_THREADS,
                                                 .shared = (to->logits != NULL ? 4 : 2) *
                                                           ROW_SUMS_CHUNK * sizeof(float),
                                                 .arguments = &a,
                                                 .bytes = sizeof a });
    return true;
}

/* The host adds up, in double, what the rows lose. */
bool sheaf__gpu_op_losses(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { ROWS = 1024 };
    const sheaf__losses *of = call->arguments;
    for (int64_t first = 0, n; first < of->rows; first += n) {
        float read[2 * ROWS] = { 0 }, *scratch = sheaf__gpu_scratch(gpu);
        n = of->rows - first < ROWS ? of->rows - first : ROWS;
        losses_arguments a = { *of, scratch };
        a.of.max += first, a.of.sum += first, a.of.target += first, a.of.rows = n;
        a.of.logits = of->logits == NULL ? NULL : of->logits + first;
        a.of.first = of->first == NULL ? NULL : of->first + first;
        sheaf__gpu_each(gpu, "losses", n, &a, sizeof a);
        sheaf__gpu_read(gpu, read, scratch, (size_t)(2 * n) * sizeof *read);
        for (int64_t i = 0; i < n; i++)
            if (of->label[first + i] >= 0)
                sheaf__losses_add(of, first + i, read[i], read[n + i]);
    }
    return true;
}
