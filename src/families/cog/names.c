/* names.c - the tensors of CogVLM and CogAgent under SAT's names and under those of their classes
 * on the hub (CogVLMForCausalLM, CogAgentForCausalLM); shapes and order of rows are the same.
 *
 * SAT has the rotary embedding's frequencies once, the hub with each layer; of the tables of the
 * high-resolution tower it is the other way round. SAT's word table of the ViT, of one row, is the
 * hub's class embedding. */
#include "families/cog/cog.h"

#define VIT "mixins.eva.vit_model."
#define HUB_VIT "model.vision.transformer.layers.#."
#define LAYER "transformer.layers.#."
#define HUB_LAYER "model.layers.#."

const sheaf__name_rule sheaf__cog_names[] = {
    { "mixins.lm.lm_head.", "lm_head." },
    { VIT "transformer.word_embeddings.weight", "model.vision.patch_embedding.cls_embedding" },
    { VIT "transformer.position_embeddings.", "model.vision.patch_embedding.position_embedding." },
    { VIT "mixins.patch_embedding.", "model.vision.patch_embedding." },
    { VIT "transformer.layers.#.mlp.dense_h_to_4h.", HUB_VIT "mlp.fc1." },
    { VIT "transformer.layers.#.mlp.dense_4h_to_h.", HUB_VIT "mlp.fc2." },
    { VIT "transformer.layers.#.", HUB_VIT },
    { "mixins.eva.", "model.vision." }, /* boi, eoi, pos_embed, linear_proj */
    { "mixins.mlp.gate_proj.#.", HUB_LAYER "mlp.language_mlp.gate_proj." },
    { "mixins.mlp.vision_gate_proj.#.", HUB_LAYER "mlp.vision_mlp.gate_proj." },
    { "mixins.mlp.vision_dense_h_to_4h_list.#.", HUB_LAYER "mlp.vision_mlp.up_proj." },
    { "mixins.mlp.vision_dense_4h_to_h_list.#.", HUB_LAYER "mlp.vision_mlp.down_proj." },
    { "mixins.rotary.rotary_emb.inv_freq", HUB_LAYER "self_attn.rotary_emb.inv_freq" },
    { "mixins.rotary.vision_query_key_value_list.#.",
      HUB_LAYER "self_attn.vision_expert_query_key_value." },
    { "mixins.rotary.vision_dense_list.#.", HUB_LAYER "self_attn.vision_expert_dense." },
    { "mixins.encoder.vit.model.rope.", "model.cross_vision.vit.model.rope." },
    { "mixins.encoder.vit.model.blocks.#.attn.rope.", "model.cross_vision.vit.model.rope." },
    { "mixins.encoder.", "model.cross_vision." },
    { "transformer.word_embeddings.", "model.embed_tokens." },
    { LAYER "attention.query_key_value.", HUB_LAYER "self_attn.language_expert_query_key_value." },
    { LAYER "attention.dense.", HUB_LAYER "self_attn.language_expert_dense." },
    { LAYER "cross_attention.", HUB_LAYER "cross_attn." },
    { LAYER "mlp.dense_h_to_4h.", HUB_LAYER "mlp.language_mlp.up_proj." },
    { LAYER "mlp.dense_4h_to_h.", HUB_LAYER "mlp.language_mlp.down_proj." },
    { LAYER, HUB_LAYER }, /* norms */
    { "transformer.final_layernorm.", "model.norm." },
    { NULL },
};
