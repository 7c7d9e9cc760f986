/* build.c - MiniCPM-V on a tape: a decoder of Llama's kin, and before it the tower (timm's
 * vision_transformer.py in 2.0, modeling_navit_siglip.py later) and the resampler (upstream's
 * resampler.py), whose rows stand in the sequence in place of as many <unk>. Positions are
 * antialiased bicubic where the grid is another (2.0), by buckets of the place in the picture
 * later; those of the resampler's keys are of their row and column, and queries have some in 2.0
 * alone. */
#include <math.h>

#include "families/common/tower.h"
#include "families/llama/llama.h"
#include "families/minicpmv/minicpmv.h"
#include "schema/grid.h"

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

static const sheaf__tower_names *names_of(const sheaf__model *m)
{
    return m->schema->config.minicpmv == SHEAF_MINICPMV_2_0 ? &timm : &siglip;
}

static sheaf_status *build_towers(sheaf__model *m)
{
    return sheaf__tower_build(m, names_of(m));
}

sheaf_status *sheaf__minicpmv_build(sheaf__model *m)
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

sheaf__value *sheaf__minicpmv_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower)
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
    return sheaf__tower_record(m, tape, pass, tower, names_of(m), &grid, SHEAF__GRID_SINCOS);
}
