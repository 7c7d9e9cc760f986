/* tower.c - see tower.h. */
#include "families/llama/tower.h"

#include "base/base.h"
#include "families/common/rows.h"
#include "families/llama/llama.h"

#include "models/build.h"
#include "schema/grid.h"
#include "tape/vision.h"

static const sheaf__tower_names *names_of(const sheaf_config *c)
{
    return sheaf__family_for(c)->tower(c);
}

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

static sheaf_status *tower_rows(sheaf_schema *schema, const sheaf__tower_names *n)
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

sheaf_status *sheaf__tower_rows(sheaf_schema *schema)
{
    const sheaf_config *c = &schema->config;
    const sheaf__tower_names *n = names_of(c);
    sheaf_status *st = sheaf__rows_size("patches", c->patches, 1 << 25);
    TRY(st, sheaf__llama_rows(schema));
    TRY(st, tower_rows(schema, n));
    return TRY(st, sheaf__resampler_rows(schema, n->resampler, c->vit.hidden, n->queries));
}

bool sheaf__tower_spare(const char *name, const sheaf_config *c)
{
    const sheaf__tower_names *n = names_of(c);
    char before[64], *end;
    const int size =
        snprintf(before, sizeof before, "%s%.*s", n->tower, (int)strcspn(n->block, "%"), n->block);
    return strncmp(name, before, (size_t)size) == 0 &&
           strtoll(name + size, &end, 10) == c->vit.layers && *end == '.';
}

static const char query_positions[] = "resampler.pos_embed";

bool sheaf__tower_idle(const char *name, bool (*has)(const void *self, const char *begin),
                       const void *self)
{
    return sheaf__ends_with(name, query_positions);
}

/* The positions of the resampler's queries, which lie on a grid. */
float sheaf__tower_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
{
    return sheaf__sincos(index, sheaf__square_side(c->resampler.queries), c->hidden);
}

/* A stored table of so many rows may be of a square of places: then the value of `key` for it,
 * `each` a place along a side, 0: the rows. */
static sheaf_status *advise_grid(sheaf_status *st, int64_t rows, const char *key, int64_t each)
{
    const int64_t side = sheaf__square_side(rows);
    if (rows < 1 || side * side != rows)
        return st;
    return sheaf_try_this(st,
                          "the stored table is of %" PRId64 " x %" PRId64
                          " places: if that is right, %s is %" PRId64 " in config.json",
                          side, side, key, each == 0 ? rows : side * each);
}

sheaf_status *sheaf__tower_advise(sheaf_status *st, const sheaf_config *c, const char *name,
                                  const int64_t *shape, int ndim)
{
    const sheaf__tower_names *n = names_of(c);
    sheaf_config less = *c;
    less.vit.layers--;
    if (shape == NULL && n->drops && !c->vit_dropped && sheaf__tower_spare(name, &less))
        return sheaf_try_this(st, "\"drop_vision_last_layer\": true in config.json, if the tower's "
                                  "last block was left out of the files");
    if (shape == NULL || ndim < 2)
        return st;
    if (strncmp(name, n->tower, strlen(n->tower)) == 0 && sheaf__ends_with(name, n->positions))
        return advise_grid(st, shape[ndim - 2] - (n->class_token != NULL), n->size_key,
                           c->vit.patch);
    return sheaf__ends_with(name, query_positions) ? advise_grid(st, shape[0], n->queries_key, 0)
                                                   : st;
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
    return TRY(st, after ? sheaf__named_layernorm(m, &b->norm2, p, n->norm2, eps) : NULL);
}

sheaf_status *sheaf__tower_build(sheaf__model *m)
{
    const sheaf__tower_names *n = names_of(&m->schema->config);
    const sheaf_vit *v = &m->schema->config.vit;
    if (!m->begins) /* the towers are on another stage */
        return NULL;
    sheaf_status *st = sheaf__build_parts(&m->towers, m, 1, sizeof *m->towers);
    sheaf__towers *t = m->towers;
    TRY(st, sheaf__build_parts(&t->block, m, v->layers, sizeof *t->block));
    TRY(st, sheaf__named_linear(m, &t->patch, n->tower, n->patch[0], n->patch[1], 0));
    if (n->class_token != NULL)
        TRY(st, sheaf__named_vector(m, &t->class_token, n->tower, n->class_token, v->hidden));
    TRY(st, sheaf__named_vector(m, &t->positions, n->tower, n->positions, v->hidden));
    for (int64_t i = 0; i < v->layers; i++)
        TRY(st, build_block(m, &t->block[i], n, i));
    TRY(st, sheaf__named_layernorm(m, &t->norm, n->tower, n->norm, v->norm_eps));
    return TRY(st, sheaf__resampler_build(m, &t->resampler, n->resampler));
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
    h = sheaf__record_rows(tape, h, &b->proj, after ? NULL : x, NULL, info);
    x = after ? sheaf__record_layernorm(tape, h, &b->norm1, x) : h;
    sheaf__tape_mlp(tape);
    h = after ? x : sheaf__record_layernorm(tape, x, &b->norm2, NULL);
    sheaf__record_columns(tape, &h, h, (sheaf__linear *const[]){ &b->fc1 }, 1, info);
    h = sheaf__record_gelu(tape, h, n->tanh);
    h = sheaf__record_rows(tape, h, &b->fc2, after ? NULL : x, NULL, info);
    return after ? sheaf__record_layernorm(tape, h, &b->norm2, x) : h;
}

sheaf__value *sheaf__tower_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                  int tower)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf_vit *v = &c->vit;
    const sheaf__tower_names *n = names_of(c);
    const bool class_row = n->class_token != NULL;
    const int64_t side = sheaf__square_side(v->positions - class_row);
    const sheaf__position_grid grid = { .kind = n->grid,
                                        .table = &m->towers->positions,
                                        .rows = side,
                                        .cols = side,
                                        .class_row = class_row,
                                        .strip = c->minicpmv == SHEAF_MINICPMV_2_5 };
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
    x = sheaf__record_grid_positions(tape, x, &pictures, &grid);
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
    return sheaf__resampler_record(m, &t->resampler, tape, pass, x, &pictures, n->keys);
}

void sheaf__tower_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                        const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->pictures.groups, NULL, NULL, pass->images_in);
}
