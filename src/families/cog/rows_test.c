/* rows_test.c - CogVLM and CogAgent: every recorded list of tensors, cuts by hand, keys that
 * are refused. */
#include "tests/families.h"
#include "tests/faults/denied_memory.h"
#include "tests/golden.h"

#include "families/cog/cog.h"
#include "schema/config_text.h"
#include "schema/family.h"

/* The model_config.json that SAT would write for a recorded config.json: {"config",
 * "encoder_override"}. */
static json_t *recorded(const char *dir)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *file = json_load_file(path, 0, NULL), *config = json_object_get(file, "config");
    if (!json_is_object(json_object_get(config, "eva_args"))) {
        json_decref(file);
        return NULL;
    }
    json_incref(config);
    const bool agent = json_object_get(config, "cross_image_pix") != NULL;
    json_object_set_new(config, "model_class",
                        json_string(agent ? "CogAgentModel" : "CogVLMModel"));
    json_t *tower = json_object_get(file, "encoder_override");
    if (json_is_object(tower))
        json_object_set(config, "encoder_override", tower);
    json_decref(file);
    return config;
}

/* The schema of a recorded model, whose config has another value under `key` if that is not NULL.
 */
static sheaf_schema *schema_with(const char *model, int slices, const char *key, json_t *value)
{
    json_t *config = recorded(golden(model));
    sheaf_config c;
    sheaf_schema *schema = NULL;
    assert_non_null(config);
    if (key != NULL)
        json_object_set_new(config, key, value);
    CHECK_OK(parse_object(&c, config));
    CHECK_OK(sheaf_schema_new(&schema, &c, slices));
    sheaf_config_release(&c);
    json_decref(config);
    return schema;
}

static void check_list(const char *dir, const sheaf_schema *schema)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/parameters.json", dir);
    json_t *list = json_load_file(path, 0, NULL);
    assert_true(json_is_array(list));
    assert_int_equal(schema->count, json_array_size(list));
    for (int64_t i = 0; i < schema->count; i++) {
        const json_t *row = json_array_get(list, (size_t)i), *shape = json_array_get(row, 1);
        const sheaf_tensor *t = &schema->tensor[i];
        assert_string_equal(t->name, json_string_value(json_array_get(row, 0)));
        assert_ptr_equal(sheaf_schema_find(schema, t->name), t);
        assert_int_equal(t->ndim, json_array_size(shape));
        for (int d = 0; d < 4; d++)
            if (t->shape[d] !=
                (d < t->ndim ? json_integer_value(json_array_get(shape, (size_t)d)) : 1))
                fail_msg("%s: axis %d is %lld", t->name, d, (long long)t->shape[d]);
        if (t->buffer != (strcmp(json_string_value(json_array_get(row, 2)), "buffer") == 0))
            fail_msg("%s: buffer", t->name);
        if (t->sat_split != json_is_true(json_array_get(row, 3)))
            fail_msg("%s: split", t->name);
        if (t->sat_split && t->cut.nparts == 0)
            fail_msg("%s: SAT divides it and there is no cut", t->name);
        sheaf_sat_rule rule;
        assert_true(sheaf__sat_rule_of(&rule, t->name));
        const bool split = rule.table ? t->shape[0] >= 1000 : rule.parts > 0;
        if (split != t->sat_split || rule.buffer != t->buffer ||
            (split && (rule.axis != t->cut.axis || rule.parts != t->cut.nparts)))
            fail_msg("%s: the rule of its name", t->name);
        /* Wide layers are divided in training whether SAT divides them or not. */
        if (t->role == SHEAF_LINEAR && !t->bias && strstr(t->name, "model.head.") == NULL &&
            t->cut.nparts == 0)
            fail_msg("%s: not cut", t->name);
    }
    json_decref(list);
}

static int check_recorded(const char *dir)
{
    json_t *config = recorded(dir);
    sheaf_config c;
    sheaf_schema *schema = NULL;
    if (config == NULL)
        return 0;
    CHECK_OK(parse_object(&c, config));
    assert_null(c.unknown_keys);
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    check_list(dir, schema);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    json_decref(config);
    return 1;
}

