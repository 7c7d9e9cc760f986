/* launch_rows.c - launches of ops/tensor/rows.c. */
#include "ops/tensor/rows.h"

#include "ops/devices/gpu/kernels/rows.h"
#include "ops/devices/gpu/launch.h"

/* Bytes of the largest word that all places of boxes are multiples of. */
static int word_of(const boxes_arguments *b)
{
    uint64_t all = (uintptr_t)b->dst | (uintptr_t)b->src | (uint64_t)b->words;
    for (int i = 0; i < 3; i++)
        all |= (uint64_t)(b->ld_dst[i] | b->ld_src[i]);
    return (all & 15) == 0 ? 16 : (all & 3) == 0 ? 4 : 2;
}

bool sheaf__gpu_op_copy_boxes(sheaf__gpu *gpu, const sheaf__call *call)
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
    sheaf__gpu_each(gpu,
                    word == 16  ? "copy_boxes_16"
                    : word == 4 ? "copy_boxes_4"
                                : "copy_boxes_2",
                    rows * a.words, &a, sizeof a);
    return true;
}
