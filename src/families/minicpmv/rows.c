/* rows.c - the tensors of MiniCPM-V: those of its text model under llm., the tower's, named by timm
 * in 2.0 and by transformers' SigLIP later, and the resampler's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/common/rows.h"
#include "families/llama/llama.h"
#include "families/minicpmv/minicpmv.h"
#include "schema/grid.h"
#include "base/status.h"

#define BLOCKS SHEAF__MINICPMV_TOWER "blocks."
#define LAYERS SHEAF__MINICPMV_TOWER "encoder.layers."
#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)

/* ---- 2.0 ---- */

static sheaf_status *add_block(sheaf_schema *schema, int i)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn, h = v->heads;
    char prefix[64];
    snprintf(prefix, sizeof prefix, BLOCKS "%d.", i);
    const sheaf__tensor_row rows[] = {
        { "norm1.weight", { w }, SHEAF_NORM },
        { "norm1.bias", { w }, SHEAF_NORM },
        { "attn.qkv.weight", { 3 * w, w }, SHEAF_LINEAR, SHEAF__BY_OUT3, h },
        { "attn.qkv.bias", { 3 * w }, SHEAF_LINEAR, SHEAF__BY_OUT3, h },
        { "attn.proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, h },
        { "attn.proj.bias", { w }, SHEAF_LINEAR },
        { "norm2.weight", { w }, SHEAF_NORM },
        { "norm2.bias", { w }, SHEAF_NORM },
        { "mlp.fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.fc2.bias", { w }, SHEAF_LINEAR },
    };
    return sheaf__rows_add(schema, prefix, i, ROWS(rows));
}

static sheaf_status *add_timm(sheaf_schema *schema)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden;
    const sheaf__tensor_row begin[] = {
        { "pos_embed", { 1, v->positions, w }, SHEAF_OTHER },
        { "patch_embed.proj.weight", { w, v->channels, v->patch, v->patch }, SHEAF_OTHER },
        { "patch_embed.proj.bias", { w }, SHEAF_OTHER },
    };
    const sheaf__tensor_row end[] = {
        { "norm.weight", { w }, SHEAF_NORM },
        { "norm.bias", { w }, SHEAF_NORM },
    };
    sheaf_status *st = sheaf__rows_add(schema, SHEAF__MINICPMV_TOWER, -1, ROWS(begin));
    for (int64_t i = 0; i < v->layers && st == NULL; i++)
        st = add_block(schema, (int)i);
    return st == NULL ? sheaf__rows_add(schema, SHEAF__MINICPMV_TOWER, -1, ROWS(end)) : st;
}

/* ---- 2.5 and 2.6 ---- */

static sheaf_status *add_layer(sheaf_schema *schema, int i)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn, h = v->heads;
    char prefix[64];
    snprintf(prefix, sizeof prefix, LAYERS "%d.", i);
    const sheaf__tensor_row rows[] = {
        { "layer_norm1.weight", { w }, SHEAF_NORM },
        { "layer_norm1.bias", { w }, SHEAF_NORM },
        { "self_attn.q_proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.q_proj.bias", { w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.k_proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.k_proj.bias", { w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.v_proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.v_proj.bias", { w }, SHEAF_LINEAR, SHEAF__BY_OUT, h },
        { "self_attn.out_proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, h },
        { "self_attn.out_proj.bias", { w }, SHEAF_LINEAR },
        { "layer_norm2.weight", { w }, SHEAF_NORM },
        { "layer_norm2.bias", { w }, SHEAF_NORM },
        { "mlp.fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.fc2.bias", { w }, SHEAF_LINEAR },
    };
    return sheaf__rows_add(schema, prefix, i, ROWS(rows));
}

static sheaf_status *add_navit(sheaf_schema *schema)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden;
    const sheaf__tensor_row begin[] = {
        { "embeddings.patch_embedding.weight",
          { w, v->channels, v->patch, v->patch },
          SHEAF_OTHER },
        { "embeddings.patch_embedding.bias", { w }, SHEAF_OTHER },
        { "embeddings.position_embedding.weight", { v->positions, w }, SHEAF_OTHER },
    };
    const sheaf__tensor_row end[] = {
        { "post_layernorm.weight", { w }, SHEAF_NORM },
        { "post_layernorm.bias", { w }, SHEAF_NORM },
    };
    sheaf_status *st = sheaf__rows_add(schema, SHEAF__MINICPMV_TOWER, -1, ROWS(begin));
    for (int64_t i = 0; i < v->layers && st == NULL; i++)
        st = add_layer(schema, (int)i);
    return st == NULL ? sheaf__rows_add(schema, SHEAF__MINICPMV_TOWER, -1, ROWS(end)) : st;
}

/* ---- all ---- */

/* Callers may hand in a config they made themselves, not one that was read. */
static sheaf_status *check_config(const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const sheaf_resampler *r = &c->resampler;
    sheaf_status *st = sheaf__rows_size("minicpmv", c->minicpmv, SHEAF_MINICPMV_2_6);
    TRY(st, sheaf__rows_sizes(c, 1 << 25));
    if (st != NULL)
        return st;
    const int64_t side = sheaf__square_side(v->positions);
    const bool grid = v->height % v->patch == 0 && v->width % v->patch == 0 &&
                      v->height / v->patch * (v->width / v->patch) == c->patches &&
                      side * side == v->positions;
    if (v->hidden % v->heads != 0 || c->hidden % r->heads != 0 || !grid)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: vit"),
                              "heads that divide the widths, images of whole patches, and a square "
                              "table of positions");
    return NULL;
}

sheaf_status *sheaf__minicpmv_rows(sheaf_schema *schema)
{
    const bool timm = schema->config.minicpmv == SHEAF_MINICPMV_2_0;
    sheaf_status *st = check_config(&schema->config);
    TRY(st, sheaf__llama_rows(schema));
    TRY(st, timm ? add_timm(schema) : add_navit(schema));
    TRY(st,
        sheaf__resampler_rows(schema, SHEAF__MINICPMV_RESAMPLER, schema->config.vit.hidden, timm));
    return st == NULL ? sheaf__schema_sort(schema) : st;
}

/* The tower's last block, where it is dropped; its number is that behind those that run. The mask
 * and position ids that older versions of transformers stored. */
bool sheaf__minicpmv_spare(const char *name, const sheaf_config *c)
{
    const bool timm = c->minicpmv == SHEAF_MINICPMV_2_0;
    const char *const blocks = timm ? BLOCKS : LAYERS;
    const size_t n = strlen(blocks);
    char *end;
    if (strcmp(name, SHEAF__MINICPMV_TOWER "embeddings.position_ids") == 0)
        return !timm;
    return c->vit_dropped && strncmp(name, blocks, n) == 0 &&
           strtoll(name + n, &end, 10) == c->vit.layers && *end == '.';
}