TEST(test_schema__is_every_recorded_list)
{
    assert_true(golden_each("*/", check_recorded) >= 2);
}

/* Hidden 32 in 8 heads of 4, cross 8 heads of 6, MLP 64, vocabulary 1000, ViT 16 in 8 heads:
 * golden/cogagent. */
TEST(test_cuts__by_hand)
{
    static const struct {
        const char *name;
        int axis, parts;
        int64_t units, wide;
        int in, out;
    } rows[] = {
        { "transformer.word_embeddings.weight", 0, 1, 1000, 1, 0, 1 },
        { "mixins.lm.lm_head.weight", 0, 1, 1000, 1, 1, 0 },
        { "transformer.layers.1.attention.query_key_value.weight", 0, 3, 8, 4, 1, 0 },
        { "transformer.layers.1.attention.dense.weight", 1, 1, 8, 4, 1, 0 },
        { "transformer.layers.1.cross_attention.query.weight", 0, 1, 8, 6, 1, 0 },
        { "transformer.layers.1.cross_attention.key_value.weight", 0, 2, 8, 6, 1, 0 },
        { "transformer.layers.1.cross_attention.dense.weight", 1, 1, 8, 6, 1, 0 },
        { "transformer.layers.1.mlp.dense_h_to_4h.weight", 0, 1, 64, 1, 1, 0 },
        { "transformer.layers.1.mlp.dense_4h_to_h.weight", 1, 1, 64, 1, 1, 0 },
        { "mixins.rotary.vision_query_key_value_list.0.weight", 0, 3, 8, 4, 1, 0 },
        { "mixins.mlp.vision_gate_proj.1.weight", 0, 1, 64, 1, 1, 0 },
        { "mixins.eva.vit_model.transformer.layers.0.attention.query_key_value.weight", 0, 3, 8, 2,
          1, 0 },
        { "mixins.eva.vit_model.transformer.layers.0.attention.query_key_value.bias", 0, 3, 8, 2,
          -1, -1 },
        { "mixins.eva.vit_model.transformer.layers.0.attention.dense.bias", 0, 0, 0, 0, -1, -1 },
        { "mixins.eva.vit_model.transformer.word_embeddings.weight", 0, 0, 0, 0, -1, -1 },
        { "mixins.eva.linear_proj.gate_proj.weight", 0, 1, 64, 1, 1, 0 },
        { "mixins.eva.linear_proj.linear_proj.weight", 1, 1, 16, 1, 1, 0 },
        { "mixins.encoder.vit.model.patch_embed.proj.weight", 0, 0, 0, 0, -1, -1 },
        { "mixins.encoder.vit.model.blocks.0.attn.q_proj.weight", 0, 1, 2, 8, 1, 0 },
        { "mixins.encoder.vit.model.blocks.0.attn.v_bias", 0, 1, 2, 8, -1, -1 },
        { "mixins.encoder.vit.model.blocks.0.attn.inner_attn_ln.bias", 0, 1, 2, 8, -1, -1 },
        { "mixins.encoder.vit.model.blocks.0.attn.proj.weight", 1, 1, 2, 8, 1, 0 },
        { "mixins.encoder.vit.model.blocks.2.mlp.w1.weight", 0, 1, 42, 1, 1, 0 },
        { "mixins.encoder.vit.model.blocks.2.mlp.ffn_ln.weight", 0, 1, 42, 1, -1, -1 },
        { "mixins.encoder.vit.model.blocks.2.mlp.w3.weight", 1, 1, 42, 1, 1, 0 },
    };
    sheaf_schema *schema = schema_with("cogagent", 8, NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf_tensor *t = sheaf_schema_find(schema, rows[i].name);
        if (t == NULL || t->cut.nparts != rows[i].parts || t->in_axis != rows[i].in ||
            t->out_axis != rows[i].out)
            fail_msg("%s", rows[i].name);
        if (t->cut.nparts == 0)
            continue;
        if (t->cut.axis != rows[i].axis || t->cut.part[0].units != rows[i].units ||
            t->cut.part[0].rows_per_unit != rows[i].wide)
            fail_msg("%s: cut", rows[i].name);
        for (int p = 1; p < t->cut.nparts; p++)
            assert_memory_equal(&t->cut.part[p], &t->cut.part[0], sizeof t->cut.part[0]);
        CHECK_OK(sheaf_cut_check(&t->cut, t->shape[t->cut.axis]));
    }
    assert_ptr_equal(sheaf_schema_get(schema, SHEAF_EMBED, -1, false),
                     sheaf_schema_find(schema, rows[0].name));
    assert_string_equal(sheaf_schema_get(schema, SHEAF_NORM_IN, 1, false)->name,
                        "transformer.layers.1.input_layernorm.weight");
    assert_null(sheaf_schema_find(schema, "transformer.layers.2.input_layernorm.weight"));
    assert_null(sheaf_schema_find(schema, ""));
    assert_string_equal(sheaf_schema_find(schema, rows[12].name)->module,
                        "mixins.eva.vit_model.transformer.layers.0.attention.query_key_value");
    assert_true(sheaf_schema_find(schema, rows[12].name)->bias);
    sheaf_schema_free(schema);
}

