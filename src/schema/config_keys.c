/* config_keys.c - see config_keys.h. Keys as transformers 4.x and 5.x write them. */
#include "schema/config_keys.h"

#include "base/base.h"
#include "schema/quantization.h"

static const char read_keys[] =
    "architectures attention_bias auto_map bos_token_id dtype eos_token_id head_dim hidden_act "
    "hidden_size initializer_range intermediate_size layer_types max_position_embeddings "
    "max_window_layers mlp_bias model_type num_attention_heads num_experts_per_tok "
    "num_hidden_layers num_key_value_heads original_max_position_embeddings pad_token_id "
    "partial_rotary_factor rms_norm_eps rope_parameters rope_scaling rope_theta sheaf_tokenizer "
    "sliding_window tie_word_embeddings torch_dtype use_sliding_window vocab_size";

/* Settings of generation, of printing, of other tasks, and marks that tools leave behind:
 * the values of logits, losses and gradients do not depend on them. pretraining_tp: the same sums
 * in parts; no longer read. */
static const char harmless_keys[] =
    "_attn_implementation_autoset _attn_implementation_internal _commit_hash "
    "_flash_attn_2_enabled _name_or_path attn_implementation bad_words_ids "
    "begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping "
    "encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task "
    "forced_bos_token_id forced_eos_token_id id2label is_decoder label2id length_penalty "
    "max_length max_sequence_length min_length model_name no_repeat_ngram_size num_beam_groups "
    "num_beams num_return_sequences output_attentions output_hidden_states output_scores prefix "
    "pretraining_tp problem_type remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature "
    "tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torchscript "
    "transformers_version typical_p unk_token_id unsloth_fixed unsloth_version use_bfloat16 "
    "use_cache";

static const sheaf_unsupported_key unsupported_keys[] = {
    { "add_cross_attention", SHEAF_NEUTRAL_ZERO, "adds attention to another sequence" },
    { "alibi", SHEAF_NEUTRAL_ZERO, "replaces the rotary embedding" },
    { "attention_dropout", SHEAF_NEUTRAL_ZERO, "drops attention weights in training" },
    { "attention_multiplier", SHEAF_NEUTRAL_NULL, "scales attention" },
    { "attn_logit_softcapping", SHEAF_NEUTRAL_NULL, "caps attention scores" },
    { "chunk_size_feed_forward", SHEAF_NEUTRAL_ZERO, "cuts the MLP along the sequence" },
    { "clip_qkv", SHEAF_NEUTRAL_NULL, "clips queries, keys and values" },
    { "compression_config", SHEAF_NEUTRAL_NULL, "stores compressed weights" },
    { "cross_attention_hidden_size", SHEAF_NEUTRAL_NULL, "adds attention to another sequence" },
    { "embd_pdrop", SHEAF_NEUTRAL_ZERO, "drops embedding values in training" },
    { "embedding_multiplier", SHEAF_NEUTRAL_ONE, "scales the embedding" },
    { "final_logit_softcapping", SHEAF_NEUTRAL_NULL, "caps logits" },
    { "hidden_dropout", SHEAF_NEUTRAL_ZERO, "drops hidden values in training" },
    { "hidden_dropout_prob", SHEAF_NEUTRAL_ZERO, "drops hidden values in training" },
    { "is_causal", SHEAF_NEUTRAL_TRUE, "lets tokens see those behind them" },
    { "is_encoder_decoder", SHEAF_NEUTRAL_ZERO, "is another kind of model" },
    { "lm_head_bias", SHEAF_NEUTRAL_ZERO, "adds a bias to logits" },
    { "logit_scale", SHEAF_NEUTRAL_ONE, "scales logits" },
    { "logits_scaling", SHEAF_NEUTRAL_ONE, "scales logits" },
    { "mlp_multiplier", SHEAF_NEUTRAL_ONE, "scales the MLP" },
    { "no_rope_layers", SHEAF_NEUTRAL_EMPTY, "leaves the rotary embedding out of layers" },
    { "num_experts", SHEAF_NEUTRAL_NULL, "is a mixture of experts" },
    { "num_local_experts", SHEAF_NEUTRAL_NULL, "is a mixture of experts" },
    { "pruned_heads", SHEAF_NEUTRAL_EMPTY, "removes attention heads" },
    { "qk_layernorm", SHEAF_NEUTRAL_ZERO, "norms queries and keys" },
    { "quantization_config", SHEAF_NEUTRAL_NULL, "stores quantized weights" },
    { "resid_pdrop", SHEAF_NEUTRAL_ZERO, "drops hidden values in training" },
    { "residual_dropout", SHEAF_NEUTRAL_ZERO, "drops hidden values in training" },
    { "residual_multiplier", SHEAF_NEUTRAL_ONE, "scales each layer's output" },
    { "scale_depth", SHEAF_NEUTRAL_NULL, "scales each layer's output" },
    { "scale_emb", SHEAF_NEUTRAL_ONE, "scales the embedding" },
    { "text_config", SHEAF_NEUTRAL_NULL, "is a model of several parts" },
    { "use_mrope", SHEAF_NEUTRAL_ZERO, "has three-part rotary positions" },
    { "use_qk_norm", SHEAF_NEUTRAL_ZERO, "norms queries and keys" },
    { "vision_config", SHEAF_NEUTRAL_NULL, "is a model of several parts" },
    { NULL },
};

