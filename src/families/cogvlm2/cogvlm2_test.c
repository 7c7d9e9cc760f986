/* cogvlm2_test.c - CogVLM2: its config as published and in small, keys that are refused, tensors
 * and their cuts. */
#include "tests/families.h"

#include "families/cogvlm2/cogvlm2.h"
#include "lora/adapter.h"

#define VISION(hidden, side, ffn, heads, layers, positions)                                        \
    "\"vision_config\":{\"dropout_prob\":0.0,\"hidden_act\":\"gelu\",\"hidden_size\":" hidden      \
    ",\"image_size\":" side ",\"in_channels\":3,\"intermediate_size\":" ffn                        \
    ",\"layer_norm_eps\":1e-06,\"num_heads\":" heads ",\"num_hidden_layers\":" layers              \
    ",\"num_positions\":" positions ",\"patch_size\":14}"
#define SIZES(hidden, ffn, layers, heads, kv, vocab)                                               \
    "\"architectures\":[\"CogVLMForCausalLM\"],\"hidden_size\":" hidden                            \
    ",\"intermediate_size\":" ffn ",\"num_hidden_layers\":" layers                                 \
    ",\"num_attention_heads\":" heads ",\"num_multi_query_heads\":" kv ",\"vocab_size\":" vocab

/* As it was published. */
static const char whole[] = "{" SIZES(
    "4096", "14336", "32", "32", "8",
    "128256") ","
              "\"auto_map\":{\"AutoConfig\":\"configuration_cogvlm.CogVLMConfig\",\"AutoModelForCausalLM\":"
              "\"modeling_cogvlm.CogVLMForCausalLM\"},\"bos_token_id\":128000,\"eos_token_id\":128001,"
              "\"hidden_act\":\"silu\",\"initializer_range\":0.02,\"max_position_embeddings\":8192,"
              "\"pad_token_id\":128002,\"rms_norm_eps\":1e-05,\"template_version\":\"chat\","
              "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.41.0\","
              "\"use_cache\":true," VISION("1792", "1344", "15360", "16", "63", "9217") "}";

/* 15 heads of 6 on 3 key/value heads, 4 x 4 patches. */
#define SMALL SIZES("90", "50", "2", "15", "3", "77")
#define EYE VISION("44", "56", "30", "4", "3", "17")

/* 39,006,214,656 bytes of bfloat16 say the index of the published files: that many numbers in all,
 * the frequencies of 32 layers among them. */
TEST(test_sizes__of_the_released_model)
{
    sheaf_schema *schema = parse_schema(whole);
    const int64_t numbers = count_numbers(schema, true);
    assert_int_equal(2 * numbers, INT64_C(39006214656));
    assert_int_equal(numbers - count_numbers(schema, false), 32 * 64);
    const sheaf_config *c = &schema->config;
    assert_true(c->kv_heads == 8 && c->head_dim == 128 && c->rope.theta == 500000 &&
                c->experts == 32 && c->padding == 128003 && c->patches == 96 * 96);
    assert_int_equal(sheaf__image_rows(c), 48 * 48);
    assert_int_equal(sheaf__image_positions(c), 2306);
    assert_int_equal(sheaf__image_experts(c), 2305);
    assert_int_equal(sheaf__image_id(c), 128002);
    sheaf_schema_free(schema);
}

TEST(test_cuts__by_hand)
{
    static const struct {
        const char *name;
        int axis, parts;
        int64_t rows[3]; /* of each part's first unit */
    } rows[] = {
        { "model.embed_tokens.weight", 0, 1, { 1 } },
        { "model.layers.1.self_attn.rotary_emb.inv_freq", 0, 0, { 0 } },
        { "model.layers.1.self_attn.vision_expert_query_key_value.weight", 0, 3, { 30, 6, 6 } },
        { "model.layers.1.self_attn.vision_expert_query_key_value.bias", 0, 3, { 30, 6, 6 } },
        { "model.layers.0.self_attn.language_expert_query_key_value.weight", 0, 3, { 30, 6, 6 } },
        { "model.layers.0.self_attn.language_expert_dense.weight", 1, 1, { 30 } },
        { "model.layers.0.mlp.vision_mlp.gate_proj.weight", 0, 1, { 1 } },
        { "model.layers.0.mlp.language_mlp.down_proj.weight", 1, 1, { 1 } },
        { "model.layers.1.post_attention_layernorm.weight", 0, 0, { 0 } },
        { "model.vision.conv.weight", 0, 0, { 0 } },
        { "model.vision.transformer.layers.2.attention.query_key_value.bias",
          0,
          3,
          { 11, 11, 11 } },
        { "model.vision.transformer.layers.2.attention.dense.weight", 1, 1, { 11 } },
        { "model.vision.linear_proj.linear_proj.weight", 1, 1, { 1 } },
        { "model.vision.boi", 0, 0, { 0 } },
        { "lm_head.weight", 0, 1, { 1 } },
    };
    sheaf_schema *schema = parse_schema("{" SMALL "," EYE "}");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf_tensor *t = sheaf_schema_find(schema, rows[i].name);
        if (t == NULL || t->cut.nparts != rows[i].parts)
            fail_msg("%s", rows[i].name);
        if (t->cut.nparts == 0)
            continue;
        assert_int_equal(t->cut.axis, rows[i].axis);
        for (int p = 0; p < t->cut.nparts; p++)
            if (t->cut.part[p].rows_per_unit != rows[i].rows[p])
                fail_msg("%s: part %d", rows[i].name, p);
        CHECK_OK(sheaf_cut_check(&t->cut, t->shape[t->cut.axis]));
    }
    assert_null(
        sheaf_schema_find(schema, "model.layers.0.self_attn.language_expert_query_key_value.bias"));
    sheaf_schema_free(schema);
}