TEST(test_rules__know_names_and_no_others)
{
    static const char *const strangers[] = {
        "",
        "transformer.layers..input_layernorm.weight",
        "transformer.layers.01.input_layernorm.weight",
        "transformer.layers.1.input_layernorm.weights",
        "transformer.layers.1.attention.dense.original.weight",
        "transformer.layers.-1.input_layernorm.weight",
        "transformer.layers.1234567890.input_layernorm.weight",
        "transformer.layers.#.input_layernorm.weight",
        "mixins.encoder",
        "model.norm.weight",
    };
    sheaf_sat_rule rule;
    for (size_t i = 0; i < ARRAY_LEN(strangers); i++)
        if (sheaf__sat_rule_of(&rule, strangers[i]))
            fail_msg("'%s' is known", strangers[i]);
    assert_true(sheaf__sat_rule_of(&rule, "mixins.eva.pos_embed") && rule.tower && !rule.cross &&
                rule.parts == 0);
    assert_true(
        sheaf__sat_rule_of(&rule, "mixins.encoder.vit.model.blocks.22.attn.rope.freqs_cos") &&
        rule.tower && rule.buffer);
    assert_true(
        sheaf__sat_rule_of(&rule, "transformer.layers.31.cross_attention.key_value.weight") &&
        rule.cross && !rule.tower && rule.parts == 2 && rule.axis == 0);
    assert_true(sheaf__sat_rule_of(&rule, "mixins.mlp.vision_dense_4h_to_h_list.0.weight") &&
                rule.axis == 1 && !rule.tower);
}

/* The hub's form of a model has the same parameters under other names, one to one, and becomes
 * SAT's again. */
static void check_hub(const sheaf_config *c, const sheaf_schema *sat, int64_t want)
{
    char *text = NULL, *again = NULL, *wanted = NULL, *got = NULL;
    sheaf_config hub, back;
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf__cog_hub_form(&text, c->json, c));
    CHECK_OK(sheaf_config_parse(&hub, text, strlen(text)));
    assert_null(hub.unknown_keys);
    assert_true(sheaf__cog_is_hub(&hub) && sheaf__cog_is_agent(&hub) == sheaf__cog_is_agent(c));
    CHECK_OK(sheaf_schema_new(&schema, &hub, 8));
    assert_int_equal(count_numbers(schema, false), want);
    for (int64_t t = 0; t < schema->count; t++) {
        char name[SHEAF__SPELLED];
        assert_true(sheaf__respell(name, sheaf__cog_names, true, schema->tensor[t].name, 0));
        const sheaf_tensor *is = sheaf_schema_find(sat, name);
        if (is == NULL || is->buffer != schema->tensor[t].buffer ||
            memcmp(is->shape, schema->tensor[t].shape, sizeof is->shape) != 0 ||
            memcmp(&is->cut, &schema->tensor[t].cut, sizeof is->cut) != 0)
            fail_msg("%s: not as %s", schema->tensor[t].name, name);
    }
    CHECK_OK(sheaf__cog_sat_form(&again, hub.json, &hub));
    CHECK_OK(sheaf_config_parse(&back, again, strlen(again)));
    CHECK_OK(sheaf__config_text(&wanted, c));
    CHECK_OK(sheaf__config_text(&got, &back));
    assert_string_equal(got, wanted);
    sheaf_schema_free(schema);
    sheaf_config_release(&hub);
    sheaf_config_release(&back);
    free(text);
    free(again);
    free(wanted);
    free(got);
}

