/* build.c - MiniCPM-V on a tape: a decoder of Llama's kin, and before it the tower and the
 * resampler.
 *
 * A picture's way (timm's vision_transformer.py in 2.0, modeling_navit_siglip.py later; upstream's
 * resampler.py), LN with weight and bias:
 *   tower      x = patches + positions, antialiased bicubic where the grid is another (2.0), by
 *              buckets of the place in the picture later;
 *              x += proj(attention(qkv LN1 x));  x += fc2(gelu(fc1 LN2 x));  LN x
 *   resampler  see models/resampler.h; the keys' positions are those of their row and column,
 *              the queries have some in 2.0 alone
 * Its rows stand in the sequence in place of as many <unk>. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "families/common/rows.h"
#include "families/llama/llama.h"
#include "families/minicpmv/minicpmv.h"
#include "models/named.h"
#include "models/resampler.h"
#include "schema/grid.h"
#include "base/status.h"

typedef struct block {
    sheaf__linear q, k, v, proj, fc1, fc2;
    sheaf__layernorm norm1, norm2;
} block;

struct sheaf__towers {
    sheaf__linear patch;
    sheaf__vector positions;
    block *block;
    sheaf__layernorm norm;
    sheaf__resampler resampler;
};

/* ---- building ---- */

#define TOWER SHEAF__MINICPMV_TOWER

/* What the two towers call the same: timm's names in 2.0, those of transformers later. */
typedef struct names {
    const char *patch[2], *positions, *norm, *block, *norm1, *norm2, *q[2], *k[2], *v[2], *proj[2];
    bool fused;
} names;

static const names timm = {
    .patch = { "patch_embed.proj.weight", "patch_embed.proj.bias" },
    .positions = "pos_embed",
    .norm = "norm",
    .block = TOWER "blocks.%lld.",
    .norm1 = "norm1",
    .norm2 = "norm2",
    .q = { "attn.qkv.weight", "attn.qkv.bias" },
    .k = { "attn.qkv.weight", "attn.qkv.bias" },
    .v = { "attn.qkv.weight", "attn.qkv.bias" },
    .proj = { "attn.proj.weight", "attn.proj.bias" },
    .fused = true,
};

static const names siglip = {
    .patch = { "embeddings.patch_embedding.weight", "embeddings.patch_embedding.bias" },
    .positions = "embeddings.position_embedding.weight",
    .norm = "post_layernorm",
    .block = TOWER "encoder.layers.%lld.",
    .norm1 = "layer_norm1",
    .norm2 = "layer_norm2",
    .q = { "self_attn.q_proj.weight", "self_attn.q_proj.bias" },
    .k = { "self_attn.k_proj.weight", "self_attn.k_proj.bias" },
    .v = { "self_attn.v_proj.weight", "self_attn.v_proj.bias" },
    .proj = { "self_attn.out_proj.weight", "self_attn.out_proj.bias" },
};

static bool is_timm(const sheaf__model *m)
{
    return m->schema->config.minicpmv == SHEAF_MINICPMV_2_0;
}

static sheaf_status *build_block(sheaf__model *m, block *b, const names *n, int64_t i)
{
    const double eps = m->schema->config.vit.norm_eps;
    char p[64];
    sheaf_status *st;
    snprintf(p, sizeof p, n->block, (long long)i);
    (void)(DO(sheaf__named_layernorm(m, &b->norm1, p, n->norm1, eps)) &&
           DO(sheaf__named_linear(m, &b->q, p, n->q[0], n->q[1], 0)) &&
           DO(sheaf__named_linear(m, &b->k, p, n->k[0], n->k[1], n->fused ? 1 : 0)) &&
           DO(sheaf__named_linear(m, &b->v, p, n->v[0], n->v[1], n->fused ? 2 : 0)) &&
           DO(sheaf__named_linear(m, &b->proj, p, n->proj[0], n->proj[1], 0)) &&
           DO(sheaf__named_layernorm(m, &b->norm2, p, n->norm2, eps)) &&
           DO(sheaf__named_linear(m, &b->fc1, p, "mlp.fc1.weight", "mlp.fc1.bias", 0)) &&
           DO(sheaf__named_linear(m, &b->fc2, p, "mlp.fc2.weight", "mlp.fc2.bias", 0)));
    return st;
}

