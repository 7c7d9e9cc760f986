/* buffers.c - what SAT computes when it makes a model of CogVLM or CogAgent. */
#include "base/elementary.h"
#include "base/text.h"
#include "families/cog/cog.h"

enum { PRETRAINED_GRID = 16 }; /* patches of a side of the images that EVA02-CLIP learned from */

static double frequency(int64_t i, int64_t width)
{
    return 1.0 / sheaf__pow_d(10000, 2.0 * (double)i / (double)width);
}

/* CogVLM's buffers (as its mixin.py and eva_clip_L_hf.py make them): the frequencies of the text
 * model; the cosines and sines of the high-resolution tower, [patches, head], where the first half
 * of a head turns with the row and the second with the column, two neighbours by one angle. */
float sheaf__cog_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
{
    if (t->ndim == 1)
        return (float)frequency(index, c->head_dim);
    const int64_t side = c->encoder.image / c->encoder.patch, width = t->shape[1];
    const int64_t patch = index / width, in_head = index % width, half = width / 2;
    const int64_t at = in_head < half ? patch / side : patch % side;
    const float place = (float)at / (float)side * (float)PRETRAINED_GRID;
    const float angle = place * (float)frequency(in_head % half / 2, half);
    return (float)(sheaf__ends_with(t->name, "cos") ? sheaf__cos_d((double)angle)
                                                    : sheaf__sin_d((double)angle));
}
