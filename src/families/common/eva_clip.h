/* eva_clip.h - EVA2-CLIP's vision transformer and the adapter that CogVLM put behind it, as
 * CogAgent, CogVLM2 and GLM-4V have them too: building and recording.
 *
 *   ViT      x = [class; patches] + positions;
 *            x += LN1(dense(attention(qkv x)));  x += LN2(down(gelu(up x)));  without the class row
 *   between  x + positions of its own (CogAgent), or conv x, of 2 x 2 patches each (CogVLM2,
 * GLM-4V) adapter  z = gelu(LN(linear x)); dense_4h_to_h(silu(gate z) * up z)
 *
 * Attention is full: every patch sees every patch. GELU is by erf. */
#pragma once

#include "models/build.h"

enum { SHEAF__EVA_BLOCK = 2 }; /* patches along the sides of what the convolution joins */

/* Where its tensors are: prefixes end with a dot, as "transformer.vision.conv.". */
typedef struct sheaf__eva_names {
    const char *patch; /* prefix of the weight and bias of the convolution that cuts patches */
    const char *class_token, *positions; /* whole names */
    const char *layer;                   /* prefix of layer %d */
    const char *up, *down;               /* in a layer: of its MLP */
    const char *conv;                    /* prefix; NULL: there is none */
    const char *extra;                   /* whole name of the positions between; NULL: none */
    const char *adapter;                 /* prefix */
    const char *begin, *end;             /* whole names of the rows before and behind an image's */
} sheaf__eva_names;

typedef struct sheaf__eva_layer {
    sheaf__linear q, k, v, dense, up, down;
    sheaf__layernorm norm1, norm2;
} sheaf__eva_layer;

typedef struct sheaf__eva {
    sheaf__linear patch, conv;
    sheaf__vector class_token, positions, extra;
    sheaf__eva_layer *layer; /* [config.vit.layers], owned */
    struct {
        sheaf__linear linear, gate, up, down;
        sheaf__layernorm norm;
    } adapter;
    sheaf__vector begin, end;
} sheaf__eva;

/* sheaf__eva_build - after a failure, too, sheaf__eva_release(). */
sheaf_status *sheaf__eva_build(sheaf__model *m, sheaf__eva *eva, const sheaf__eva_names *names);
void sheaf__eva_release(sheaf__eva *eva);
/* sheaf__eva_record - [images * tower.gives, hidden]: what tower `number` of the family's list,
 * this one, gives for the images of a pass. */
sheaf__value *sheaf__eva_record(sheaf__model *m, sheaf__eva *eva, sheaf__tape *tape,
                                const sheaf__pass *pass, int number);
