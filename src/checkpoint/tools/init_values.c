/* init_values.c - what each number of a new model is; see init.h. */
#include <string.h>

#include "base/elementary.h"
#include "base/random.h"
#include "base/text.h"
#include "checkpoint/tools/init.h"

enum { PRETRAINED_GRID = 16 }; /* patches of a side of the images that EVA02-CLIP learned from */

static double frequency(int64_t i, int64_t width)
{
    return 1.0 / sheaf__pow_d(10000, 2.0 * (double)i / (double)width);
}

/* CogVLM's buffers (as its mixin.py and eva_clip_L_hf.py make them): the frequencies of the text
 * model; the cosines and sines of the high-resolution tower, [patches, head], where the first half
 * of a head turns with the row and the second with the column, two neighbours by one angle. */
static float buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
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

/* Vectors that are added to what a layer or a tower gives: nothing at first. */
static bool begins_as_zero(const sheaf_tensor *t)
{
    static const char *const names[] = { "mixins.eva.pos_embed", "mixins.encoder.pos_embed" };
    bool found =
        t->bias || sheaf__ends_with(t->name, ".q_bias") || sheaf__ends_with(t->name, ".v_bias");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || strcmp(t->name, names[i]) == 0;
    return found;
}

static bool is_norm(const sheaf_tensor *t)
{
    return t->role == SHEAF_NORM || t->role == SHEAF_NORM_IN || t->role == SHEAF_NORM_POST ||
           t->role == SHEAF_NORM_FINAL;
}

void sheaf__init_values(float *out, const sheaf_tensor *t, const sheaf_config *c, uint64_t seed,
                        int64_t first, int64_t n)
{
    const float range = (float)c->initializer_range;
    const uint64_t key = sheaf__name_key(t->name);
    const bool constant = begins_as_zero(t) || is_norm(t);
    const float value = begins_as_zero(t) ? 0 : 1;
    for (int64_t i = 0; i < n; i++) {
        if (t->buffer)
            out[i] = buffer(t, c, first + i);
        else
            out[i] =
                constant ? value : sheaf__random_normal(seed, key, (uint64_t)(first + i)) * range;
    }
}
