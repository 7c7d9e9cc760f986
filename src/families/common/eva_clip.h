/* eva_clip.h - EVA2-CLIP's vision transformer and the adapter that CogVLM put behind it, as
 * CogAgent, CogVLM2 and GLM-4V have them too: building and recording.
 *
 *   ViT      x = [class; patches] + positions;
 *            x += LN1(dense(attention(qkv x)));  x += LN2(down(gelu(up x)));  without the class row
 *   between  x + positions of its own (CogAgent); conv x, of 2 x 2 patches (CogVLM2, GLM-4V)
 *   adapter  z = gelu(LN(linear x)); dense_4h_to_h(silu(gate z) * up z)
 *
 * Attention is full: every patch sees every patch. GELU is by erf. */
#pragma once

#include "families/common/eva_config.h"
#include "models/build.h"

/* Names of its tensors: prefixes end with a dot, as "transformer.vision.conv.". */
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

/* Those of the tensors that sheaf__eva_rows() adds (rows.h); V: their prefix, a literal. */
#define SHEAF__EVA_NAMES(V)                                                                        \
    {                                                                                              \
        .patch = V "patch_embedding.proj.", .class_token = V "patch_embedding.cls_embedding",      \
        .positions = V "patch_embedding.position_embedding.weight",                                \
        .layer = V "transformer.layers.%d.", .up = "mlp.fc1", .down = "mlp.fc2",                   \
        .conv = V "conv.", .adapter = V "linear_proj.", .begin = V "boi", .end = V "eoi",          \
    }

typedef struct sheaf__eva_layer {
    sheaf__linear q, k, v, dense, up, down;
    sheaf__layernorm norm1, norm2;
} sheaf__eva_layer;

/* Its weights in the model. */
struct sheaf__towers {
    sheaf__linear patch, conv;
    sheaf__vector class_token, positions, extra;
    sheaf__eva_layer *layer; /* [config.vit.layers] */
    struct {
        sheaf__linear linear, gate, up, down;
        sheaf__layernorm norm;
    } adapter;
    sheaf__vector begin, end;
    struct sheaf__beside *beside; /* the family's own second tower, or NULL */
};

/* sheaf__eva_build - m->towers, on the first stage. */
sheaf_status *sheaf__eva_build(sheaf__model *m, const sheaf__eva_names *names);
/* sheaf__eva_encode - [images * tower.gives, hidden]: what tower `number` of the family's list,
 * this one, gives for the images of a pass. */
sheaf__value *sheaf__eva_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                int number);
/* sheaf__eva_place - an image's rows and those before and behind them. */
void sheaf__eva_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                      const sheaf__pass *pass);
