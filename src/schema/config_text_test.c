/* config_text_test.c - every key of a config that is read shows in its text; another spelling does
 * not. */
#include "tests/check.h"
#include "tests/golden.h"

#include <jansson.h>

#include "schema/config_text.h"

static char *text_of(const json_t *object)
{
    char *json = json_dumps(object, 0), *text = NULL;
    sheaf_config c;
    sheaf_status *st = sheaf_config_parse(&c, json, strlen(json));
    if (st != NULL)
        fail_msg("%s: %s", json, sheaf_status_where(st));
    CHECK_OK(sheaf__config_text(&text, &c));
    sheaf_config_release(&c);
    free(json);
    return text;
}

static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
    "\"original_max_position_embeddings\":512}}";
static const char qwen2[] =
    "{\"model_type\":\"qwen2\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":2}";

static const char yarn[] =
    "{\"model_type\":\"smollm3\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"use_sliding_window\":true,\"sliding_window\":16,\"no_rope_layers\":[1,0,1,0],\"rope_scaling\":{\"rope_type\":\"yarn\","
    "\"factor\":4.0,\"original_max_position_embeddings\":512,\"mscale\":1.0,\"mscale_all_dim\":1.5}}";
static const char phi3[] =
    "{\"model_type\":\"phi3\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[1,2,3,4]}}";
static const char turning[] = /* the same with the default rotary embedding */
    "{\"model_type\":\"phi3\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8}";

static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4}";
static const char qwen3_moe[] =
    "{\"model_type\":\"qwen3_moe\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"moe_intermediate_size\":24}";
static const char gemma2[] =
    "{\"model_type\":\"gemma2\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4}";
static const char gemma[] =
    "{\"model_type\":\"gemma\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":1}";
static const char gemma3[] =
    "{\"model_type\":\"gemma3_text\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4}";

static const char omnilmm[] =
    "{\"model_type\":\"omnilmm\",\"vocab_size\":300,\"hidden_size\":128,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"num_query\":16,\"image_size\":84,\"vision_config\":{\"img_size\":56,\"patch_size\":14,\"embed_dim\":64,"
    "\"depth\":4,\"num_heads\":4,\"mlp_ratio\":2.5}}";

