/* tower.c - see tower.h. */
#include "families/common/tower.h"

#include "base/base.h"
#include "families/common/rows.h"

#include "models/build.h"
#include "tape/vision.h"

static void block_prefix(char prefix[64], const sheaf__tower_names *n, int64_t i)
{
    const int at = snprintf(prefix, 64, "%s", n->tower);
    snprintf(prefix + at, 64 - (size_t)at, n->block, (long long)i);
}

struct sheaf__tower_block {
    sheaf__linear q, k, v, proj, fc1, fc2;
    sheaf__layernorm norm1, norm2;
};

/* ---- tensors ---- */

static sheaf_status *norm_rows(sheaf_schema *schema, const char *prefix, const char *name,
                               int layer)
{
    const int64_t width = schema->config.vit.hidden;
    char before[96];
    snprintf(before, sizeof before, "%s%s.", prefix, name);
    return sheaf__rows_add(schema, before, layer,
                           (const sheaf__tensor_row[]){ { "weight", { width }, SHEAF_NORM },
                                                        { "bias", { width }, SHEAF_NORM } },
                           2);
}

/* Biases of a fused weight of their own begin as zero, and no LoRA looks at them. */
static sheaf_status *qkv_rows(sheaf_schema *schema, const char *prefix, const sheaf__tower_names *n,
                              int layer)
{
    const int64_t w = schema->config.vit.hidden, h = schema->config.vit.heads,
                  out = n->fused ? 3 * w : w;
    const sheaf__split split = n->fused ? SHEAF__BY_OUT3 : SHEAF__BY_OUT;
    const bool whole = n->fused && n->k[1] != NULL, apart = n->fused && !whole;
    const char *const *const of[] = { n->q, n->k, n->v };
    sheaf__tensor_row rows[6];
    size_t count = 0;
    for (int i = 0; i < 3; i++) {
        if (i == 0 || !n->fused)
            rows[count++] = (sheaf__tensor_row){ of[i][0], { out, w }, SHEAF_LINEAR, split, h };
        if (of[i][1] != NULL && (i == 0 || !whole))
            rows[count++] = (sheaf__tensor_row){ of[i][1],
                                                 { apart ? w : out },
                                                 apart ? SHEAF_OTHER : SHEAF_LINEAR,
                                                 apart ? SHEAF__BY_OUT : split,
                                                 h,
                                                 .zero = apart };
    }
    return sheaf__rows_add(schema, prefix, layer, rows, count);
}

/* Rows are in the order of upstream's modules, in which checkpoints list tensors. */
static sheaf_status *block_rows(sheaf_schema *schema, const sheaf__tower_names *n, int layer)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn;
    const sheaf__tensor_row proj[] = {
        { n->proj[0], { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, v->heads },
        { n->proj[1], { w }, SHEAF_LINEAR },
    };
    const sheaf__tensor_row mlp[] = {
        { "mlp.fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.fc2.bias", { w }, SHEAF_LINEAR },
    };
    char p[64];
    block_prefix(p, n, layer);
    sheaf_status *st = n->norms_after ? NULL : norm_rows(schema, p, n->norm1, layer);
    TRY(st, qkv_rows(schema, p, n, layer));
    TRY(st, sheaf__rows_add(schema, p, layer, proj, 2));
    TRY(st, norm_rows(schema, p, n->norms_after ? n->norm1 : n->norm2, layer));
    TRY(st, sheaf__rows_add(schema, p, layer, mlp, 4));
    return n->norms_after ? TRY(st, norm_rows(schema, p, n->norm2, layer)) : st;
}

sheaf_status *sheaf__tower_rows(sheaf_schema *schema, const sheaf__tower_names *n)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden;
    const sheaf__tensor_row class_token = { n->class_token, { 1, 1, w }, SHEAF_OTHER };
    const sheaf__tensor_row positions = { n->positions,
                                          { n->table ? v->positions : 1,
                                            n->table ? w : v->positions, n->table ? 0 : w },
                                          SHEAF_OTHER };
    const sheaf__tensor_row patch[] = {
        { n->patch[0], { w, v->channels, v->patch, v->patch }, SHEAF_OTHER },
        { n->patch[1], { w }, SHEAF_OTHER },
    };
    sheaf_status *st =
        n->class_token == NULL ? NULL : sheaf__rows_add(schema, n->tower, -1, &class_token, 1);
    if (!n->table)
        TRY(st, sheaf__rows_add(schema, n->tower, -1, &positions, 1));
    TRY(st, sheaf__rows_add(schema, n->tower, -1, patch, 2));
    if (n->table)
        TRY(st, sheaf__rows_add(schema, n->tower, -1, &positions, 1));
    for (int64_t i = 0; i < v->layers; i++)
        TRY(st, block_rows(schema, n, (int)i));
    return TRY(st, norm_rows(schema, n->tower, n->norm, -1));
}

/* ---- building ---- */

