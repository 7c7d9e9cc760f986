/* minicpmv.c - MiniCPM-V: its descriptor; a decoder of Llama's kin, and before it the tower (timm's
 * vision_transformer.py in 2.0, modeling_navit_siglip.py later) and the resampler (upstream's
 * resampler.py), whose rows stand in the sequence in place of as many <unk>. Positions are
 * antialiased bicubic where the grid is another (2.0), by buckets of the place in the picture
 * later; those of the resampler's keys are of their row and column, and queries have some in 2.0
 * alone. */
#include "families/minicpmv/minicpmv.h"

#include <math.h>

#include "base/base.h"
#include "families/common/rows.h"
#include "families/common/tower.h"
#include "families/common/vision.h"
#include "families/llama/llama.h"
#include "schema/grid.h"

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
};

static const sheaf__tower_names *names_of(const sheaf_config *c)
{
    return c->minicpmv == SHEAF_MINICPMV_2_0 ? &timm : &siglip;
}

static sheaf_status *build_towers(sheaf__model *m)
{
    return sheaf__tower_build(m, names_of(&m->schema->config));
}

static sheaf_status *build(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    if (c->scale_emb != 1)
        m->times = (float)c->scale_emb;
    if (c->scale_depth > 0)
        m->branch = (float)(c->scale_depth / sqrt((double)c->layers));
    if (c->dim_model_base > 0)
        m->divide = (float)((double)c->hidden / (double)c->dim_model_base);
    return sheaf__llama_build_behind(m, build_towers);
}

static sheaf__value *see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass, int tower)
{
    const sheaf_config *c = &m->schema->config;
    const int64_t side = sheaf__square_side(c->vit.positions);
    const sheaf__position_grid grid = { .kind = c->minicpmv == SHEAF_MINICPMV_2_0
                                                    ? SHEAF__GRID_CUBIC_SMOOTH
                                                    : SHEAF__GRID_BUCKETS,
                                        .table = &m->towers->positions,
                                        .rows = side,
                                        .cols = side,
                                        .strip = c->minicpmv == SHEAF_MINICPMV_2_5 };
    return sheaf__tower_record(m, tape, pass, tower, names_of(c), &grid, SHEAF__GRID_SINCOS);
}

static sheaf_status *rows(sheaf_schema *schema)
{
    const sheaf_config *c = &schema->config;
    sheaf_status *st = sheaf__rows_size("patches", c->patches, 1 << 25);
    TRY(st, sheaf__llama_rows(schema));
    TRY(st, sheaf__tower_rows(schema, names_of(c)));
    TRY(st, sheaf__resampler_rows(schema, SHEAF__MINICPMV_RESAMPLER, c->vit.hidden,
                                  c->minicpmv == SHEAF_MINICPMV_2_0));
    return st;
}

/* The tower's last block, where it is dropped; its number is that behind those that run. The mask
 * and position ids that older versions of transformers stored. */
static bool spare(const char *name, const sheaf_config *c)
{
    const bool timm = c->minicpmv == SHEAF_MINICPMV_2_0;
    const char *const blocks =
        timm ? SHEAF__MINICPMV_TOWER "blocks." : SHEAF__MINICPMV_TOWER "encoder.layers.";
    const size_t n = strlen(blocks);
    char *end;
    if (strcmp(name, SHEAF__MINICPMV_TOWER "embeddings.position_ids") == 0)
        return !timm;
    return c->vit_dropped && strncmp(name, blocks, n) == 0 &&
           strtoll(name + n, &end, 10) == c->vit.layers && *end == '.';
}

/* The largest picture that slicing makes of an ordinary one. */
static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 0, c->resampler.queries);
    out[0].ragged = true;
    out[0].padded = c->padding_seen;
    return 1;
}

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, SHEAF__MINICPMV_LLM "model.layers.", "") &&
           any(self, SHEAF__MINICPMV_TOWER, "");
}

/* The version whose tensors these are. */
static const char *variant(bool (*any)(const void *self, const char *begin, const char *inside),
                           const void *self)
{
    if (!named(any, self))
        return NULL;
    if (any(self, SHEAF__MINICPMV_TOWER "blocks.", "attn.qkv.weight"))
        return sheaf__minicpmv_title(SHEAF_MINICPMV_2_0);
    if (!any(self, SHEAF__MINICPMV_TOWER "encoder.layers.", "self_attn.q_proj.weight"))
        return NULL;
    return sheaf__minicpmv_title(
        any(self, SHEAF__MINICPMV_LLM "model.layers.", "self_attn.q_proj.bias")
            ? SHEAF_MINICPMV_2_6
            : SHEAF_MINICPMV_2_5);
}

static const char *variant_of(const sheaf_config *c)
{
    return sheaf__minicpmv_title(c->minicpmv);
}

static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return strcmp(name, SHEAF__MINICPMV_RESAMPLER "pos_embed") == 0;
}

static sheaf_status *advise(sheaf_status *st, const sheaf_config *c, const char *name,
                            const int64_t *shape, int ndim)
{
    const bool timm = c->minicpmv == SHEAF_MINICPMV_2_0;
    const char *table = timm ? SHEAF__MINICPMV_TOWER "pos_embed"
                             : SHEAF__MINICPMV_TOWER "embeddings.position_embedding.weight";
    sheaf_config less = *c;
    less.vit_dropped = true;
    less.vit.layers--;
    if (shape == NULL && !c->vit_dropped && spare(name, &less))
        return sheaf_try_this(st, "\"drop_vision_last_layer\": true in config.json, if the tower's "
                                  "last block was left out of the files");
    if (shape == NULL || ndim < 2)
        return st;
    if (strcmp(name, table) == 0)
        return sheaf__advise_grid(st, shape[ndim - 2],
                                  timm ? "vision_config.img_size" : "vision_config.image_size",
                                  c->vit.patch);
    return strcmp(name, SHEAF__MINICPMV_RESAMPLER "pos_embed") == 0
               ? sheaf__advise_grid(st, shape[0], "query_num", 0)
               : st;
}

/* As transformers' Trainer has it, by names: neither biases nor norms. */
static bool decays(const char *name)
{
    return strstr(name, "bias") == NULL && strstr(name, "norm") == NULL &&
           strstr(name, ".ln_") == NULL;
}

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
    .position_key = "max_position_embeddings",
    .claims = sheaf__minicpmv_claims,
    .read = sheaf__minicpmv_config,
    .text = sheaf__minicpmv_text,
    .rows = rows,
    .named = named,
    .variant = variant,
    .variant_of = variant_of,
    .spare = spare,
    .idle = idle,
    .advise = advise,
    .buffer = sheaf__queries_buffer,
    .head = SHEAF__MINICPMV_LLM "lm_head.weight",
    .table = SHEAF__MINICPMV_LLM "model.embed_tokens.weight",
    .components = components,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_BOUND },
    .pictures = sheaf__minicpmv_pictures,
    .disagree = sheaf__minicpmv_disagree,
    .lora_targets = "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj)",
    .decays = decays,
    .build = build,
    .see = see,
    .place = sheaf__tower_place,
    .release = sheaf__tower_release,
};