/* A key, or one inside an object, is given another value. */
static const struct {
    const char *base, *change;
} changed[] = {
    { llama, "{\"model_type\":\"mistral\"}" },
    { llama, "{\"vocab_size\":301}" },
    { llama, "{\"hidden_size\":128}" },
    { llama, "{\"intermediate_size\":97}" },
    { llama, "{\"num_hidden_layers\":5}" },
    { llama, "{\"num_attention_heads\":4}" },
    { llama, "{\"num_key_value_heads\":8}" },
    { llama, "{\"head_dim\":16}" },
    { llama, "{\"rms_norm_eps\":1.0000001e-6}" },
    { llama, "{\"attention_bias\":true}" },
    { llama, "{\"mlp_bias\":true}" },
    { llama, "{\"tie_word_embeddings\":true}" },
    { llama, "{\"rope_theta\":10000.001}" },
    { llama, "{\"max_position_embeddings\":77}" },
    { llama, "{\"bos_token_id\":1}" },
    { llama, "{\"pad_token_id\":1}" },
    { llama, "{\"eos_token_id\":1}" },
    { llama, "{\"eos_token_id\":[1,2]}" },
    { llama, "{\"sheaf_tokenizer\":\"bytes\"}" },
    { llama, "{\"text_processor_version\":\"vqa\"}" },
    { llama, "{\"rope_scaling\":null}" },
    { llama, "{\"rope_scaling\":{\"factor\":9.0}}" },
    { llama, "{\"rope_scaling\":{\"low_freq_factor\":1.5}}" },
    { llama, "{\"rope_scaling\":{\"high_freq_factor\":4.5}}" },
    { llama, "{\"rope_scaling\":{\"original_max_position_embeddings\":513}}" },
    { llama, "{\"rope_scaling\":{\"rope_type\":\"linear\"}}" },
    { llama, "{\"rope_scaling\":{\"rope_type\":\"default\"}}" },
    { qwen2, "{\"sliding_window\":17}" },
    { qwen2, "{\"max_window_layers\":1}" },
    { qwen2, "{\"use_sliding_window\":false}" },
    { qwen2,
      "{\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]}" },
    { qwen2,
      "{\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}" },
    { yarn, "{\"no_rope_layers\":[1,0,1,1]}" },
    { yarn, "{\"use_sliding_window\":false}" },
    { yarn, "{\"rope_scaling\":{\"factor\":5.0}}" },
    { yarn, "{\"rope_scaling\":{\"original_max_position_embeddings\":513}}" },
    { yarn, "{\"rope_scaling\":{\"attention_factor\":1.5}}" },
    { yarn, "{\"rope_scaling\":{\"beta_fast\":31}}" },
    { yarn, "{\"rope_scaling\":{\"beta_slow\":2}}" },
    { yarn, "{\"rope_scaling\":{\"mscale\":1.25}}" },
    { yarn, "{\"rope_scaling\":{\"mscale_all_dim\":1.25}}" },
    { yarn, "{\"rope_scaling\":{\"truncate\":false}}" },
    { yarn, "{\"rope_scaling\":{\"rope_type\":\"dynamic\"}}" },
    { phi3, "{\"rope_scaling\":{\"short_factor\":[1,1,1,1.5]}}" },
    { phi3, "{\"rope_scaling\":{\"long_factor\":[1,2,3,4.5]}}" },
    { phi3, "{\"rope_scaling\":{\"attention_factor\":1.5}}" },
    { turning, "{\"partial_rotary_factor\":0.5}" },
    { phi3, "{\"original_max_position_embeddings\":77}" },
    { mixtral, "{\"num_local_experts\":4}" },
    { mixtral, "{\"num_experts_per_tok\":1}" },
    { qwen3_moe, "{\"num_experts\":64}" },
    { qwen3_moe, "{\"num_local_experts\":64}" },
    { qwen3_moe, "{\"num_experts_per_tok\":7}" },
    { qwen3_moe, "{\"moe_intermediate_size\":25}" },
    { qwen3_moe, "{\"norm_topk_prob\":true}" },
    { qwen3_moe, "{\"output_router_logits\":true}" },
    { qwen3_moe, "{\"decoder_sparse_step\":2}" },
    { qwen3_moe, "{\"mlp_only_layers\":[3]}" },
    { gemma, "{\"head_dim\":64}" },
    { gemma, "{\"tie_word_embeddings\":false}" },
    { gemma2, "{\"query_pre_attn_scalar\":200}" },
    { gemma2, "{\"attn_logit_softcapping\":null}" },
    { gemma2, "{\"final_logit_softcapping\":31}" },
    { gemma3, "{\"final_logit_softcapping\":31}" },
    { gemma3, "{\"rope_local_base_freq\":200}" },
    { gemma3, "{\"sliding_window_pattern\":2}" },
    { omnilmm, "{\"vocab_size\":301}" },
    { omnilmm, "{\"sliding_window\":100}" },
    { omnilmm, "{\"num_query\":25}" },
    { omnilmm, "{\"image_size\":98}" },
    { omnilmm, "{\"resampler_num_heads\":2}" },
    { omnilmm, "{\"resampler_ln_eps\":1e-5}" },
    { omnilmm, "{\"im_start_token\":7}" },
    { omnilmm, "{\"im_patch_token\":7}" },
    { omnilmm, "{\"im_end_token\":7}" },
    { omnilmm, "{\"vision_config\":{\"img_size\":70}}" },
    { omnilmm, "{\"vision_config\":{\"patch_size\":7}}" },
    { omnilmm, "{\"vision_config\":{\"embed_dim\":72}}" },
    { omnilmm, "{\"vision_config\":{\"depth\":5}}" },
    { omnilmm, "{\"vision_config\":{\"num_heads\":2}}" },
    { omnilmm, "{\"vision_config\":{\"mlp_ratio\":3}}" },
    { omnilmm, "{\"vision_config\":{\"in_chans\":4}}" },
    { omnilmm, "{\"vision_config\":{\"layer_norm_eps\":1e-5}}" },
    { NULL, "{\"model_class\":\"CogVLMModel\"}" },
    { NULL, "{\"vocab_size\":400}" },
    { NULL, "{\"inner_hidden_size\":77}" },
    { NULL, "{\"num_layers\":1}" },
    { NULL, "{\"num_attention_heads\":1}" },
    { NULL, "{\"max_sequence_length\":99}" },
    { NULL, "{\"layernorm_epsilon\":1e-4}" },
    { NULL, "{\"cross_hidden_size_per_attention_head\":8}" },
    { NULL, "{\"cross_attn_hidden_size\":8}" },
    { NULL, "{\"is_decoder\":false}" },
    { NULL, "{\"cross_image_pix\":140}" },
    { NULL, "{\"encoder_override\":{\"layers\":4}}" },
    { NULL, "{\"encoder_override\":{\"width\":80}}" },
    { NULL, "{\"encoder_override\":{\"head_width\":4}}" },
    { NULL, "{\"encoder_override\":{\"mlp_ratio\":3.5}}" },
    { NULL, "{\"encoder_override\":{\"embed_dim\":7}}" },
    { NULL, "{\"eva_args\":{\"num_layers\":5}}" },
    { NULL, "{\"eva_args\":{\"num_attention_heads\":1}}" },
    { NULL, "{\"eva_args\":{\"inner_hidden_size\":77}}" },
    { NULL, "{\"eva_args\":{\"vocab_size\":2}}" },
    { NULL, "{\"eva_args\":{\"max_sequence_length\":99}}" },
    { NULL, "{\"eva_args\":{\"layernorm_epsilon\":1e-3}}" },
    { NULL, "{\"eva_args\":{\"in_channels\":4}}" },
    { NULL, "{\"bos_token_id\":7}" },
    { NULL, "{\"pad_token_id\":7}" },
    { NULL, "{\"eos_token_id\":7}" },
    { NULL, "{\"text_processor_version\":\"chat\"}" },
};

