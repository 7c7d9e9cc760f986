/* tower.h - a vision transformer with a resampler behind it (OmniLMM, MiniCPM-V): what its tensors
 * are called, and how it is built and recorded.
 *
 *   tower      x = [class;] patches + positions
 *              x += proj(attention(qkv LN1 x));  x += fc2(gelu(fc1 LN2 x));  or norms behind:
 *              x += LN1(proj(attention(qkv x)));  x += LN2(fc2(gelu(fc1 x)))
 *              LN x, without the class row
 *   resampler  see models/resampler.h */
#pragma once

#include "models/resampler.h"

typedef struct sheaf__tower_names {
    const char *tower, *resampler; /* what their names begin with */
    const char *patch[2], *class_token /* NULL: none */, *positions, *norm;
    bool table;        /* positions are a table [rows, width], not [1, rows, width] */
    const char *block; /* "blocks.%lld." */
    const char *norm1, *norm2, *q[2], *k[2], *v[2], *proj[2]; /* weight and bias; NULL: none */
    bool fused; /* q, k and v are one weight, and where k has a bias one bias */
    bool norms_after;
    bool tanh; /* GELU by it */
} sheaf__tower_names;

typedef struct sheaf__tower_block sheaf__tower_block;
struct sheaf__towers {
    sheaf__linear patch;
    sheaf__vector class_token, positions;
    sheaf__tower_block *block;
    sheaf__layernorm norm;
    sheaf__resampler resampler;
};

/* sheaf__tower_rows - its tensors, of config.vit, behind those of the schema. */
sheaf_status *sheaf__tower_rows(sheaf_schema *schema, const sheaf__tower_names *names);
/* sheaf__tower_build - m->towers; on the stage that begins with all its parts. */
sheaf_status *sheaf__tower_build(sheaf__model *m, const sheaf__tower_names *names);
void sheaf__tower_release(sheaf__model *m);
/* sheaf__tower_record - the rows that stand in the sequence.
 *   grid  of the patches' positions, from m->towers->positions; keys: those of the resampler's */
sheaf__value *sheaf__tower_record(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower, const sheaf__tower_names *names,
                                  const sheaf__position_grid *grid, sheaf__position_kind keys);
/* sheaf__tower_place - its rows in place of as many marks. */
void sheaf__tower_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                        const sheaf__pass *pass);
