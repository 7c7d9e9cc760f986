/* build.c - OmniLMM on a tape: Mistral's decoder, and before it the tower (timm's eva.py) and the
 * resampler (upstream's resampler.py), whose rows stand in the sequence in place of as many
 * <im_patch>. Positions are antialiased bicubic where the grid is another; those of the resampler's
 * keys are the queries', bicubic. All blocks of the tower but the last run. */
#include "families/common/tower.h"
#include "families/llama/llama.h"
#include "families/omnilmm/omnilmm.h"
#include "schema/grid.h"

static const sheaf__tower_names names = {
    .tower = SHEAF__OMNILMM_TOWER,
    .resampler = SHEAF__OMNILMM_RESAMPLER,
    .patch = { "patch_embed.proj.weight", "patch_embed.proj.bias" },
    .class_token = "cls_token",
    .positions = "pos_embed",
    .norm = "norm",
    .block = "blocks.%lld.",
    .norm1 = "norm1",
    .norm2 = "norm2",
    .q = { "attn.qkv.weight", "attn.q_bias" },
    .k = { "attn.qkv.weight" },
    .v = { "attn.qkv.weight", "attn.v_bias" },
    .proj = { "attn.proj.weight", "attn.proj.bias" },
    .fused = true,
    .norms_after = true,
};

static sheaf_status *build_towers(sheaf__model *m)
{
    return sheaf__tower_build(m, &names);
}

sheaf_status *sheaf__omnilmm_build(sheaf__model *m)
{
    return sheaf__llama_build_behind(m, build_towers);
}

sheaf__value *sheaf__omnilmm_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                 int tower)
{
    const int64_t side = sheaf__square_side(m->schema->config.vit.positions - 1);
    return sheaf__tower_record(m, tape, pass, tower, &names,
                               &(sheaf__position_grid){ SHEAF__GRID_CUBIC_SMOOTH,
                                                        &m->towers->positions, side, side, true },
                               SHEAF__GRID_CUBIC);
}
