/* eva_clip_rows.c - the tensors of eva_clip.h as the hub's programs of CogVLM2 and GLM-4V name
 * them, in the order of their files; see rows.h. */
#include "base/base.h"
#include "families/common/rows.h"

static sheaf_status *add_layer(sheaf_schema *schema, const char *prefix, int layer)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn;
    const sheaf__tensor_row rows[] = {
        { "input_layernorm.weight", { w }, SHEAF_NORM },
        { "input_layernorm.bias", { w }, SHEAF_NORM },
        { "attention.query_key_value.weight",
          { 3 * w, w },
          SHEAF_LINEAR,
          SHEAF__BY_OUT3,
          v->heads },
        { "attention.query_key_value.bias", { 3 * w }, SHEAF_LINEAR, SHEAF__BY_OUT3, v->heads },
        { "attention.dense.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, v->heads },
        { "attention.dense.bias", { w }, SHEAF_LINEAR },
        { "mlp.fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.fc2.bias", { w }, SHEAF_LINEAR },
        { "post_attention_layernorm.weight", { w }, SHEAF_NORM },
        { "post_attention_layernorm.bias", { w }, SHEAF_NORM },
    };
    char before[96];
    snprintf(before, sizeof before, "%stransformer.layers.%d.", prefix, layer);
    return sheaf__rows_add(schema, before, layer, rows, sizeof rows / sizeof *rows);
}

sheaf_status *sheaf__eva_rows(sheaf_schema *schema, const char *prefix, int64_t joined)
{
    const sheaf_config *c = &schema->config;
    const sheaf_vit *v = &c->vit;
    const int64_t w = v->hidden, e = c->hidden, f = c->ffn;
    const sheaf__tensor_row first[] = {
        { "boi", { 1, 1, e }, SHEAF_OTHER },
        { "eoi", { 1, 1, e }, SHEAF_OTHER },
        { "patch_embedding.cls_embedding", { 1, w }, SHEAF_OTHER },
        { "patch_embedding.proj.weight", { w, v->channels, v->patch, v->patch }, SHEAF_OTHER },
        { "patch_embedding.proj.bias", { w }, SHEAF_OTHER },
        { "patch_embedding.position_embedding.weight", { v->positions, w }, SHEAF_OTHER },
    };
    /* One layer of each rank computes a convolution whole: it is less than a hundredth of the
     * tower. */
    const sheaf__tensor_row last[] = {
        { "linear_proj.linear_proj.weight", { e, joined }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "linear_proj.norm1.weight", { e }, SHEAF_NORM },
        { "linear_proj.norm1.bias", { e }, SHEAF_NORM },
        { "linear_proj.dense_h_to_4h.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "linear_proj.gate_proj.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "linear_proj.dense_4h_to_h.weight", { e, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "conv.weight", { joined, w, 2, 2 }, SHEAF_OTHER },
        { "conv.bias", { joined }, SHEAF_OTHER },
    };
    sheaf_status *st = sheaf__rows_add(schema, prefix, -1, first, sizeof first / sizeof *first);
    for (int64_t i = 0; i < v->layers; i++)
        TRY(st, add_layer(schema, prefix, (int)i));
    return TRY(st, sheaf__rows_add(schema, prefix, -1, last, sizeof last / sizeof *last));
}
