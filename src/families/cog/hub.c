/* hub.c - the descriptors of CogVLM and CogAgent as their folders on the hub have them: the names,
 * keys and prompts of transformers' classes, PEFT's rules for adapters. All that is computed is
 * that of SAT's form. */
#include "families/cog/cog.h"

#include "base/base.h"
#include "families/common/eva_clip.h"

#define TOWER "model.cross_vision.vit.model."

static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return sheaf__cog_idle(TOWER, name, has, self);
}

static const sheaf__component_rule components[] = {
    { "model.cross_vision.", SHEAF_PLAN_TOWER },
    { "model.vision.linear_proj.", SHEAF_PLAN_ADAPTER },
    { "model.vision.boi", SHEAF_PLAN_ADAPTER },
    { "model.vision.eoi", SHEAF_PLAN_ADAPTER },
    { "model.vision.pos_embed", SHEAF_PLAN_ADAPTER },
    { "model.vision.", SHEAF_PLAN_VIT },
    { ".vision_expert_", SHEAF_PLAN_EXPERTS },
    { ".vision_mlp.", SHEAF_PLAN_EXPERTS },
    { "cross_attn", SHEAF_PLAN_CROSS },
    { "post_cross_attention", SHEAF_PLAN_CROSS },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

/* CogVLM2's tower ends with a convolution. */
#define TELLS "self_attn.vision_expert_query_key_value:weight !model.vision.conv.:"
#define ON_HUB                                                                                     \
    .position_key = "max_position_embeddings", .claims = sheaf__cog_hub_claims,                    \
    .read = sheaf__cog_hub_config, .text = sheaf__cog_text, .rows = sheaf__cog_rows,               \
    .spelling = sheaf__cog_names, .components = components, .towers = sheaf__cog_towers,           \
    .template_key = "template_version", .lora_targets = "vision_expert_query_key_value",           \
    .head = "lm_head.weight", .table = "model.embed_tokens.weight", .idle = idle,                  \
    .buffer = sheaf__cog_buffer, .frequencies = "model.layers.#.self_attn.rotary_emb.inv_freq",    \
    .angles_rounded = true, .build = sheaf__cog_build, .encode = sheaf__cog_encode,                \
    .place = sheaf__eva_place
#define PLACE                                                                                      \
    .before = 1, .after = 1, .most = 1, .experts = true, .one_position = true, .pads = true

static const sheaf__other_form vlm_of_sat = { "cogvlm", sheaf__cog_sat_form },
                               agent_of_sat = { "cogagent", sheaf__cog_sat_form };

const sheaf__family sheaf__family_cogvlm_hf = {
    .id = SHEAF_COGVLM_HF,
    .name = "cogvlm_hf",
    .title = "CogVLM (Hugging Face)",
    .architecture = "CogVLMForCausalLM",
    .other = &vlm_of_sat,
    .questions = true,
    .image = { PLACE },
    .signature = TELLS,
    ON_HUB,
};

const sheaf__family sheaf__family_cogagent_hf = {
    .id = SHEAF_COGAGENT_HF,
    .name = "cogagent_hf",
    .title = "CogAgent (Hugging Face)",
    .architecture = "CogAgentForCausalLM",
    .other = &agent_of_sat,
    .image = { PLACE, .needed = true },
    /* of a model that lost its tower, cross-attention tells */
    .signature = TELLS " model.cross_vision.:|cross_attn:weight",
    .sizes = sheaf__cog_sizes,
    .tower_names = "model.cross_vision.*, model.vision.pos_embed",
    ON_HUB,
};