TEST(test_names__of_the_hub_and_back)
{
    static const struct {
        const char *sat, *hub;
        bool back;
    } rows[] = {
        { "mixins.lm.lm_head.weight", "lm_head.weight", true },
        { "mixins.eva.boi", "model.vision.boi", true },
        { "mixins.eva.linear_proj.norm1.bias", "model.vision.linear_proj.norm1.bias", true },
        { "mixins.eva.vit_model.transformer.word_embeddings.weight",
          "model.vision.patch_embedding.cls_embedding", true },
        { "mixins.eva.vit_model.transformer.layers.12.mlp.dense_4h_to_h.bias",
          "model.vision.transformer.layers.12.mlp.fc2.bias", true },
        { "mixins.rotary.vision_dense_list.31.weight",
          "model.layers.31.self_attn.vision_expert_dense.weight", true },
        { "transformer.layers.7.cross_attention.key_value.weight",
          "model.layers.7.cross_attn.key_value.weight", true },
        { "transformer.layers.7.post_cross_attention_layernorm.weight",
          "model.layers.7.post_cross_attention_layernorm.weight", true },
        { "mixins.rotary.rotary_emb.inv_freq", "model.layers.0.self_attn.rotary_emb.inv_freq",
          true },
        { "mixins.encoder.vit.model.blocks.3.attn.rope.freqs_cos",
          "model.cross_vision.vit.model.rope.freqs_cos", false },
    };
    char name[SHEAF__SPELLED];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_true(sheaf__respell(name, sheaf__cog_names, false, rows[i].sat, 0));
        assert_string_equal(name, rows[i].hub);
        assert_true(sheaf__respell(name, sheaf__cog_names, true, rows[i].hub, 0));
        assert_int_equal(strcmp(name, rows[i].sat) == 0, rows[i].back);
    }
    assert_true(sheaf__respell(name, sheaf__cog_names, false, rows[8].sat, 5));
    assert_string_equal(name, "model.layers.5.self_attn.rotary_emb.inv_freq");
    assert_false(sheaf__respell(name, sheaf__cog_names, false, "transformer.layers.x.mlp", 0));
    assert_string_equal(name, "transformer.layers.x.mlp");
}

TEST(test_sizes__of_the_released_models)
{
    /* 17,637,948,928 parameters for CogVLM 224, 18,291,033,280 for CogAgent, as counted by
     * upstream's users. */
    static const int64_t want[2] = { 17637948928, 18291033280 };
    for (int i = 0; i < 2; i++) {
        sheaf_config c;
        sheaf_schema *schema = NULL;
        json_t *config = published_object(i == 0 ? "cogvlm-224" : "cogagent-1120");
        if (i == 1)
            json_object_set_new(config, "model_class", json_string("FineTuneTestCogAgentModel"));
        json_object_set_new(config, "pad_token_id", json_integer(32000));
        CHECK_OK(parse_object(&c, config));
        json_decref(config);
        CHECK_OK(sheaf_schema_new(&schema, &c, 8));
        assert_int_equal(count_numbers(schema, false), want[i]);
        assert_int_equal(c.pad, 0); /* outside the table */
        assert_string_equal(sheaf_family_name(c.family), i == 0 ? "cogvlm" : "cogagent");
        check_hub(&c, schema, want[i]);
        sheaf_schema_free(schema);
        sheaf_config_release(&c);
    }
}