TEST(test_config__what_is_refused)
{
    static const refused_config rows[] = {
        { "{" SMALL "}", SHEAF_E_FORMAT,
          "'vision_config' | an object that describes the vision transformer | no such key" },
        { "{" SMALL "," VISION("44", "42", "30", "4", "3", "10") "}", SHEAF_E_LAYOUT,
          "'vision_config.image_size' | a multiple of 28: patches of 14 pixels are joined two by two | 42" },
        { "{" SMALL "," VISION("44", "57", "30", "4", "3", "17") "}", SHEAF_E_LAYOUT,
          "'vision_config.image_size' | a multiple of 28: patches of 14 pixels are joined two by two | 57" },
        { "{" SMALL "," VISION("44", "56", "30", "4", "3", "16") "}", SHEAF_E_LAYOUT,
          "'vision_config.num_positions' | 17: one for each of 4 x 4 patches" },
        { "{" SMALL "," VISION("44", "56", "30", "5", "3", "17") "}", SHEAF_E_LAYOUT,
          "'vision_config.num_heads'" },
        { "{" SIZES("90", "50", "2", "15", "4", "77") "," EYE "}", SHEAF_E_LAYOUT,
          "'num_multi_query_heads' | a number that divides num_attention_heads, 15" },
        { "{" SIZES("91", "50", "2", "15", "3", "77") "," EYE "}", SHEAF_E_LAYOUT,
          "'num_attention_heads'" },
        { "{" SIZES("75", "50", "2", "15", "3", "77") "," EYE "}", SHEAF_E_LAYOUT,
          "'num_attention_heads' | heads of an even width | 5" },
        { "{" SMALL ",\"tie_word_embeddings\":true," EYE "}", SHEAF_E_UNSUPPORTED,
          "'tie_word_embeddings'" },
        { "{" SMALL ",\"hidden_act\":\"gelu\"," EYE "}", SHEAF_E_UNSUPPORTED,
          "'hidden_act' | \"silu\"" },
        { "{" SMALL ",\"pad_token_id\":77," EYE "}", SHEAF_E_LAYOUT,
          "'pad_token_id' | a token id below vocab_size, 77" },
    };
    check_refused(rows, ARRAY_LEN(rows));
}

/* Upstream's code has one rotary embedding and reads no key for it. */
TEST(test_config__keys_that_upstream_does_not_read_are_unknown)
{
    sheaf_config c;
    CHECK_OK(parse_config(&c, "{" SMALL ",\"rope_theta\":1000.0,\"rope_scaling\":null," EYE "}"));
    assert_string_equal(c.unknown_keys, "rope_theta,rope_scaling");
    assert_true(c.rope.theta == 500000);
    sheaf_config_release(&c);
}

/* CogVLM's class has the same name. */
TEST(test_config__which_generation_it_is)
{
    json_t *config = json_loads(whole, 0, NULL);
    assert_true(sheaf__cogvlm2_claims(config));
    json_object_del(config, "num_multi_query_heads");
    assert_false(sheaf__cogvlm2_claims(config));
    json_object_set_new(config, "model_type", json_string("cogvlm2"));
    assert_true(sheaf__cogvlm2_claims(config));
    json_decref(config);
}

/* PEFT takes a name for the end of any module's path, and refuses one that is no layer: the adapter
 * is linear_proj, and its first layer too. */
TEST(test_targets__all_linear_layers_and_nothing_around_them)
{
    sheaf_schema *schema = parse_schema("{" SMALL "," EYE "}");
    sheaf_lora *lora = NULL;
    CHECK_OK(sheaf_lora_resolve(
        &lora, schema, &(sheaf_lora_options){ .rank = 2, .alpha = 4, .all_linear = true }));
    const sheaf_lora_names *targets = &lora->options.targets;
    int inner = 0;
    for (int i = 0; i < targets->n; i++) {
        assert_string_not_equal(targets->list[i], "linear_proj");
        inner += strcmp(targets->list[i], "linear_proj.linear_proj") == 0;
    }
    assert_int_equal(inner, 1);
    assert_int_equal(lora->nmodules, 2 * (4 + 6) + 3 * 4 + 4);
    sheaf_lora_free(lora);
    sheaf_schema_free(schema);
}
