/* text.c - see sheaf__config_text(). */
#include "families/llama/llama.h"
#include "schema/config_text.h"

void sheaf__llama_text(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_whole(t, "intermediate_size", c->ffn);
    sheaf__config_whole(t, "num_hidden_layers", c->layers);
    sheaf__config_whole(t, "num_key_value_heads", c->kv_heads);
    sheaf__config_whole(t, "head_dim", c->head_dim);
    sheaf__config_whole(t, "max_position_embeddings", c->max_position);
    sheaf__config_real(t, "rms_norm_eps", c->rms_eps);
    sheaf__config_yes_no(t, "attention_bias", c->qkv_bias || c->o_bias);
    sheaf__config_yes_no(t, "mlp_bias", c->mlp_bias);
    sheaf__config_yes_no(t, "tie_word_embeddings", c->tied);
    sheaf__config_rope(t, c);
    if (c->local_theta > 0)
        sheaf__config_real(t, "rope_local_base_freq", c->local_theta);
    if (c->query_scalar > 0) {
        sheaf__config_real(t, "query_pre_attn_scalar", c->query_scalar);
        sheaf__config_real(t, "attn_logit_softcapping", c->attention_cap);
        sheaf__config_real(t, "final_logit_softcapping", c->logit_cap);
    }
    sheaf__config_whole(t, "sliding_window", c->window);
    sheaf__config_whole(t, "max_window_layers", c->window_from_layer);
    if (c->mixed > 0) {
        sheaf__config_whole(t, "num_local_experts", c->mixed);
        sheaf__config_whole(t, "num_experts_per_tok", c->chosen);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        if (sheaf__layer_in(c->full_layers, i))
            sheaf__config_whole(t, "layer_types.full_attention", i);
        if (sheaf__layer_in(c->no_rope, i))
            sheaf__config_whole(t, "no_rope_layers.0", i);
    }
}
