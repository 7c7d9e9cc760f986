/* rows.c - the tensors of ChatGLM's GLM-4 and GLM-4V, as the hub's files name them. */
#include "families/chatglm/chatglm.h"
#include "families/common/rows.h"

#include "base/base.h"

static sheaf_status *layer_rows(sheaf_schema *schema, int layer)
{
    const sheaf_config *c = &schema->config;
    const int64_t e = c->hidden, f = c->ffn, d = c->head_dim, n = c->kv_heads, q = c->heads * d,
                  kv = n * d;
    /* Query heads travel with the key/value head they read: the unit is the whole group. */
    const sheaf_part part[] = { { n, q / n }, { n, d }, { n, d } };
    const sheaf__tensor_row rows[] = {
        { "input_layernorm.weight", { e }, SHEAF_NORM_IN },
        { "self_attention.query_key_value.weight",
          { q + 2 * kv, e },
          SHEAF_QKV,
          SHEAF__BY_OUT3,
          .part = part },
        { "self_attention.query_key_value.bias",
          { q + 2 * kv },
          SHEAF_QKV,
          SHEAF__BY_OUT3,
          .part = part },
        { "self_attention.dense.weight", { e, q }, SHEAF_O, SHEAF__BY_IN, n },
        { "post_attention_layernorm.weight", { e }, SHEAF_NORM_POST },
        { "mlp.dense_h_to_4h.weight", { 2 * f, e }, SHEAF_GATE_UP, SHEAF__BY_OUT2 },
        { "mlp.dense_4h_to_h.weight", { e, f }, SHEAF_DOWN, SHEAF__BY_IN },
    };
    char prefix[64];
    snprintf(prefix, sizeof prefix, "transformer.encoder.layers.%d.", layer);
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && st == NULL; i++)
        if (c->qkv_bias || !sheaf__ends_with(rows[i].name, ".bias"))
            st = sheaf__rows_add(schema, prefix, layer, &rows[i], 1);
    return st;
}

sheaf_status *sheaf__chatglm_rows(sheaf_schema *schema)
{
    const sheaf_config *c = &schema->config;
    const int64_t v = c->vocab, e = c->hidden;
    const sheaf__tensor_row begin[] = {
        { "embedding.word_embeddings.weight", { v, e }, SHEAF_EMBED, SHEAF__BY_OUT },
        { "rotary_pos_emb.inv_freq", { c->head_dim / 4 }, SHEAF_OTHER, .buffer = true },
    };
    const sheaf__tensor_row end[] = {
        { "encoder.final_layernorm.weight", { e }, SHEAF_NORM_FINAL },
        { "output_layer.weight", { v, e }, SHEAF_HEAD, SHEAF__BY_OUT },
    };
    sheaf_status *st = sheaf__rows_add(schema, "transformer.", -1, begin, 2);
    for (int64_t i = 0; i < c->layers; i++)
        TRY(st, layer_rows(schema, (int)i));
    TRY(st, sheaf__rows_add(schema, "transformer.", -1, end, 2));
    return st != NULL || c->vit.layers == 0
               ? st
               : sheaf__eva_rows(schema, SHEAF__CHATGLM_VISION, c->hidden);
}
