/* cogvlm2.c - CogVLM2: its descriptor. A text model with visual experts, as CogVLM, but with
 * grouped key/value heads and the names of Llama's class; before it EVA2-CLIP's tower, of whose
 * patches a convolution joins 2 x 2. */
#include "families/cogvlm2/cogvlm2.h"

#include "base/base.h"
#include "base/elementary.h"
#include "families/common/eva_clip.h"

/* ---- a small model that `init` makes by name ---- */

static const sheaf__family_spec specs[] = {
    { "cogvlm2-tiny",
      "CogVLM2, byte vocabulary, hidden 128, 4 layers, images of 56 x 56: 1.8 million parameters" },
    { NULL },
};

/* ---- the descriptor ---- */

/* A row in the sequence for each 2 x 2 patches. */
static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 1, c->patches / (SHEAF__EVA_BLOCK * SHEAF__EVA_BLOCK));
    return 1;
}

/* inv_freq of a layer. */
static float buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
{
    return (float)(1.0 / sheaf__pow_d(c->rope.theta, 2.0 * (double)index / (double)c->head_dim));
}

static const sheaf__component_rule components[] = {
    { SHEAF__COGVLM2_VISION "transformer.", SHEAF_PLAN_VIT },
    { SHEAF__COGVLM2_VISION "patch_embedding.", SHEAF_PLAN_VIT },
    { SHEAF__COGVLM2_VISION, SHEAF_PLAN_ADAPTER },
    { "vision_expert_", SHEAF_PLAN_EXPERTS },
    { "vision_mlp.", SHEAF_PLAN_EXPERTS },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

const sheaf__family sheaf__family_cogvlm2 = {
    .id = SHEAF_COGVLM2,
    .name = "cogvlm2",
    .title = "CogVLM2",
    .specs = specs,
    .position_key = "max_position_embeddings",
    .claims = sheaf__cogvlm2_claims,
    .read = sheaf__cogvlm2_config,
    .text = sheaf__cogvlm2_text,
    .rows = sheaf__cogvlm2_rows,
    .signature = "layers.:self_attn.vision_expert_query_key_value.bias "
                 "" SHEAF__COGVLM2_VISION "conv.:",
    .buffer = buffer,
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .frequencies = "model.layers.#.self_attn.rotary_emb.inv_freq",
    .components = components,
    .towers = towers,
    .image = { .before = 1,
               .after = 1,
               .most = 1,
               .experts = true,
               .one_position = true,
               .pads = true },
    .template_key = "template_version",
    .questions = true,
    .lora_targets = "vision_expert_query_key_value",
    .build = sheaf__cogvlm2_build,
    .encode = sheaf__eva_encode,
    .place = sheaf__eva_place,
};
