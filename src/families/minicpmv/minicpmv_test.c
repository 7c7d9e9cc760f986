/* minicpmv_test.c - MiniCPM-V: configs of its versions as published and with their objects, keys
 * that are refused, tensors and their cuts. */
#include "tests/families.h"

#include "families/minicpmv/minicpmv.h"

#define SIGLIP                                                                                     \
    "\"vision_config\":{\"hidden_size\":1152,\"image_size\":980,\"intermediate_size\":4304,"       \
    "\"model_type\":\"siglip_vision_model\",\"num_attention_heads\":16,\"num_hidden_layers\":27,"  \
    "\"patch_size\":14}"
#define TEXT                                                                                           \
    "\"hidden_size\":128,\"intermediate_size\":192,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"vocab_size\":90"
#define NAVIT                                                                                      \
    "\"vision\":{\"hidden_size\":48,\"image_size\":56,\"intermediate_size\":100,"                  \
    "\"num_attention_heads\":4,\"num_hidden_layers\":3,\"patch_size\":7}"
#define TIMM                                                                                       \
    "\"vision\":{\"img_size\":56,\"patch_size\":14,\"embed_dim\":48,\"depth\":3,\"num_heads\":4,"  \
    "\"mlp_ratio\":2.0"
#define CONSTANTS ",\"scale_emb\":12,\"scale_depth\":1.4,\"dim_model_base\":32"
#define SMALL(version, text, vision)                                                               \
    "{\"model\":\"MiniCPM-V " version " layout\",\"text\":{" TEXT text "}," vision                 \
    ",\"query_num\":9}"
#define SMALL_2_6 SMALL("2.6", ",\"model_type\":\"qwen2\",\"qkv_bias\":true", NAVIT)
#define SMALL_2_0 SMALL("2.0", CONSTANTS, TIMM "}")

static const char *name_of(const void *self, int64_t i)
{
    return ((const sheaf_schema *)self)->tensor[i].name;
}

