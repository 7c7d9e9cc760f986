/* rows.c - the tensors of OmniLMM: those of Mistral, the resampler's, and the tower's as timm names
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/common/rows.h"
#include "families/llama/llama.h"
#include "families/omnilmm/omnilmm.h"
#include "base/status.h"

#define BLOCKS SHEAF__OMNILMM_TOWER "blocks."
#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)

static sheaf_status *add_block(sheaf_schema *schema, int i)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn, h = v->heads;
    char prefix[64];
    snprintf(prefix, sizeof prefix, BLOCKS "%d.", i);
    const sheaf__tensor_row rows[] = {
        { "attn.qkv.weight", { 3 * w, w }, SHEAF_LINEAR, SHEAF__BY_OUT3, h },
        { "attn.q_bias", { w }, SHEAF_OTHER, SHEAF__BY_OUT, h, .zero = true },
        { "attn.v_bias", { w }, SHEAF_OTHER, SHEAF__BY_OUT, h, .zero = true },
        { "attn.proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, h },
        { "attn.proj.bias", { w }, SHEAF_LINEAR },
        { "norm1.weight", { w }, SHEAF_NORM },
        { "norm1.bias", { w }, SHEAF_NORM },
        { "mlp.fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.fc2.bias", { w }, SHEAF_LINEAR },
        { "norm2.weight", { w }, SHEAF_NORM },
        { "norm2.bias", { w }, SHEAF_NORM },
    };
    return sheaf__rows_add(schema, prefix, i, ROWS(rows));
}

static sheaf_status *add_tower(sheaf_schema *schema)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden;
    const sheaf__tensor_row begin[] = {
        { "cls_token", { 1, 1, w }, SHEAF_OTHER },
        { "pos_embed", { 1, v->positions, w }, SHEAF_OTHER },
        { "patch_embed.proj.weight", { w, v->channels, v->patch, v->patch }, SHEAF_OTHER },
        { "patch_embed.proj.bias", { w }, SHEAF_OTHER },
    };
    const sheaf__tensor_row end[] = {
        { "norm.weight", { w }, SHEAF_NORM },
        { "norm.bias", { w }, SHEAF_NORM },
    };
    sheaf_status *st = sheaf__rows_add(schema, SHEAF__OMNILMM_TOWER, -1, ROWS(begin));
    for (int64_t i = 0; i < v->layers && st == NULL; i++)
        st = add_block(schema, (int)i);
    return st == NULL ? sheaf__rows_add(schema, SHEAF__OMNILMM_TOWER, -1, ROWS(end)) : st;
}

/* Callers may hand in a config they made themselves, not one that was read. */
static sheaf_status *check_config(const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const sheaf_resampler *r = &c->resampler;
    sheaf_status *st = sheaf__rows_sizes(c, 1 << 20);
    if (st != NULL)
        return st;
    const sheaf__tower tower = { .patch = v->patch };
    const bool grid =
        sheaf__patches_along(v->height, &tower) * sheaf__patches_along(v->width, &tower) ==
        c->patches;
    if (v->hidden % v->heads != 0 || c->hidden % r->heads != 0 || !grid)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: vit"),
                              "heads that divide the widths, and an image of as many patches");
    return NULL;
}

sheaf_status *sheaf__omnilmm_rows(sheaf_schema *schema)
{
    sheaf_status *st = check_config(&schema->config);
    TRY(st, sheaf__llama_rows(schema));
    TRY(st, add_tower(schema));
    TRY(st,
        sheaf__resampler_rows(schema, SHEAF__OMNILMM_RESAMPLER, schema->config.vit.hidden, true));
    return st == NULL ? sheaf__schema_sort(schema) : st;
}

/* The tower's last block, which upstream leaves out; its position is beyond those that run. */
bool sheaf__omnilmm_spare(const char *name, const sheaf_config *c)
{
    char *end;
    if (strncmp(name, BLOCKS, sizeof BLOCKS - 1) != 0)
        return false;
    return strtoll(name + sizeof BLOCKS - 1, &end, 10) == c->vit.layers && *end == '.';
}