const sheaf__key_lists sheaf__transformers_keys = { NULL, read_keys, harmless_keys,
                                                    unsupported_keys };

static bool is_neutral(sheaf_neutral neutral, const json_t *value)
{
    if (neutral == SHEAF_NEUTRAL_TRUE)
        return json_is_true(value);
    if (json_is_null(value))
        return true;
    switch (neutral) {
    case SHEAF_NEUTRAL_TRUE: break;
    case SHEAF_NEUTRAL_NULL: return false;
    case SHEAF_NEUTRAL_ZERO:
        return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0);
    case SHEAF_NEUTRAL_ONE: return json_is_number(value) && json_number_value(value) == 1;
    case SHEAF_NEUTRAL_EMPTY:
        return json_is_false(value) || (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_array(value) && json_array_size(value) == 0);
    }
    return false;
}

static const char *neutral_text(sheaf_neutral neutral)
{
    static const char *const text[] = { "no such key, or null", "0, false or null", "1 or null",
                                        "nothing in it, or null", "true, or no such key" };
    return text[neutral];
}

static bool listed(const char *list, const char *key)
{
    return list != NULL && sheaf__is_listed(list, key, strlen(key));
}

/* Weights that are quantized in a form that is read are no other model. */
static void check_quantization(sheaf_json_reader *r, const json_t *value)
{
    sheaf__quantization q;
    r->st = sheaf__first_of(r->st, sheaf__quantization_read(&q, value));
}

static void refuse(sheaf_json_reader *r, const sheaf_unsupported_key *u, const json_t *value)
{
    if (strcmp(u->key, "quantization_config") == 0)
        check_quantization(r, value);
    else
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, u->key, "%s: another value %s",
                         neutral_text(u->neutral), u->why);
}

void sheaf__config_keys(sheaf_json_reader *r, const sheaf__key_lists *lists, sheaf_text *unknown)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        const sheaf_unsupported_key *u = lists->unsupported;
        if (listed(lists->own, key))
            continue;
        while (u != NULL && u->key != NULL && strcmp(u->key, key) != 0)
            u++;
        if (u != NULL && u->key != NULL) {
            if (!is_neutral(u->neutral, value))
                refuse(r, u, value);
        } else if (!listed(lists->read, key) && !listed(lists->harmless, key)) {
            sheaf__text_add(unknown, "%s%s%s", unknown->size > 0 ? "," : "",
                            r->inside != NULL ? r->inside : "", key);
        }
    }
}

bool sheaf__config_names(const json_t *object, const char *type, const char *class)
{
    const char *has = json_string_value(json_object_get(object, "model_type"));
    const json_t *classes = json_object_get(object, "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    return (has != NULL && strcmp(has, type) == 0) || (name != NULL && strcmp(name, class) == 0);
}

json_t *sheaf__config_text_object(const json_t *root, const json_t *inner,
                                  const char *const *shared_keys, const char *family)
{
    json_t *out = json_copy((json_t *)(inner != NULL ? inner : root));
    bool failed = out == NULL;
    for (int i = 0; !failed && inner != NULL && shared_keys[i] != NULL; i++) {
        json_t *value = json_object_get(root, shared_keys[i]);
        if (value != NULL && json_object_get(out, shared_keys[i]) == NULL)
            failed = json_object_set(out, shared_keys[i], value) != 0;
    }
    if (!failed) {
        json_object_del(out, "architectures");
        failed = json_object_set_new(out, "model_type", json_string(family)) != 0;
    }
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

void sheaf__config_want_word(sheaf_json_reader *r, const char *key, const char *word)
{
    const char *value = sheaf__json_string(r, key);
    if (r->st == NULL && value != NULL && strcmp(value, word) != 0)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "\"%s\"", word), "\"%.100s\"",
                    value);
}