/* Bytes of the published files over those of a number; 2.6 counted by hand. */
TEST(test_rows__of_the_published_models)
{
    static const struct {
        const char *name, *more;
        int64_t numbers, layers, heads, side;
        bool bias;
    } rows[] = {
        { "minicpmv-2.0", "", 3434965792, 26, 18, 27, false },
        { "minicpmv-2.5", "", 8537092336, 27, 32, 70, false },
        { "minicpmv-2.6", "\"drop_vision_last_layer\":false,", 8099175152, 27, 28, 70, true },
        { "minicpmv-2.6", "", 8099175152 - 15239504, 26, 28, 70, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *text = published_config(rows[i].name, rows[i].more);
        sheaf_schema *schema = parse_schema(text);
        const sheaf_config *c = &schema->config;
        assert_int_equal(c->family, SHEAF_MINICPMV);
        assert_int_equal(count_numbers(schema, true), rows[i].numbers);
        assert_true(c->vit.layers == rows[i].layers && c->vit.ffn == 4304 && c->patches == 1024);
        assert_true(c->vit.positions == rows[i].side * rows[i].side);
        assert_true(c->resampler.heads == rows[i].heads && c->qkv_bias == rows[i].bias &&
                    !c->o_bias && c->window == 0);
        sheaf_schema_free(schema);
        free(text);
    }
}

/* Parameters and tensors of the index of the published files: 849 tensors, 17391790560 bytes. */
TEST(test_rows__of_4_5)
{
    sheaf_config c;
    sheaf_schema *schema;
    CHECK_OK(sheaf_config_read(&c, in_sources("tests/data/configs/minicpmv-4.5.json")));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    assert_int_equal(schema->count, 849);
    assert_int_equal(count_numbers(schema, true), INT64_C(8695895280));
    assert_true(c.minicpmv == SHEAF_MINICPMV_4_5 && c.vit.layers == 27 && !c.qkv_bias &&
                c.head_dim == 128 && c.resampler.heads == 32 && c.patches == 1024);
    assert_null(c.unknown_keys);
    sheaf__picture_form form;
    sheaf__minicpmv_pictures(&form, &c);
    assert_string_equal(form.chat, "qwen3-thoughts");
    assert_string_equal(form.stop, "<|endoftext|>");
    assert_true(form.rows == 64 && form.resolution == 448 && form.slices == 9 && !form.together);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

/* Names by their generation: config, and the tensors of another one. */
TEST(test_rows__of_generations_are_told_apart)
{
#define O_2_6 "\"model_type\":\"minicpmo\",\"architectures\":[\"MiniCPMO\"],\"version\":2.6,"
    static const char *const text[] = { SMALL_2_0,
                                        SMALL("2.5", "", NAVIT),
                                        SMALL_2_6,
                                        SMALL("4.0", "", NAVIT),
                                        SMALL("4.5", "", NAVIT),
                                        "{" O_2_6 TEXT
                                        ",\"query_num\":9,\"resampler_num_heads\":1}" };
    static const char *const title[] = { "MiniCPM-V 2.0", "MiniCPM-V 2.5", "MiniCPM-V 2.6",
                                         "MiniCPM-V 4.0", "MiniCPM-V 4.5", "MiniCPM-o 2.6" };
    enum { N = ARRAY_LEN(text) };
    sheaf_schema *schema[N];
    for (int i = 0; i < N; i++)
        schema[i] = parse_schema(text[i]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            const sheaf__tensor_names names = { name_of, schema[k], schema[k]->count };
            const sheaf__identity is = sheaf__model_by_names(&names);
            /* 2.5 and 4.0 have tensors of the same names, 2.6 and o those of pictures */
            assert_string_equal(is.variant,
                                k == 1 || k == 3 ? "MiniCPM-V 2.5 or 4.0" : title[k == 5 ? 2 : k]);
            assert_int_equal(sheaf__may_be(&is, &schema[i]->config),
                             strcmp(is.variant, title[i]) == 0);
        }
    assert_true(sheaf__is_spare(&schema[5]->config, "apm.conv1.bias"));
    assert_true(sheaf__is_spare(&schema[5]->config, "tts.dvae.coef"));
    assert_true(sheaf__is_spare(&schema[5]->config, "audio_projection_layer.linear1.bias"));
    assert_false(sheaf__is_spare(&schema[5]->config, "llm.model.layers.9.mlp.up_proj.weight"));
    assert_false(sheaf__is_spare(&schema[2]->config, "apm.conv1.bias"));
    for (int i = 0; i < N; i++)
        sheaf_schema_free(schema[i]);
}

TEST(test_config__both_forms)
{
    sheaf_config c;
    CHECK_OK(sheaf_config_read(&c, in_sources("tests/data/configs/minicpmv-2.0.json")));
    assert_int_equal(c.minicpmv, SHEAF_MINICPMV_2_0);
    assert_true(c.scale_emb == 12 && c.scale_depth == 1.4 && c.dim_model_base == 256);
    assert_null(c.unknown_keys);
    sheaf_config_release(&c);
    CHECK_OK(sheaf_config_read(&c, in_sources("tests/data/configs/minicpmv-2.5.json")));
    assert_int_equal(c.minicpmv, SHEAF_MINICPMV_2_5);
    assert_true(c.scale_emb == 1 && c.scale_depth == 0 && c.dim_model_base == 0);
    assert_null(c.unknown_keys);
    sheaf_config_release(&c);
    CHECK_OK(parse_config(&c, SMALL_2_6));
    assert_true(c.minicpmv == SHEAF_MINICPMV_2_6 && c.vit.layers == 3 && c.patches == 64 &&
                c.vit.height == 56 && c.resampler.queries == 9 && c.resampler.heads == 1);
    sheaf_config_release(&c);
    CHECK_OK(parse_config(&c, SMALL_2_0));
    assert_true(c.minicpmv == SHEAF_MINICPMV_2_0 && c.vit.layers == 2 && c.vit.ffn == 96 &&
                c.vit.positions == 16);
    sheaf_config_release(&c);
}

/* Forms in which folders lie on the hub, or were saved again by transformers. */
TEST(test_config__forms_of_published_folders)
{
    static const char llama3[] =
        "\"architectures\":[\"MiniCPMV\"],\"hidden_size\":4096,\"intermediate_size\":14336,\"model_type\":\"minicpmv\","
        "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"query_num\":96,"
        "\"rope_scaling\":null,\"rope_theta\":500000.0,\"vocab_size\":128256,\"use_cache\":false,"
        "\"auto_map\":{\"AutoConfig\":\"configuration_minicpm.MiniCPMVConfig\"},\"_name_or_path\":\"openbmb/x\"";
    static const struct {
        const char *more, *instead;
        sheaf_minicpmv version;
        int64_t blocks;
    } rows[] = {
        { ",\"version\":\"2.5\",\"drop_vision_last_layer\":false," SIGLIP, NULL, SHEAF_MINICPMV_2_5,
          27 },
        { ",\"version\":\"2.5\",\"drop_vision_last_layer\":false", NULL, SHEAF_MINICPMV_2_5, 27 },
        { ",\"version\":2.6", NULL, SHEAF_MINICPMV_2_6, 26 }, /* as upstream's class has them */
        { ",\"version\":\"2.6\",\"vision_config\":{\"_name_or_path\":\"\",\"architectures\":null,\"dtype\":null,"
          "\"chunk_size_feed_forward\":0,\"id2label\":{},\"label2id\":{},\"is_encoder_decoder\":false,\"return_dict\":true,"
          "\"output_attentions\":false,\"output_hidden_states\":false,\"problem_type\":null,\"hidden_size\":1152,"
          "\"image_size\":980,\"intermediate_size\":4304,\"num_attention_heads\":16,\"num_hidden_layers\":27,"
          "\"patch_size\":14}",
          NULL, SHEAF_MINICPMV_2_6, 26 },
        { ",\"scale_emb\":12,\"scale_depth\":1.4,\"dim_model_base\":256,\"im_start_token_id\":101,\"im_end_token_id\":102,"
          "\"slice_start_token_id\":111,\"slice_end_token_id\":112,\"unk_token_id\":0,"
          "\"vision_encoder\":\"vit_so400m_patch14_siglip_384.webli\"",
          "64", SHEAF_MINICPMV_2_0, 26 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        char text[4096];
        snprintf(text, sizeof text, "{%s%s}", llama3, rows[i].more);
        if (rows[i].instead != NULL) /* a square number of queries */
            memcpy(strstr(text, "\"query_num\":96") + 12, rows[i].instead, 2);
        CHECK_OK(parse_config(&c, text));
        assert_true(c.minicpmv == rows[i].version && c.vit.layers == rows[i].blocks &&
                    c.vit.hidden == 1152 && c.vit.ffn == 4304 && c.patches == 1024);
        assert_true(c.vit.positions == (c.minicpmv == SHEAF_MINICPMV_2_0 ? 27 * 27 : 70 * 70));
        assert_null(c.unknown_keys);
        sheaf_config_release(&c);
    }
}

TEST(test_config__keys_that_are_refused)
{
    static const refused_config rows[] = {
        { "{\"version\":4.0,\"version\":2.6}", SHEAF_E_FORMAT, "version" }, /* twice */
        { SMALL("4.6", "", NAVIT), SHEAF_E_UNSUPPORTED,
          "'model' | MiniCPM-V 2.0, 2.5, 2.6, 4.0 or 4.5" },
        { "{\"model_type\":\"minicpmo\",\"version\":4.5}", SHEAF_E_UNSUPPORTED,
          "'version' | 2.6, of MiniCPM-o" },
        { SMALL("4.5", ",\"model_type\":\"qwen2\"", NAVIT), SHEAF_E_LAYOUT,
          "text.model_type' | \"qwen3\", the text model of MiniCPM-V 4.5" },
        { "{\"model_type\":\"minicpmv\",\"version\":2.6,"
          "\"quantization_config\":{\"quant_method\":\"hqq\",\"load_in_4bit\":true}}",
          SHEAF_E_UNSUPPORTED, "openbmb/MiniCPM-V-2_6 (the name without -int4)" },
        { SMALL("2.6", ",\"model_type\":\"llama\"", NAVIT), SHEAF_E_LAYOUT,
          "text.model_type' | \"qwen2\", the text model of MiniCPM-V 2.6" },
        { SMALL("2.6", ",\"qkv_bias\":false", NAVIT), SHEAF_E_LAYOUT, "text.qkv_bias" },
        { SMALL("2.6", CONSTANTS, NAVIT), SHEAF_E_LAYOUT, "text.scale_emb" },
        { SMALL("2.0", "", TIMM "}"), SHEAF_E_FORMAT, "text.scale_emb" },
        { SMALL("2.0", CONSTANTS, NAVIT), SHEAF_E_FORMAT, "vision.depth" },
        { SMALL("2.0", CONSTANTS, TIMM ",\"blocks_present\":1}"), SHEAF_E_LAYOUT,
          "vision.blocks_present" },
        { SMALL("2.0", CONSTANTS, TIMM ",\"act\":\"relu\"}"), SHEAF_E_UNSUPPORTED, "vision.act" },
        { SMALL("2.6", "", TIMM "}"), SHEAF_E_FORMAT, "vision.num_hidden_layers" },
        { SMALL("2.6", "", "\"query\":9"), SHEAF_E_FORMAT, "'vision_config'" },
        { SMALL("2.6", "", NAVIT ",\"sheaf_padding_seen\":true"), SHEAF_E_LAYOUT,
          "sheaf_padding_seen" },
        { SMALL("2.6", "", NAVIT ",\"resampler_num_heads\":3"), SHEAF_E_LAYOUT,
          "'resampler_num_heads'" },
        { SMALL("2.6", ",\"vocab_size\":\"x\"", NAVIT), SHEAF_E_FORMAT, "vocab_size" },
    };
    check_refused(rows, ARRAY_LEN(rows));
}

TEST(test_config__how_pictures_are_sliced)
{
    static const refused_config rows[] = {
#define WITH(keys) SMALL("2.6", "", NAVIT "," keys)
#define INSIDE(keys) WITH("\"slice_config\":{" keys "}")
        { WITH("\"max_slice_nums\":\"9\""), SHEAF_E_FORMAT, "'max_slice_nums'" },
        { WITH("\"max_slice_nums\":0"), SHEAF_E_FORMAT, "'max_slice_nums'" },
        { WITH("\"scale_resolution\":65537"), SHEAF_E_FORMAT, "'scale_resolution'" },
        { WITH("\"slice_mode\":\"no\""), SHEAF_E_FORMAT, "'slice_mode'" },
        { WITH("\"use_image_id\":1"), SHEAF_E_FORMAT, "'use_image_id'" },
        { WITH("\"patch_size\":14"), SHEAF_E_LAYOUT, "'patch_size' | 7, the patch_size of the" },
        { WITH("\"slice_config\":[]"), SHEAF_E_FORMAT, "'slice_config'" },
        { INSIDE("\"max_slice_nums\":-1"), SHEAF_E_FORMAT, "'slice_config.max_slice_nums'" },
        { INSIDE("\"max_slice_nums\":1025"), SHEAF_E_FORMAT, "'slice_config.max_slice_nums'" },
        { INSIDE("\"scale_resolution\":4.5"), SHEAF_E_FORMAT, "'slice_config.scale_resolution'" },
        { WITH("\"scale_resolution\":56,\"slice_config\":{\"scale_resolution\":-1}"),
          SHEAF_E_FORMAT, "'slice_config.scale_resolution'" },
        { INSIDE("\"patch_size\":true"), SHEAF_E_FORMAT, "'slice_config.patch_size'" },
        { INSIDE("\"patch_size\":14"), SHEAF_E_LAYOUT,
          "'slice_config.patch_size' | 7, the patch_size of the tower" },
    };
    check_refused(rows, ARRAY_LEN(rows));
    sheaf_config c;
    CHECK_OK(parse_config(
        &c, INSIDE("\"max_slice_nums\":1024,\"scale_resolution\":56,\"patch_size\":7")));
    sheaf_config_release(&c);
}

TEST(test_rows__cuts)
{
    static const wanted_cut of_2_6[] = {
        { "vpm.encoder.layers.2.self_attn.k_proj.weight", 0, 1, 4, 12 },
        { "vpm.encoder.layers.2.self_attn.k_proj.bias", 0, 1, 4, 12 },
        { "vpm.encoder.layers.0.self_attn.out_proj.weight", 1, 1, 4, 12 },
        { "vpm.encoder.layers.0.mlp.fc1.weight", 0, 1, 100, 1 },
        { "vpm.embeddings.position_embedding.weight", 0, 0, 0, 0 },
        { "resampler.kv_proj.weight", 1, 1, 48, 1 },
        { "llm.model.layers.1.self_attn.v_proj.bias", 0, 1, 2, 32 },
        { "llm.model.embed_tokens.weight", 0, 1, 90, 1 },
        { "llm.lm_head.weight", 0, 1, 90, 1 },
    };
    static const wanted_cut of_2_0[] = {
        { "vpm.blocks.1.attn.qkv.weight", 0, 3, 4, 12 },
        { "vpm.blocks.1.attn.qkv.bias", 0, 3, 4, 12 },
        { "vpm.blocks.1.mlp.fc2.weight", 1, 1, 96, 1 },
        { "resampler.pos_embed", 0, 0, 0, 0 },
    };
    sheaf_schema *schema = parse_schema(SMALL_2_6), *old = parse_schema(SMALL_2_0);
    check_cuts(schema, of_2_6, ARRAY_LEN(of_2_6));
    check_cuts(old, of_2_0, ARRAY_LEN(of_2_0));
    sheaf_schema_free(schema);
    sheaf_schema_free(old);
}

TEST(test_pictures__settings_that_disagree)
{
    static const struct {
        const char *config, *beside, *say;
        int64_t slices, resolution;
    } cases[] = {
        { WITH("\"max_slice_nums\":9"), NULL, NULL, 9, 448 },
        { INSIDE("\"max_slice_nums\":4,\"scale_resolution\":56"),
          "{\"max_slice_nums\":4,\"slice_mode\":true}", NULL, 4, 56 },
        { WITH("\"max_slice_nums\":4,\"slice_config\":{\"max_slice_nums\":2}"), NULL,
          "max_slice_nums 2, of slice_config, counts, not 4 at the top of config.json", 2, 448 },
        { WITH(
              "\"scale_resolution\":112,\"max_slice_nums\":2,\"slice_config\":{\"scale_resolution\":56}"),
          NULL, "scale_resolution 56, of slice_config, counts, not 112 at the top of config.json",
          2, 56 },
        { WITH("\"max_slice_nums\":4,\"slice_mode\":false"),
          "{\"max_slice_nums\":9,\"slice_mode\":true,\"use_image_id\":false}",
          "max_slice_nums 4, of config.json, counts, not 9 of preprocessor_config.json; slice_mode "
          "false counts, not true of preprocessor_config.json; use_image_id true counts, not false "
          "of preprocessor_config.json",
          1, 448 },
        { WITH("\"use_cache\":true"), "{\"max_slice_nums\":3}",
          "max_slice_nums 9, the default, as config.json has none, counts, not 3 of "
          "preprocessor_config.json",
          9, 448 },
        { WITH("\"use_cache\":true"), NULL,
          "max_slice_nums 9, the default, as config.json has none, counts", 9, 448 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_config c;
        sheaf__picture_form form;
        sheaf_text text = { 0 };
        json_t *beside = cases[i].beside == NULL ? NULL : json_loads(cases[i].beside, 0, NULL);
        CHECK_OK(parse_config(&c, cases[i].config));
        sheaf__minicpmv_pictures(&form, &c);
        assert_int_equal(form.slices, cases[i].slices);
        assert_int_equal(form.resolution, cases[i].resolution);
        sheaf__minicpmv_disagree(&text, &c, beside, "preprocessor_config.json");
        if (cases[i].say == NULL)
            assert_int_equal(text.size, 0);
        else
            assert_string_equal(text.at, cases[i].say);
        sheaf__text_release(&text);
        json_decref(beside);
        sheaf_config_release(&c);
    }
}

/* The tower's last block may be in the files where it is dropped. */
TEST(test_rows__of_a_block_that_is_dropped)
{
    sheaf_schema *timm = parse_schema(SMALL_2_0), *all = parse_schema(SMALL_2_6);
    assert_null(sheaf_schema_find(timm, "vpm.blocks.2.attn.qkv.weight"));
    assert_true(sheaf__family_minicpmv.spare("vpm.blocks.2.attn.qkv.weight", &timm->config));
    assert_false(sheaf__family_minicpmv.spare("vpm.blocks.3.attn.qkv.weight", &timm->config));
    assert_false(sheaf__family_minicpmv.spare("vpm.encoder.layers.2.mlp.fc1.bias", &timm->config));
    assert_non_null(sheaf_schema_find(all, "vpm.encoder.layers.2.mlp.fc1.bias"));
    assert_false(sheaf__family_minicpmv.spare("vpm.encoder.layers.3.mlp.fc1.bias", &all->config));
    assert_null(sheaf_schema_find(all, "resampler.pos_embed"));
    assert_true(sheaf_schema_find(timm, "resampler.pos_embed")->buffer);
    sheaf_schema_free(timm);
    sheaf_schema_free(all);
}

/* Upstream's kv_proj is Identity where the tower is as wide as the text model. */
TEST(test_rows__of_a_tower_as_wide_as_the_text)
{
#define WIDE_NAVIT                                                                                 \
    "\"vision\":{\"hidden_size\":128,\"image_size\":56,\"intermediate_size\":100,"                 \
    "\"num_attention_heads\":4,\"num_hidden_layers\":3,\"patch_size\":7}"
#define WIDE_TIMM                                                                                  \
    "\"vision\":{\"img_size\":56,\"patch_size\":14,\"embed_dim\":128,\"depth\":3,\"num_heads\":4," \
    "\"mlp_ratio\":2.0}"
    static const char *const texts[][2] = {
        { SMALL_2_0, SMALL("2.0", CONSTANTS, WIDE_TIMM) },
        { SMALL("2.5", "", NAVIT), SMALL("2.5", "", WIDE_NAVIT) },
        { SMALL_2_6, SMALL("2.6", ",\"model_type\":\"qwen2\",\"qkv_bias\":true", WIDE_NAVIT) },
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        check_lacks(texts[i][1], texts[i][0], "resampler.kv_proj.weight");
}
