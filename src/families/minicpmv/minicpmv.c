/* minicpmv.c - MiniCPM-V: its descriptor; a decoder of Llama's kin, and before it the tower (timm's
 * vision_transformer.py in 2.0, modeling_navit_siglip.py later) and the resampler (upstream's
 * resampler.py), whose rows stand in the sequence in place of as many <unk>. Positions are
 * antialiased bicubic where the grid is another (2.0), by buckets of the place in the picture
 * later; those of the resampler's keys are of their row and column, and queries have some in 2.0
 * alone. */
#include "families/minicpmv/minicpmv.h"

#include "base/base.h"
#include "families/llama/tower.h"

/* ---- a small model of each version that `init` makes by name ---- */

static const sheaf__family_spec specs[] = {
    { "minicpmv-tiny", "MiniCPM-V 2.6, byte vocabulary, hidden 128, 4 layers, patches of 14: 1.1 "
                       "million parameters" },
    { "minicpmv-2.5-tiny", "the same of MiniCPM-V 2.5" },
    { "minicpmv-2.0-tiny", "the same of MiniCPM-V 2.0" },
    { "minicpmv-4.5-tiny", "the same of MiniCPM-V 4.5" },
    { NULL },
};

/* ---- the tower ---- */

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

/* Of MiniCPM-o: what hears and speaks. */
static bool is_other(const char *name)
{
    static const char *const begin[] = { "apm.", "audio_projection_layer.", "tts." };
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncmp(name, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

/* The tower's last block, where it is dropped; the position ids that older versions of
 * transformers stored; and what is not of pictures. */
static bool spare(const char *name, const sheaf_config *c)
{
    if (strcmp(name, SHEAF__MINICPMV_TOWER "embeddings.position_ids") == 0)
        return c->minicpmv != SHEAF_MINICPMV_2_0;
    if (sheaf__minicpmv_version_of(c)->omni && is_other(name))
        return true;
    return c->vit_dropped && sheaf__tower_spare(name, c);
}

/* The largest picture that slicing makes of an ordinary one. */
static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 0, c->resampler.queries);
    out[0].ragged = true;
    out[0].padded = c->padding_seen;
    out[0].frames = sheaf__minicpmv_version_of(c)->frames;
    return 1;
}

static const char *variant_of(const sheaf_config *c)
{
    return sheaf__minicpmv_version_of(c)->title;
}

static const sheaf__gguf_form *gguf_of(const sheaf_config *c)
{
    return sheaf__minicpmv_version_of(c)->gguf;
}

static const sheaf__gguf_projector *projector_of(const sheaf_config *c)
{
    const sheaf__gguf_projector *projector = &sheaf__minicpmv_version_of(c)->projector;
    return projector->pieces != NULL ? projector : NULL;
}

/* As transformers' Trainer has it, by names: neither biases nor norms. */
static bool decays(const char *name)
{
    return strstr(name, "bias") == NULL && strstr(name, "norm") == NULL &&
           strstr(name, ".ln_") == NULL;
}

#define SIGLIP SHEAF__MINICPMV_TOWER "encoder.layers.:self_attn.q_proj.weight"
#define BIAS SHEAF__MINICPMV_LLM "model.layers.:self_attn.q_proj.bias"
#define QK_NORM SHEAF__MINICPMV_LLM "model.layers.:self_attn.q_norm.weight"
/* 2.5 and 4.0 differ in sizes alone. */
static const sheaf__variant variants[] = {
    { "MiniCPM-V 2.0", SHEAF__MINICPMV_TOWER "blocks.:attn.qkv.weight" },
    { "MiniCPM-V 2.6", SIGLIP " " BIAS " !apm.:" },
    { "MiniCPM-o 2.6", SIGLIP " " BIAS },
    { "MiniCPM-V 4.5", SIGLIP " " QK_NORM },
    { "MiniCPM-V 2.5 or 4.0", SIGLIP " !" BIAS " !" QK_NORM },
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
    .form_of = sheaf__minicpmv_form,
    .specs = specs,
    .claims = sheaf__minicpmv_claims,
    .read = sheaf__minicpmv_config,
    .text = sheaf__minicpmv_text,
    .signature = SHEAF__MINICPMV_LLM "model.layers.: " SHEAF__MINICPMV_TOWER ":",
    .variants = variants,
    .variant_of = variant_of,
    .spare = spare,
    .gguf_of = gguf_of,
    .projector_of = projector_of,
    .head = SHEAF__MINICPMV_LLM "lm_head.weight",
    .table = SHEAF__MINICPMV_LLM "model.embed_tokens.weight",
    .components = components,
    .tower = tower,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_BOUND },
    .pictures = sheaf__minicpmv_pictures,
    .disagree = sheaf__minicpmv_disagree,
    .beside = sheaf__minicpmv_beside,
    .lora_targets = "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj)",
    .decays = decays,
    SHEAF__LIKE_TOWER,
};