static sheaf_status *build_towers(sheaf__model *m)
{
    const sheaf_vit *v = &m->schema->config.vit;
    const names *n = is_timm(m) ? &timm : &siglip;
    sheaf__towers *t = m->towers = calloc(1, sizeof *t);
    if (t == NULL || (t->block = calloc((size_t)v->layers, sizeof *t->block)) == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "vision tower");
    if (!m->begins) /* the towers are on another stage */
        return NULL;
    sheaf_status *st;
    (void)(DO(sheaf__named_linear(m, &t->patch, TOWER, n->patch[0], n->patch[1], 0)) &&
           DO(sheaf__named_vector(m, &t->positions, TOWER, n->positions, v->hidden)));
    for (int64_t i = 0; i < v->layers && st == NULL; i++)
        st = build_block(m, &t->block[i], n, i);
    TRY(st, sheaf__named_layernorm(m, &t->norm, TOWER, n->norm, v->norm_eps));
    return st == NULL ? sheaf__resampler_build(m, &t->resampler, SHEAF__MINICPMV_RESAMPLER) : st;
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

void sheaf__minicpmv_release(sheaf__model *m)
{
    if (m->towers != NULL)
        free(m->towers->block);
    free(m->towers);
}

/* ---- the pass ---- */

static sheaf__value *record_block(sheaf__tape *tape, sheaf__value *x, block *b,
                                  const sheaf__pictures *pictures, int64_t width, bool erf,
                                  const sheaf__step_info *info)
{
    sheaf__value *qkv[3], *h = sheaf__record_layernorm(tape, x, &b->norm1, NULL);
    sheaf__record_columns(tape, qkv, h, (sheaf__linear *const[]){ &b->q, &b->k, &b->v }, 3, info);
    const sheaf__heads heads = { .kv_heads = qkv[1]->cols / width, .group = 1, .head_dim = width };
    h = sheaf__record_picture_attention(tape, qkv[0], qkv[1], qkv[2], &heads, pictures, 0);
    x = sheaf__record_rows(tape, h, &b->proj, x, info);
    h = sheaf__record_layernorm(tape, x, &b->norm2, NULL);
    sheaf__record_columns(tape, &h, h, (sheaf__linear *const[]){ &b->fc1 }, 1, info);
    h = erf ? sheaf__record_gelu(tape, h) : sheaf__record_gelu_tanh(tape, h);
    return sheaf__record_rows(tape, h, &b->fc2, x, info);
}

static sheaf__value *record_tower(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  const sheaf__pictures *pictures)
{
    const sheaf_vit *v = &m->schema->config.vit;
    const sheaf__step_info *info = &pass->info[sheaf__rows_inside(pictures->number)];
    const int64_t side = sheaf__square_side(v->positions);
    sheaf__towers *t = m->towers;
    sheaf__value *x = sheaf__record_picture_patches(tape, pictures);
    sheaf__record_columns(tape, &x, x, (sheaf__linear *const[]){ &t->patch }, 1, info);
    x = sheaf__record_grid_positions(
        tape, x, pictures,
        &(sheaf__position_grid){ .kind =
                                     is_timm(m) ? SHEAF__GRID_CUBIC_SMOOTH : SHEAF__GRID_BUCKETS,
                                 .table = &t->positions,
                                 .rows = side,
                                 .cols = side,
                                 .strip = m->schema->config.minicpmv == SHEAF_MINICPMV_2_5 });
    sheaf__stage(pass, tape, "vit_in", -1, SHEAF__TEXT, x);
    for (int64_t i = 0; i < v->layers; i++) {
        sheaf__tape_segment_begin(tape, (int)i);
        x = record_block(tape, x, &t->block[i], pictures, v->hidden / v->heads, is_timm(m), info);
        sheaf__stage(pass, tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(tape);
    }
    return sheaf__record_layernorm(tape, x, &t->norm, NULL);
}

sheaf__value *sheaf__minicpmv_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower)
{
    const sheaf__pictures pictures = sheaf__pass_pictures(m, pass, tower);
    sheaf__value *x = record_tower(m, tape, pass, &pictures);
    sheaf__stage(pass, tape, "adapter_in", -1, SHEAF__TEXT, x);
    return sheaf__resampler_record(m, &m->towers->resampler, tape, pass, x, &pictures,
                                   SHEAF__GRID_SINCOS);
}

void sheaf__minicpmv_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                           const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->images, NULL, NULL, pass->images_in);
}