/* As published, but for the names of the repositories. */
TEST(test_sizes__of_the_hubs_configs)
{
    static const struct {
        const char *name;
        int64_t pixels, parameters;
    } rows[] = {
        { "cogvlm-chat-hf", 490, 17639685376 },
        { "cogvlm-chat-hf", 224, 17637948928 },
        { "cogagent-chat-hf", 224, 18291033280 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        sheaf_schema *schema = NULL;
        json_t *config = published_object(rows[i].name),
               *vision = json_object_get(config, "vision_config");
        const int64_t side = rows[i].pixels / 14;
        json_object_set_new(vision, "image_size", json_integer(rows[i].pixels));
        json_object_set_new(vision, "num_positions", json_integer(side * side + 1));
        CHECK_OK(parse_object(&c, config));
        assert_null(c.unknown_keys);
        CHECK_OK(sheaf_schema_new(&schema, &c, 8));
        assert_int_equal(count_numbers(schema, false), rows[i].parameters);
        sheaf_schema_free(schema);
        sheaf_config_release(&c);
        json_decref(config);
    }
}

/* A change of a config, or of an object in it, that is refused. */
typedef struct refusal {
    const char *object, *change;
    sheaf_code code;
    const char *part;
} refusal;

/* Takes over `config`. */
static void check_change_refused(json_t *config, const refusal *row)
{
    json_t *change = json_loads(row->change, 0, NULL);
    sheaf_config c;
    json_object_update(row->object == NULL ? config : json_object_get(config, row->object), change);
    CHECK_FAILS(parse_object(&c, config), row->code, row->part);
    json_decref(config);
    json_decref(change);
}

TEST(test_hub_config__refuses_by_name)
{
    static const refusal rows[] = {
        { NULL, "{\"hidden_act\":\"gelu\"}", SHEAF_E_UNSUPPORTED, "'hidden_act'" },
        { NULL, "{\"tie_word_embeddings\":true}", SHEAF_E_UNSUPPORTED, "'tie_word_embeddings'" },
        { NULL, "{\"num_attention_heads\":31}", SHEAF_E_LAYOUT, "'hidden_size'" },
        { NULL, "{\"cross_image_size\":1121}", SHEAF_E_LAYOUT, "'cross_image_size'" },
        { NULL, "{\"cross_compute_hidden_size\":1000}", SHEAF_E_LAYOUT,
          "'cross_compute_hidden_size'" },
        { NULL, "{\"num_multi_query_heads\":8}", SHEAF_E_UNSUPPORTED, "CogVLM2" },
        { NULL, "{\"vision_config\":null}", SHEAF_E_FORMAT, "'vision_config'" },
        { NULL, "{\"pad_token_id\":32000}", SHEAF_E_LAYOUT, "'pad_token_id'" },
        { "vision_config", "{\"num_positions\":258}", SHEAF_E_LAYOUT,
          "'vision_config.num_positions'" },
        { "vision_config", "{\"image_size\":225}", SHEAF_E_LAYOUT, "'vision_config.image_size'" },
        { "vision_config", "{\"hidden_act\":\"silu\"}", SHEAF_E_UNSUPPORTED,
          "'vision_config.hidden_act'" },
        { "vision_config", "{\"dropout_prob\":0.1}", SHEAF_E_UNSUPPORTED,
          "'vision_config.dropout_prob'" },
        { "vision_config", "{\"layer_norm_eps\":null}", SHEAF_E_FORMAT,
          "'vision_config.layer_norm_eps'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_change_refused(published_object("cogagent-chat-hf"), &rows[i]);
}

TEST(test_small_tables__are_whole_in_files_and_cut_in_training)
{
    sheaf_schema *schema = schema_with("cogvlm", 4, "vocab_size", json_integer(999));
    const sheaf_tensor *table = sheaf_schema_get(schema, SHEAF_EMBED, -1, false),
                       *head = sheaf_schema_get(schema, SHEAF_HEAD, -1, false);
    assert_true(!table->sat_split && table->cut.nparts == 1 && head->sat_split);
    sheaf_schema_free(schema);
}

TEST(test_experts__are_in_the_first_32_layers)
{
    sheaf_schema *schema = schema_with("cogvlm", 8, "num_layers", json_integer(40));
    assert_non_null(sheaf_schema_find(schema, "mixins.mlp.gate_proj.39.weight"));
    assert_non_null(sheaf_schema_find(schema, "mixins.mlp.vision_gate_proj.31.weight"));
    assert_null(sheaf_schema_find(schema, "mixins.mlp.vision_gate_proj.32.weight"));
    sheaf_schema_free(schema);
}

TEST(test_cross_attention__is_where_is_decoder_says_so)
{
    sheaf_schema *schema = schema_with("cogagent", 8, "is_decoder", json_pack("[b, b]", 0, 1));
    assert_null(sheaf_schema_find(schema, "transformer.layers.0.cross_attention.query.weight"));
    assert_non_null(sheaf_schema_find(schema, "transformer.layers.1.cross_attention.query.weight"));
    sheaf_schema_free(schema);
}

/* Beyond the 64 layers of one word of bits. */
TEST(test_cross_attention__of_many_layers)
{
    enum { LAYERS = 70 };
    json_t *config = recorded(golden("cogagent")), *list = json_array();
    sheaf_config c;
    for (int i = 0; i < LAYERS; i++)
        json_array_append_new(list, json_boolean(i % 3 == 1));
    json_object_set_new(config, "num_layers", json_integer(LAYERS));
    json_object_set_new(config, "is_decoder", list);
    CHECK_OK(parse_object(&c, config));
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(c.cross_layers[i / 64] >> i % 64 & 1, i % 3 == 1);
    sheaf_config_release(&c);
    json_decref(config);
}

/* SAT writes 32000 for a tokenizer without one, which is no row of a table of 32000. */
TEST(test_config__a_pad_token_outside_the_table_is_0)
{
    json_t *config = recorded(golden("cogvlm"));
    const int64_t vocab = json_integer_value(json_object_get(config, "vocab_size"));
    for (int64_t pad = vocab - 1; pad <= vocab + 1; pad++) {
        sheaf_config c;
        json_object_set_new(config, "pad_token_id", json_integer(pad));
        CHECK_OK(parse_object(&c, config));
        assert_int_equal(c.pad, pad < vocab ? pad : 0);
        sheaf_config_release(&c);
    }
    json_decref(config);
}

TEST(test_config__refuses_by_name)
{
    static const refusal rows[] = {
        { NULL, "{\"model_class\":\"CogVLModel\"}", SHEAF_E_UNSUPPORTED,
          "| \"CogVLMModel\", if that was meant, in the config" },
        { NULL, "{\"model_class\":\"CogVLM2Model\"}", SHEAF_E_UNSUPPORTED, "\"CogVLM2Model\"" },
        { NULL, "{\"model_class\":null}", SHEAF_E_FORMAT,
          "'model_class' | CogVLMModel or CogAgentModel, or their FineTuneTrain and FineTuneTest classes | null | add \"model_class\": \"CogAgentModel\" to the config, if it is one" },
        { NULL, "{\"model_type\":\"cogvlm\"}", SHEAF_E_LAYOUT,
          "\"cogagent\", as 'model_class' is CogAgentModel" },
        { NULL, "{\"model_type\":\"lama\"}", SHEAF_E_UNSUPPORTED,
          "| \"llama\", if that was meant, in config.json" },
        { NULL, "{\"model_class\":7}", SHEAF_E_FORMAT, "'model_class'" },
        { NULL, "{\"num_layers\":0}", SHEAF_E_FORMAT, "'num_layers'" },
        { NULL, "{\"num_attention_heads\":7}", SHEAF_E_LAYOUT,
          "a number that divides hidden_size" },
        { NULL, "{\"num_attention_heads\":32}", SHEAF_E_LAYOUT, "heads of an even width | 1" },
        { NULL, "{\"use_bias\":true}", SHEAF_E_UNSUPPORTED, "'use_bias'" },
        { NULL, "{\"use_bias\":null}", SHEAF_E_UNSUPPORTED,
          "SAT takes an absent key as the opposite" },
        { NULL, "{\"layernorm_order\":\"sandwich\"}", SHEAF_E_UNSUPPORTED, "\"pre\"" },
        { NULL, "{\"num_multi_query_heads\":4}", SHEAF_E_UNSUPPORTED, "'num_multi_query_heads'" },
        { NULL, "{\"num_experts\":2}", SHEAF_E_UNSUPPORTED, "mixture of experts" },
        { NULL, "{\"use_ptuning\":true}", SHEAF_E_UNSUPPORTED, "'use_ptuning'" },
        { NULL, "{\"encoder_args\":{\"depth\":2}}", SHEAF_E_UNSUPPORTED, "'encoder_args'" },
        { NULL, "{\"is_decoder\":[true]}", SHEAF_E_LAYOUT, "one for each of the 2 layers" },
        { NULL, "{\"is_decoder\":[true,1]}", SHEAF_E_FORMAT, "'is_decoder'" },
        { NULL, "{\"image_length\":25}", SHEAF_E_LAYOUT, "an image of 25 patches" },
        { NULL, "{\"cross_image_pix\":113}", SHEAF_E_LAYOUT, "'cross_image_pix'" },
        { NULL, "{\"eva_args\":null}", SHEAF_E_FORMAT, "'eva_args'" },
        { NULL, "{\"bos_token_id\":1000}", SHEAF_E_LAYOUT, "'bos_token_id'" },
        { "eva_args", "{\"model_class\":\"ViTModel\"}", SHEAF_E_UNSUPPORTED,
          "'eva_args.model_class'" },
        { "eva_args", "{\"use_bias\":false}", SHEAF_E_UNSUPPORTED, "'eva_args.use_bias'" },
        { "eva_args", "{\"use_final_layernorm\":true}", SHEAF_E_UNSUPPORTED,
          "'eva_args.use_final_layernorm'" },
        { "eva_args", "{\"num_attention_heads\":3}", SHEAF_E_LAYOUT,
          "'eva_args.num_attention_heads'" },
        { "eva_args", "{\"image_size\":[56]}", SHEAF_E_LAYOUT, "'eva_args.image_size'" },
        { "eva_args", "{\"pre_len\":2}", SHEAF_E_UNSUPPORTED, "'eva_args.pre_len'" },
        { "encoder_override", "{\"mlp_ratio\":0.01}", SHEAF_E_LAYOUT, "'encoder_override'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_change_refused(recorded(golden("cogagent")), &rows[i]);
}

TEST(test_config__keeps_unknown_keys)
{
    json_t *config = recorded(golden("cogagent"));
    sheaf_config c;
    json_object_set_new(config, "my_note", json_true());
    json_object_set_new(config, "model_type", json_string("cogagent")); /* as convert writes it */
    json_object_set_new(json_object_get(config, "eva_args"), "my_vit_note", json_true());
    CHECK_OK(parse_object(&c, config));
    assert_string_equal(c.unknown_keys, "my_note,eva_args.my_vit_note");
    sheaf_config_release(&c);
    json_decref(config);
}

TEST(test_schema__refuses_a_config_made_wrong)
{
    json_t *config = recorded(golden("cogagent"));
    sheaf_config good, c;
    sheaf_schema *schema = NULL;
    CHECK_OK(parse_object(&good, config));
#define WITH(field, value, part)                                                                   \
    c = good;                                                                                      \
    c.field = (value);                                                                             \
    CHECK_FAILS(sheaf_schema_new(&schema, &c, 8), SHEAF_E_LAYOUT, part)
    WITH(encoder.layers, 0, "config: encoder.layers");
    WITH(encoder.patch, 0, "config: encoder.patch");
    WITH(encoder.image, 113, "config: encoder.image");
    WITH(encoder.ffn, -1, "config: encoder.ffn");
    WITH(cross_width, 23, "whose output cross-attention reads | 23");
    assert_null(schema);
    sheaf_config_release(&good);
    json_decref(config);
}

/* Whichever allocation is denied, the first one too. */
TEST(test_schema__says_that_memory_is_short)
{
    if (!DENIED_MEMORY_WORKS)
        return; /* see tests/faults/denied_memory.h */
    json_t *config = recorded(golden("cogagent"));
    sheaf_config c;
    bool done = false;
    long n = 1;
    CHECK_OK(parse_object(&c, config));
    for (; !done; n++) {
        sheaf_schema *schema = NULL;
        deny_begin(n);
        sheaf_status *st = sheaf_schema_new(&schema, &c, 8);
        const bool told = st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY;
        sheaf_status_free(st);
        sheaf_schema_free(schema);
        deny_end();
        assert_int_equal(atomic_load(&deny_live), 0);
        done = atomic_load(&deny_seen) < n;
        assert_true(told);
    }
    assert_true(n > 100); /* a name for each tensor */
    sheaf_config_release(&c);
    json_decref(config);
}