static json_t *parsed(const char *text)
{
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);
    if (root == NULL)
        fail_msg("%s: %s", text, error.text);
    return root;
}

/* A sound config of CogAgent, with every key that the rows change. */
static json_t *cogagent(void)
{
    json_error_t error;
    json_t *all = json_load_file(golden("cogagent/config.json"), 0, &error);
    assert_non_null(all);
    json_t *root = json_incref(json_object_get(all, "config"));
    json_object_set_new(root, "model_class", json_string("CogAgentModel"));
    json_object_set_new(root, "is_decoder", json_true());
    json_object_set(root, "encoder_override", json_object_get(all, "encoder_override"));
    json_decref(all);
    return root;
}

static void change(json_t *root, const json_t *changes)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)changes, key, value)
    {
        json_t *there = json_object_get(root, key);
        if (json_is_object(value) && json_is_object(there))
            change(there, value);
        else
            json_object_set(root, key, value);
    }
}

TEST(test_text__every_value_that_is_read_shows)
{
    for (size_t i = 0; i < ARRAY_LEN(changed); i++) {
        json_t *base = changed[i].base == NULL ? cogagent() : parsed(changed[i].base),
               *other = json_deep_copy(base), *what = parsed(changed[i].change);
        change(other, what);
        char *a = text_of(base), *b = text_of(other);
        if (strcmp(a, b) == 0)
            fail_msg("%s does not show in:\n%s", changed[i].change, a);
        free(a);
        free(b);
        json_decref(base);
        json_decref(other);
        json_decref(what);
    }
}

TEST(test_text__another_spelling_does_not)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2",
                                          "tiny_llama3rope" };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char new[100], old[100], *text[2];
        sheaf_config c[2];
        snprintf(new, sizeof new, "llama/%s/hf/config.json", models[i]);
        snprintf(old, sizeof old, "llama/%s/config_4x_style.json", models[i]);
        CHECK_OK(sheaf_config_read(&c[0], golden(new)));
        CHECK_OK(sheaf_config_read(&c[1], golden(old)));
        for (int k = 0; k < 2; k++) {
            CHECK_OK(sheaf__config_text(&text[k], &c[k]));
            sheaf_config_release(&c[k]);
        }
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
    }
    static const char *const alike[] = { "{\"initializer_range\":0.5}",
                                         "{\"torch_dtype\":\"bfloat16\"}",
                                         "{\"transformers_version\":\"9\"}",
                                         "{\"architectures\":[\"LlamaForCausalLM\"]}" };
    for (size_t i = 0; i < ARRAY_LEN(alike); i++) {
        json_t *base = parsed(llama), *other = parsed(llama), *what = parsed(alike[i]);
        change(other, what);
        char *a = text_of(base), *b = text_of(other);
        assert_string_equal(a, b);
        free(a);
        free(b);
        json_decref(base);
        json_decref(other);
        json_decref(what);
    }
}
