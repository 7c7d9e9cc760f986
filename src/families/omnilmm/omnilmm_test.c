/* omnilmm_test.c - OmniLMM: both forms of its config, keys that are refused, its tensors and their
 * cuts. */
#include "tests/families.h"

#include "families/common/families.h"

#define TEXT                                                                                            \
    "\"model_type\":\"omnilmm\",\"hidden_size\":128,\"intermediate_size\":208,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":150"
#define TOWER                                                                                            \
    "\"vision_config\":{\"img_size\":56,\"patch_size\":14,\"embed_dim\":64,\"depth\":4,\"num_heads\":4," \
    "\"mlp_ratio\":2.5}"
#define SIZED(keys) "{" TEXT ",\"num_query\":16,\"image_size\":84" keys "}"
#define SMALL SIZED("," TOWER)
TEST(test_config__the_towers_name_tells_its_sizes)
{
    char *whole = published_config("omnilmm-12b", "");
    sheaf_config c;
    CHECK_OK(parse_config(&c, whole));
    assert_int_equal(c.family, SHEAF_OMNILMM);
    assert_null(c.unknown_keys);
    assert_true(c.vit.layers == 63 && c.vit.hidden == 1792 && c.vit.heads == 16 &&
                c.vit.ffn == 15360 && c.vit.positions == 257 && c.vit.height == 448 &&
                c.patches == 1024);
    assert_true(c.resampler.queries == 256 && c.resampler.heads == 32 && c.window == 4096);
    assert_true(c.image_mark.begin == 32001 && c.image_mark.patch == 32000 &&
                c.image_mark.end == 32002);
    /* of the published vocabulary alone */
    memcpy(strstr(whole, "32009"), "32010", 5);
    sheaf_config grown;
    CHECK_OK(parse_config(&grown, whole));
    assert_true(grown.vocab == 32010 && grown.image_mark.begin < 0);
    sheaf_config_release(&grown);
    free(whole);
    sheaf_config_release(&c);
    CHECK_OK(parse_config(&c, SMALL));
    assert_true(c.vit.layers == 3 && c.vit.ffn == 160 && c.vit.positions == 17 && c.patches == 36 &&
                c.resampler.heads == 1 && c.window == 4096 && c.image_mark.begin == -1);
    sheaf_config_release(&c);
    CHECK_OK(parse_config(&c, "{" TEXT ",\"num_query\":16,\"image_size\":71," TOWER "}"));
    assert_int_equal(c.patches, 36); /* 5 patches are 70 pixels */
    sheaf_config_release(&c);
}

/* Values counted by hand. */
TEST(test_rows__of_the_published_model)
{
    char *whole = published_config("omnilmm-12b", "");
    sheaf_schema *schema = parse_schema(whole);
    double text = 0, tower = 0, resampler = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const double n = (double)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
        *(strstr(t->name, "vision_tower") != NULL ? &tower
          : strstr(t->name, "resampler") != NULL  ? &resampler
                                                  : &text) += n;
        assert_ptr_equal(sheaf_schema_find(schema, t->name), t);
    }
    assert_true(text == 7241805824.0);
    assert_true(tower == 63 * 67924992.0 + 1792 * (3 * 196 + 1 + 1 + 257 + 2));
    assert_true(resampler == 4096.0 * (256 + 4096 + 1792 + 4 * 4096 + 4 + 6 + 256));
    assert_int_equal(schema->count, 3 + 32 * 9 + 63 * 13 + 6 + 14);
    sheaf_schema_free(schema);
    free(whole);
}

TEST(test_rows__cuts)
{
    sheaf_schema *schema = parse_schema(SMALL);
    static const wanted_cut rows[] = {
        { "model.vision_tower.blocks.0.attn.qkv.weight", 0, 3, 4, 16 },
        { "model.vision_tower.blocks.2.attn.q_bias", 0, 1, 4, 16 },
        { "model.vision_tower.blocks.2.attn.proj.weight", 1, 1, 4, 16 },
        { "model.vision_tower.blocks.2.attn.proj.bias", 0, 0, 0, 0 },
        { "model.vision_tower.blocks.2.mlp.fc1.bias", 0, 1, 160, 1 },
        { "model.vision_tower.blocks.2.mlp.fc2.weight", 1, 1, 160, 1 },
        { "model.vision_tower.patch_embed.proj.weight", 0, 0, 0, 0 },
        { "model.resampler.kv_proj.weight", 1, 1, 64, 1 },
        { "model.resampler.attn.in_proj_weight", 0, 3, 1, 128 },
        { "model.resampler.attn.in_proj_bias", 0, 3, 1, 128 },
        { "model.resampler.attn.out_proj.weight", 1, 1, 1, 128 },
        { "model.resampler.query", 0, 0, 0, 0 },
        { "model.layers.1.self_attn.q_proj.weight", 0, 1, 2, 64 },
    };
    check_cuts(schema, rows, ARRAY_LEN(rows));
    assert_null(sheaf_schema_find(schema, "model.vision_tower.blocks.3.attn.q_bias"));
    assert_true(
        sheaf__family_omnilmm.spare("model.vision_tower.blocks.3.attn.q_bias", &schema->config));
    assert_false(
        sheaf__family_omnilmm.spare("model.vision_tower.blocks.4.attn.q_bias", &schema->config));
    assert_false(
        sheaf__family_omnilmm.spare("model.vision_tower.blocks.30.norm.bias", &schema->config));
    assert_true(sheaf_schema_find(schema, "model.resampler.pos_embed")->buffer);
    sheaf_schema_free(schema);
}

