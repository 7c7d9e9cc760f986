/* minicpmv.c - MiniCPM-V: its descriptor; a decoder of Llama's kin, and before it the tower (timm's
 * vision_transformer.py in 2.0, modeling_navit_siglip.py later) and the resampler (upstream's
 * resampler.py), whose rows stand in the sequence in place of as many <unk>. Positions are
 * antialiased bicubic where the grid is another (2.0), by buckets of the place in the picture
 * later; those of the resampler's keys are of their row and column, and queries have some in 2.0
 * alone. */
#include "families/minicpmv/minicpmv.h"

#include "base/base.h"
#include "families/llama/tower.h"
#include "families/llama/llama.h"

/* What absent keys mean; biases of 2.6 are the reader's. */
static const sheaf__llama_form form = {
    .max_position = 4096,
    .kv_heads = true,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
    .ignored = sheaf__minicpmv_keys,
    .code = "modeling_minicpmv.MiniCPMV",
    .prefix = SHEAF__MINICPMV_LLM,
};

static const sheaf__tower_names timm = {
    .tower = SHEAF__MINICPMV_TOWER,
    .resampler = SHEAF__MINICPMV_RESAMPLER,
    .patch = { "patch_embed.proj.weight", "patch_embed.proj.bias" },
    .positions = "pos_embed",
    .norm = "norm",
    .block = "blocks.%lld.",
    .norm1 = "norm1",
    .norm2 = "norm2",
    .q = { "attn.qkv.weight", "attn.qkv.bias" },
    .k = { "attn.qkv.weight", "attn.qkv.bias" },
    .v = { "attn.qkv.weight", "attn.qkv.bias" },
    .proj = { "attn.proj.weight", "attn.proj.bias" },
    .fused = true,
    .grid = SHEAF__GRID_CUBIC_SMOOTH,
    .keys = SHEAF__GRID_SINCOS,
    .size_key = "vision_config.img_size",
    .queries_key = "query_num",
    .drops = true,
    .queries = true,
};

static const sheaf__tower_names siglip = {
    .tower = SHEAF__MINICPMV_TOWER,
    .resampler = SHEAF__MINICPMV_RESAMPLER,
    .patch = { "embeddings.patch_embedding.weight", "embeddings.patch_embedding.bias" },
    .positions = "embeddings.position_embedding.weight",
    .table = true,
    .norm = "post_layernorm",
    .block = "encoder.layers.%lld.",
    .norm1 = "layer_norm1",
    .norm2 = "layer_norm2",
    .q = { "self_attn.q_proj.weight", "self_attn.q_proj.bias" },
    .k = { "self_attn.k_proj.weight", "self_attn.k_proj.bias" },
    .v = { "self_attn.v_proj.weight", "self_attn.v_proj.bias" },
    .proj = { "self_attn.out_proj.weight", "self_attn.out_proj.bias" },
    .tanh = true,
    .grid = SHEAF__GRID_BUCKETS,
    .keys = SHEAF__GRID_SINCOS,
    .size_key = "vision_config.image_size",
    .queries_key = "query_num",
    .drops = true,
};

static const sheaf__tower_names *tower(const sheaf_config *c)
{
    return c->minicpmv == SHEAF_MINICPMV_2_0 ? &timm : &siglip;
}

/* The tower's last block, where it is dropped; and the position ids that older versions of
 * transformers stored. */
static bool spare(const char *name, const sheaf_config *c)
{
    if (strcmp(name, SHEAF__MINICPMV_TOWER "embeddings.position_ids") == 0)
        return c->minicpmv != SHEAF_MINICPMV_2_0;
    return c->vit_dropped && sheaf__tower_spare(name, c);
}

/* The largest picture that slicing makes of an ordinary one. */
static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 0, c->resampler.queries);
    out[0].ragged = true;
    out[0].padded = c->padding_seen;
    return 1;
}

static const char *variant_of(const sheaf_config *c)
{
    return sheaf__minicpmv_title(c->minicpmv);
}

/* As transformers' Trainer has it, by names: neither biases nor norms. */
static bool decays(const char *name)
{
    return strstr(name, "bias") == NULL && strstr(name, "norm") == NULL &&
           strstr(name, ".ln_") == NULL;
}

#define SIGLIP SHEAF__MINICPMV_TOWER "encoder.layers.:self_attn.q_proj.weight"
static const sheaf__variant variants[] = {
    { "MiniCPM-V 2.0", SHEAF__MINICPMV_TOWER "blocks.:attn.qkv.weight" },
    { "MiniCPM-V 2.6", SIGLIP " " SHEAF__MINICPMV_LLM "model.layers.:self_attn.q_proj.bias" },
    { "MiniCPM-V 2.5", SIGLIP },
    { NULL },
};

static const sheaf__component_rule components[] = {
    { SHEAF__MINICPMV_TOWER, SHEAF_PLAN_VIT },
    { SHEAF__MINICPMV_RESAMPLER, SHEAF_PLAN_ADAPTER },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

const sheaf__family sheaf__family_minicpmv = {
    .id = SHEAF_MINICPMV,
    .name = SHEAF__MINICPMV_NAME,
    .title = "MiniCPM-V",
    .architecture = SHEAF__MINICPMV_CLASS,
    .form = &form,
    .specs = sheaf__minicpmv_specs,
    .spec_config = sheaf__minicpmv_spec,
    .claims = sheaf__minicpmv_claims,
    .read = sheaf__minicpmv_config,
    .text = sheaf__minicpmv_text,
    .tells = SHEAF__MINICPMV_LLM "model.layers.: " SHEAF__MINICPMV_TOWER ":",
    .variants = variants,
    .variant_of = variant_of,
    .spare = spare,
    .head = SHEAF__MINICPMV_LLM "lm_head.weight",
    .table = SHEAF__MINICPMV_LLM "model.embed_tokens.weight",
    .components = components,
    .tower = tower,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_BOUND },
    .pictures = sheaf__minicpmv_pictures,
    .disagree = sheaf__minicpmv_disagree,
    .lora_targets = "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj)",
    .decays = decays,
    SHEAF__LIKE_TOWER,
};
