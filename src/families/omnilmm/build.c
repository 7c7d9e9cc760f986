/* build.c - OmniLMM on a tape: Mistral's decoder, and before it the tower and the resampler.
 *
 * A picture's way (timm's eva.py, upstream's resampler.py), LN with weight and bias:
 *   tower      x = [class; patches] + positions, antialiased bicubic where the grid is another;
 *              x += LN1(proj(attention(qkv x)));  x += LN2(fc2(gelu(fc1 x)))
 *              of all blocks but the last; LN x, without the class row
 *   resampler  see models/resampler.h; the keys' positions are the queries', bicubic
 * Its rows stand in the sequence in place of as many <im_patch>. */
#include <stdio.h>
#include <stdlib.h>

#include "families/common/rows.h"
#include "families/llama/llama.h"
#include "families/omnilmm/omnilmm.h"
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
    sheaf__vector class_token, positions;
    block *block;
    sheaf__layernorm norm;
    sheaf__resampler resampler;
};

/* ---- building ---- */

#define TOWER SHEAF__OMNILMM_TOWER

static sheaf_status *build_block(sheaf__model *m, block *b, int64_t i)
{
    const double eps = m->schema->config.vit.norm_eps;
    char p[64];
    sheaf_status *st;
    snprintf(p, sizeof p, TOWER "blocks.%lld.", (long long)i);
    (void)(DO(sheaf__named_linear(m, &b->q, p, "attn.qkv.weight", "attn.q_bias", 0)) &&
           DO(sheaf__named_linear(m, &b->k, p, "attn.qkv.weight", NULL, 1)) &&
           DO(sheaf__named_linear(m, &b->v, p, "attn.qkv.weight", "attn.v_bias", 2)) &&
           DO(sheaf__named_linear(m, &b->proj, p, "attn.proj.weight", "attn.proj.bias", 0)) &&
           DO(sheaf__named_layernorm(m, &b->norm1, p, "norm1", eps)) &&
           DO(sheaf__named_linear(m, &b->fc1, p, "mlp.fc1.weight", "mlp.fc1.bias", 0)) &&
           DO(sheaf__named_linear(m, &b->fc2, p, "mlp.fc2.weight", "mlp.fc2.bias", 0)) &&
           DO(sheaf__named_layernorm(m, &b->norm2, p, "norm2", eps)));
    return st;
}

static sheaf_status *build_towers(sheaf__model *m)
{
    const sheaf_vit *v = &m->schema->config.vit;
    sheaf__towers *t = m->towers = calloc(1, sizeof *t);
    if (t == NULL || (t->block = calloc((size_t)v->layers, sizeof *t->block)) == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "vision tower");
    if (!m->begins) /* the towers are on another stage */
        return NULL;
    sheaf_status *st;
    (void)(DO(sheaf__named_linear(m, &t->patch, TOWER, "patch_embed.proj.weight",
                                  "patch_embed.proj.bias", 0)) &&
           DO(sheaf__named_vector(m, &t->class_token, TOWER, "cls_token", v->hidden)) &&
           DO(sheaf__named_vector(m, &t->positions, TOWER, "pos_embed", v->hidden)));
    for (int64_t i = 0; i < v->layers && st == NULL; i++)
        st = build_block(m, &t->block[i], i);
    TRY(st, sheaf__named_layernorm(m, &t->norm, TOWER, "norm", v->norm_eps));
    return st == NULL ? sheaf__resampler_build(m, &t->resampler, SHEAF__OMNILMM_RESAMPLER) : st;
}

sheaf_status *sheaf__omnilmm_build(sheaf__model *m)
{
    return sheaf__llama_build_behind(m, build_towers);
}

void sheaf__omnilmm_release(sheaf__model *m)
{
    if (m->towers != NULL)
        free(m->towers->block);
    free(m->towers);
}

/* ---- the pass ---- */

static sheaf__value *record_block(sheaf__tape *tape, sheaf__value *x, block *b,
                                  const sheaf__pictures *pictures, int64_t width,
                                  const sheaf__step_info *info)
{
    sheaf__value *qkv[3], *h;
    sheaf__record_columns(tape, qkv, x, (sheaf__linear *const[]){ &b->q, &b->k, &b->v }, 3, info);
    const sheaf__heads heads = { .kv_heads = qkv[1]->cols / width, .group = 1, .head_dim = width };
    h = sheaf__record_picture_attention(tape, qkv[0], qkv[1], qkv[2], &heads, pictures, 0);
    h = sheaf__record_rows(tape, h, &b->proj, NULL, info);
    x = sheaf__record_layernorm(tape, h, &b->norm1, x);
    sheaf__record_columns(tape, &h, x, (sheaf__linear *const[]){ &b->fc1 }, 1, info);
    h = sheaf__record_rows(tape, sheaf__record_gelu(tape, h), &b->fc2, NULL, info);
    return sheaf__record_layernorm(tape, h, &b->norm2, x);
}

sheaf__value *sheaf__omnilmm_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                 int tower)
{
    const sheaf_vit *v = &m->schema->config.vit;
    const sheaf__step_info *info = &pass->info[sheaf__rows_inside(tower)];
    sheaf__towers *t = m->towers;
    sheaf__pictures pictures = sheaf__pass_pictures(m, pass, tower);
    const int64_t side = sheaf__square_side(v->positions - 1);
    sheaf__value *x = sheaf__record_picture_patches(tape, &pictures);
    sheaf__record_columns(tape, &x, x, (sheaf__linear *const[]){ &t->patch }, 1, info);
    sheaf__stage(pass, tape, "patches", -1, SHEAF__TEXT, x);
    x = sheaf__record_class_rows(tape, x, &pictures, &t->class_token);
    pictures.class_row = true;
    x = sheaf__record_grid_positions(
        tape, x, &pictures,
        &(sheaf__position_grid){ SHEAF__GRID_CUBIC_SMOOTH, &t->positions, side, side, true });
    sheaf__stage(pass, tape, "vit_in", -1, SHEAF__TEXT, x);
    for (int64_t i = 0; i < v->layers; i++) {
        sheaf__tape_segment_begin(tape, (int)i);
        x = record_block(tape, x, &t->block[i], &pictures, v->hidden / v->heads, info);
        sheaf__stage(pass, tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(tape);
    }
    x = sheaf__record_without_class(tape, x, &pictures);
    pictures.class_row = false;
    x = sheaf__record_layernorm(tape, x, &t->norm, NULL);
    sheaf__stage(pass, tape, "adapter_in", -1, SHEAF__TEXT, x);
    return sheaf__resampler_record(m, &t->resampler, tape, pass, x, &pictures, SHEAF__GRID_CUBIC);
}

void sheaf__omnilmm_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                          const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->images, NULL, NULL, pass->images_in);
}