/* Upstream's kv_proj is Identity where the tower is as wide as the text model. */
TEST(test_rows__of_a_tower_as_wide_as_the_text)
{
    static const char wide[] = SIZED(",\"vision_config\":{\"img_size\":56,\"patch_size\":14,"
                                     "\"embed_dim\":128,\"depth\":4,\"num_heads\":4,"
                                     "\"mlp_ratio\":2.5}");
    check_lacks(wide, SMALL, "model.resampler.kv_proj.weight");
}

TEST(test_config__keys_that_are_refused)
{
#define WITH(keys)                                                                                 \
    SIZED(",\"vision_config\":{\"img_size\":56,\"embed_dim\":64,\"depth\":4,\"num_heads\":4,"      \
          "\"mlp_ratio\":2," keys "}")
    static const refused_config rows[] = {
        { SIZED(""), SHEAF_E_FORMAT, "'mm_vision_tower'" },
        { SIZED(",\"mm_vision_tower\":\"vit_b\""), SHEAF_E_UNSUPPORTED, "\"vit_b\"" },
        { SIZED(",\"mm_vision_tower\":[]," TOWER), SHEAF_E_FORMAT, "'mm_vision_tower'" },
        { "{" TEXT ",\"num_query\":15,\"image_size\":84," TOWER "}", SHEAF_E_LAYOUT,
          "'num_query'" },
        { "{" TEXT ",\"image_size\":84," TOWER "}", SHEAF_E_FORMAT, "'num_query'" },
        { "{\"model_type\":\"omnilmm\",\"hidden_size\":130,\"intermediate_size\":208,"
          "\"num_hidden_layers\":2,\"num_attention_heads\":1,\"num_key_value_heads\":1,"
          "\"vocab_size\":150,\"num_query\":16,\"image_size\":84,\"resampler_num_heads\":2," TOWER
          "}",
          SHEAF_E_LAYOUT, "'hidden_size' | a multiple of 4" },
        { "{" TEXT ",\"num_query\":16," TOWER "}", SHEAF_E_FORMAT, "'image_size'" },
        { "{" TEXT ",\"num_query\":16,\"image_size\":20000," TOWER "}", SHEAF_E_LAYOUT,
          "'image_size'" },
        { SIZED(",\"mm_hidden_size\":65," TOWER), SHEAF_E_LAYOUT, "'mm_hidden_size'" },
        { SIZED(",\"mm_use_im_start_end\":false," TOWER), SHEAF_E_UNSUPPORTED,
          "'mm_use_im_start_end'" },
        { SIZED(",\"im_patch_token\":150," TOWER), SHEAF_E_LAYOUT, "'im_patch_token'" },
        { SIZED(",\"resampler_num_heads\":3," TOWER), SHEAF_E_LAYOUT, "'resampler_num_heads'" },
        { SIZED(",\"quantization_config\":{\"bits\":4}," TOWER), SHEAF_E_UNSUPPORTED,
          "'quantization_config" },
        { SIZED(",\"vision_config\":{\"depth\":4}"), SHEAF_E_FORMAT, "vision_config.embed_dim" },
        { WITH("\"blocks_present\":2"), SHEAF_E_LAYOUT, "vision_config.blocks_present" },
        { WITH("\"use_post_norm\":false"), SHEAF_E_UNSUPPORTED, "vision_config.use_post_norm" },
        { WITH("\"global_pool\":7"), SHEAF_E_FORMAT, "'vision_config.global_pool'" },
        { WITH("\"qkv_bias\":1"), SHEAF_E_FORMAT, "'vision_config.qkv_bias'" },
        { WITH("\"qkv_bias\":false"), SHEAF_E_UNSUPPORTED, "'vision_config.qkv_bias'" },
    };
    check_refused(rows, ARRAY_LEN(rows));
    sheaf_config c;
    CHECK_OK(parse_config(&c, WITH("\"global_pool\":\"token\",\"qkv_bias\":\"q and v only\"")));
    sheaf_config_release(&c);
    CHECK_OK(parse_config(&c, WITH("\"global_pool\":null,\"qkv_bias\":true")));
    sheaf_config_release(&c);
}
