/* resampler.h - one cross-attention from learned queries to the patches of each picture, or of all
 * frames of a group, so that each gives as many rows as there are queries (OmniLMM, MiniCPM-V), LN
 * with weight and bias:
 *
 *   z = LN_kv(kv x);  q = q(LN_q(query) + P);  k = k(z + P');  v = v z
 *   y = LN_post(out(attention(q, k, v))) proj
 *
 * kv exists where the widths of tower and text differ, else z = LN_kv(x). P are positions of the
 * queries, P' those of the patches and of their frames; `proj` is stored [in, out]. */
#pragma once

#include "models/model.h"
#include "tape/pictures.h"

typedef struct sheaf__resampler {
    sheaf__vector query, positions;       /* positions.name NULL: the files have none */
    sheaf__linear kv, q, k, v, out, proj; /* kv.name NULL: none */
    sheaf__layernorm norm_q, norm_kv, norm_post;
    /* The queries as a picture with a patch for each, to take their positions from. */
    sheaf__picture grid;
    sheaf__images_in grid_in;
} sheaf__resampler;

/* sheaf__pass_pictures - the pictures of a pass as a tower sees them. */
sheaf__pictures sheaf__pass_pictures(const sheaf__model *m, const sheaf__pass *pass, int tower);

/* sheaf__resampler_build - of config.resampler, from the tensors whose names begin with `prefix`;
 * with a table of positions where the schema has one. */
sheaf_status *sheaf__resampler_build(sheaf__model *m, sheaf__resampler *r, const char *prefix);
/* sheaf__resampler_record - x [pictures->patches, the tower's width] to [groups * queries, hidden].
 * `keys`: kind of the patches' positions; bicubic kinds take them from r->positions. */
sheaf__value *sheaf__resampler_record(sheaf__model *m, sheaf__resampler *r, sheaf__tape *tape,
                                      const sheaf__pass *pass, sheaf__value *x,
                                      const sheaf__pictures *pictures, sheaf__position_kind keys);
