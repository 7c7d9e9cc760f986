/* launch_rows.c - launches of ops/tensor/rows.c, rope.c, linear.c and table.c. */
#include "ops/tensor/rows.h"
#include "ops/devices/cuda/kernels/rows.h"
#include "ops/devices/cuda/launch_elements.h"
#include "ops/tensor/linear.h"
#include "ops/tensor/rope.h"
#include "ops/tensor/table.h"

/* ---- moves ---- */

bool sheaf__cuda_op_move_rows(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__move *m = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(move_rows, m->dtype),
                     m->rows * sheaf__cuda_threads(m->cols, m->dtype), m, sizeof *m);
    return true;
}

/* Bytes of the largest word that all places of boxes are multiples of. */
static int word_of(const boxes_arguments *b)
{
    uint64_t all = (uintptr_t)b->dst | (uintptr_t)b->src | (uint64_t)b->words;
    for (int i = 0; i < 3; i++)
        all |= (uint64_t)(b->ld_dst[i] | b->ld_src[i]);
    return (all & 15) == 0 ? 16 : (all & 3) == 0 ? 4 : 2;
}

bool sheaf__cuda_op_copy_boxes(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__boxes *b = call->arguments;
    const int64_t size = (int64_t)sheaf_dtype_bytes(b->dtype);
    boxes_arguments a = { .dst = b->dst, .src = b->src, .words = b->cols * size };
    int64_t rows = 1;
    for (int i = 0; i < 3; i++) { /* in bytes; of what there is one of, no distance counts */
        a.count[i] = b->count[i];
        a.ld_dst[i] = b->count[i] == 1 ? 0 : b->ld_dst[i] * size;
        a.ld_src[i] = b->count[i] == 1 ? 0 : b->ld_src[i] * size;
        rows *= b->count[i];
    }
    const int word = word_of(&a);
    a.words /= word;
    for (int i = 0; i < 3; i++) {
        a.ld_dst[i] /= word;
        a.ld_src[i] /= word;
    }
    sheaf__cuda_each(gpu,
                     word == 16  ? "copy_boxes_16"
                     : word == 4 ? "copy_boxes_4"
                                 : "copy_boxes_2",
                     rows * a.words, &a, sizeof a);
    return true;
}

bool sheaf__cuda_op_transpose(sheaf__cuda *gpu, const sheaf__call *call)
{
    enum { SIDE = 32 };
    const sheaf__transposed *t = call->arguments;
    const int64_t down = (t->rows + SIDE - 1) / SIDE, across = (t->cols + SIDE - 1) / SIDE;
    sheaf__cuda_launch(gpu, &(sheaf__launch){ .kernel = "transpose",
                                              .blocks = { down * across },
                                              .threads = 256,
                                              .shared = SIDE * (SIDE + 1) * sizeof(float),
                                              .arguments = t,
                                              .bytes = sizeof *t });
    return true;
}

/* ---- rotary embedding ---- */

static bool rope(sheaf__cuda *gpu, const char *kernel, const sheaf__rope *r, int64_t width)
{
    sheaf__cuda_each(gpu, kernel, r->rows * r->heads * sheaf__cuda_threads(width, r->dtype), r,
                     sizeof *r);
    return true;
}

bool sheaf__cuda_op_rope(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__rope *r = call->arguments;
    return rope(gpu, SHEAF__TYPED(rope, r->dtype), r, r->rot / 2);
}

bool sheaf__cuda_op_rope_pairs(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__rope *r = call->arguments;
    return rope(gpu, SHEAF__TYPED(rope_pairs, r->dtype), r, r->rot);
}

/* ---- beside products ---- */

bool sheaf__cuda_op_finish(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__finishing *f = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(finish, f->dtype),
                     f->rows * sheaf__cuda_threads(f->cols, f->dtype), f, sizeof *f);
    return true;
}

/* A block a row, a thread eight channels at a time. */
static bool drawn(sheaf__cuda *gpu, const char *kernel, const void *arguments, size_t bytes,
                  int64_t rows, int64_t cols)
{
    const int64_t warps = (cols + 255) / 256;
    sheaf__cuda_launch(gpu, &(sheaf__launch){ .kernel = kernel,
                                              .blocks = { cols > 0 ? rows : 0 },
                                              .threads = warps > 8 ? 256 : 32 * (int)warps,
                                              .shared = sizeof(uint64_t),
                                              .arguments = arguments,
                                              .bytes = bytes });
    return true;
}

bool sheaf__cuda_op_dropout(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__dropping *d = call->arguments;
    return drawn(gpu, SHEAF__TYPED(dropout, d->dtype), d, sizeof *d, d->rows, d->cols);
}

bool sheaf__cuda_op_noise(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__noisy *n = call->arguments;
    return drawn(gpu, SHEAF__TYPED(noise, n->dtype), n, sizeof *n, n->rows, n->cols);
}

/* ---- vocabulary tables ---- */

bool sheaf__cuda_op_table_rows(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__lookup *l = call->arguments;
    const sheaf_dtype narrow = sheaf__cuda_narrow(l->dtype, l->from);
    sheaf__cuda_each(gpu, SHEAF__TYPED(table_rows, l->dtype),
                     l->tokens.n * sheaf__cuda_threads(l->cols, narrow), l, sizeof *l);
    return true;
}

bool sheaf__cuda_op_factor_columns(sheaf__cuda *gpu, const sheaf__call *call)
{
    const sheaf__lookup *l = call->arguments;
    sheaf__cuda_each(gpu, SHEAF__TYPED(factor_columns, l->dtype), l->tokens.n * l->cols, l,
                     sizeof *l);
    return true;
}