static sheaf_status *build_block(sheaf__model *m, sheaf__tower_block *b,
                                 const sheaf__tower_names *n, int64_t i)
{
    const double eps = m->schema->config.vit.norm_eps;
    const bool after = n->norms_after;
    char p[64];
    block_prefix(p, n, i);
    sheaf_status *st = after ? NULL : sheaf__named_layernorm(m, &b->norm1, p, n->norm1, eps);
    TRY(st, sheaf__named_linear(m, &b->q, p, n->q[0], n->q[1], 0));
    TRY(st, sheaf__named_linear(m, &b->k, p, n->k[0], n->k[1], n->fused ? 1 : 0));
    TRY(st, sheaf__named_linear(m, &b->v, p, n->v[0], n->v[1], n->fused ? 2 : 0));
    TRY(st, sheaf__named_linear(m, &b->proj, p, n->proj[0], n->proj[1], 0));
    TRY(st, sheaf__named_layernorm(m, after ? &b->norm1 : &b->norm2, p, after ? n->norm1 : n->norm2,
                                   eps));
    TRY(st, sheaf__named_linear(m, &b->fc1, p, "mlp.fc1.weight", "mlp.fc1.bias", 0));
    TRY(st, sheaf__named_linear(m, &b->fc2, p, "mlp.fc2.weight", "mlp.fc2.bias", 0));
    TRY(st, after ? sheaf__named_layernorm(m, &b->norm2, p, n->norm2, eps) : NULL);
    return st;
}

sheaf_status *sheaf__tower_build(sheaf__model *m, const sheaf__tower_names *n)
{
    const sheaf_vit *v = &m->schema->config.vit;
    sheaf__towers *t = m->towers = calloc(1, sizeof *t);
    if (t == NULL || (t->block = calloc((size_t)v->layers, sizeof *t->block)) == NULL)
        return sheaf__no_memory("vision tower");
    if (!m->begins) /* the towers are on another stage */
        return NULL;
    sheaf_status *st = sheaf__named_linear(m, &t->patch, n->tower, n->patch[0], n->patch[1], 0);
    if (n->class_token != NULL)
        TRY(st, sheaf__named_vector(m, &t->class_token, n->tower, n->class_token, v->hidden));
    TRY(st, sheaf__named_vector(m, &t->positions, n->tower, n->positions, v->hidden));
    for (int64_t i = 0; i < v->layers; i++)
        TRY(st, build_block(m, &t->block[i], n, i));
    TRY(st, sheaf__named_layernorm(m, &t->norm, n->tower, n->norm, v->norm_eps));
    TRY(st, sheaf__resampler_build(m, &t->resampler, n->resampler));
    return st;
}

void sheaf__tower_release(sheaf__model *m)
{
    if (m->towers != NULL)
        free(m->towers->block);
    free(m->towers);
}

/* ---- the pass ---- */

static sheaf__value *record_block(sheaf__tape *tape, sheaf__value *x, sheaf__tower_block *b,
                                  const sheaf__tower_names *n, const sheaf__pictures *pictures,
                                  int64_t width, const sheaf__step_info *info)
{
    const bool after = n->norms_after;
    sheaf__value *qkv[3], *h = after ? x : sheaf__record_layernorm(tape, x, &b->norm1, NULL);
    sheaf__record_columns(tape, qkv, h, (sheaf__linear *const[]){ &b->q, &b->k, &b->v }, 3, info);
    const sheaf__heads heads = { .kv_heads = qkv[1]->cols / width, .group = 1, .head_dim = width };
    h = sheaf__record_picture_attention(tape, qkv[0], qkv[1], qkv[2], &heads, pictures, 0);
    h = sheaf__record_rows(tape, h, &b->proj, after ? NULL : x, info);
    x = after ? sheaf__record_layernorm(tape, h, &b->norm1, x) : h;
    h = after ? x : sheaf__record_layernorm(tape, x, &b->norm2, NULL);
    sheaf__record_columns(tape, &h, h, (sheaf__linear *const[]){ &b->fc1 }, 1, info);
    h = sheaf__record_gelu(tape, h, n->tanh);
    h = sheaf__record_rows(tape, h, &b->fc2, after ? NULL : x, info);
    return after ? sheaf__record_layernorm(tape, h, &b->norm2, x) : h;
}

sheaf__value *sheaf__tower_record(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower, const sheaf__tower_names *n,
                                  const sheaf__position_grid *grid, sheaf__position_kind keys)
{
    const sheaf_vit *v = &m->schema->config.vit;
    const sheaf__step_info *info = &pass->info[sheaf__rows_inside(tower)];
    sheaf__towers *t = m->towers;
    sheaf__pictures pictures = sheaf__pass_pictures(m, pass, tower);
    sheaf__value *x = sheaf__record_picture_patches(tape, &pictures);
    sheaf__record_columns(tape, &x, x, (sheaf__linear *const[]){ &t->patch }, 1, info);
    if (n->class_token != NULL) {
        sheaf__stage(pass, tape, "patches", -1, SHEAF__TEXT, x);
        x = sheaf__record_class_rows(tape, x, &pictures, &t->class_token);
        pictures.class_row = true;
    }
    x = sheaf__record_grid_positions(tape, x, &pictures, grid);
    sheaf__stage(pass, tape, "vit_in", -1, SHEAF__TEXT, x);
    for (int64_t i = 0; i < v->layers; i++) {
        sheaf__tape_segment_begin(tape, (int)i);
        x = record_block(tape, x, &t->block[i], n, &pictures, v->hidden / v->heads, info);
        sheaf__stage(pass, tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(tape);
    }
    if (n->class_token != NULL)
        x = sheaf__record_without_class(tape, x, &pictures);
    pictures.class_row = false;
    x = sheaf__record_layernorm(tape, x, &t->norm, NULL);
    sheaf__stage(pass, tape, "adapter_in", -1, SHEAF__TEXT, x);
    return sheaf__resampler_record(m, &t->resampler, tape, pass, x, &pictures, keys);
}

void sheaf__tower_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                        const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->images, NULL, NULL, pass->images_in);
}
