/* rows.c - the tensors of CogVLM2 under the hub's names: those of the text model, each layer's
 * frequencies and both experts, and the tower. Biases are on the visual expert's q, k and v alone.
 */
#include "base/base.h"
#include "families/cogvlm2/cogvlm2.h"
#include "families/common/rows.h"

/* Query heads travel with the key/value head they read: the unit is the whole group. */
static sheaf_status *add_layer(sheaf_schema *schema, int layer)
{
    const sheaf_config *c = &schema->config;
    const int64_t e = c->hidden, f = c->ffn, d = c->head_dim, n = c->kv_heads, q = c->heads * d,
                  qkv = q + 2 * n * d;
    const sheaf_part part[] = { { n, q / n }, { n, d }, { n, d } };
    const sheaf__tensor_row rows[] = {
        { "self_attn.rotary_emb.inv_freq", { d / 2 }, SHEAF_OTHER, .buffer = true },
        { "self_attn.vision_expert_query_key_value.weight",
          { qkv, e },
          SHEAF_LINEAR,
          SHEAF__BY_OUT3,
          .part = part },
        { "self_attn.vision_expert_query_key_value.bias",
          { qkv },
          SHEAF_LINEAR,
          SHEAF__BY_OUT3,
          .part = part },
        { "self_attn.vision_expert_dense.weight", { e, q }, SHEAF_LINEAR, SHEAF__BY_IN, n },
        { "self_attn.language_expert_query_key_value.weight",
          { qkv, e },
          SHEAF_LINEAR,
          SHEAF__BY_OUT3,
          .part = part },
        { "self_attn.language_expert_dense.weight", { e, q }, SHEAF_LINEAR, SHEAF__BY_IN, n },
        { "mlp.language_mlp.gate_proj.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.language_mlp.up_proj.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.language_mlp.down_proj.weight", { e, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.vision_mlp.gate_proj.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.vision_mlp.up_proj.weight", { f, e }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.vision_mlp.down_proj.weight", { e, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "input_layernorm.weight", { e }, SHEAF_NORM_IN },
        { "post_attention_layernorm.weight", { e }, SHEAF_NORM_POST },
    };
    char before[64];
    snprintf(before, sizeof before, "model.layers.%d.", layer);
    return sheaf__rows_add(schema, before, layer, rows, sizeof rows / sizeof *rows);
}

sheaf_status *sheaf__cogvlm2_rows(sheaf_schema *schema)
{
    const sheaf_config *c = &schema->config;
    const int64_t v = c->vocab, e = c->hidden;
    const sheaf__tensor_row table = { "embed_tokens.weight", { v, e }, SHEAF_EMBED, SHEAF__BY_OUT };
    const sheaf__tensor_row norm = { "norm.weight", { e }, SHEAF_NORM_FINAL };
    const sheaf__tensor_row head = { "lm_head.weight", { v, e }, SHEAF_HEAD, SHEAF__BY_OUT };
    sheaf_status *st = sheaf__rows_add(schema, "model.", -1, &table, 1);
    for (int64_t i = 0; i < c->layers; i++)
        TRY(st, add_layer(schema, (int)i));
    TRY(st, sheaf__rows_add(schema, "model.", -1, &norm, 1));
    TRY(st, sheaf__eva_rows(schema, SHEAF__COGVLM2_VISION, c->vit.hidden));
    return TRY(st, sheaf__rows_add(schema, "", -1, &head, 1));
}
