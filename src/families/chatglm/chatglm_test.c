/* chatglm_test.c - GLM-4-9B and CogAgent-9B by ChatGLM's names: their sizes as published, keys that
 * are refused, tensors and their cuts, and the text model alone. */
#include "tests/families.h"

#include "families/chatglm/chatglm.h"
#include "schema/schema.h"

/* 13,906,320,896 is what upstream's program counts; the text model alone is worked out by hand: two
 * tables, and of each layer q, k, v with biases, dense, two norms, MLP. */
TEST(test_sizes__as_published)
{
    const int64_t h = 4096, f = 13696,
                  text = 2 * 151552 * h + h + 40 * (4608 * h + 4608 + h * h + 2 * h + 3 * f * h);
    json_t *object = published_object("cogagent-9b");
    for (int vision = 1; vision >= 0; vision--) {
        sheaf_config c;
        sheaf_schema *schema;
        sheaf__tower tower[SHEAF__MOST_TOWERS];
        if (!vision)
            json_object_del(object, "vision_config");
        CHECK_OK(parse_object(&c, object));
        assert_int_equal(c.family, SHEAF_CHATGLM);
        assert_int_equal(sheaf__towers_of(tower, &c), vision);
        assert_int_equal(sheaf__image_positions(&c), vision ? 1602 : 0);
        assert_true((sheaf__pictures_of(&c) != NULL) == vision);
        CHECK_OK(sheaf_schema_new(&schema, &c, 8));
        assert_int_equal(count_numbers(schema, false), vision ? INT64_C(13906320896) : text);
        sheaf_schema_free(schema);
        sheaf_config_release(&c);
    }
    json_decref(object);
}

TEST(test_tensors__parts_of_fused_weights_are_cut_apart)
{
    json_t *object = published_object("cogagent-9b");
    sheaf_config c;
    sheaf_schema *schema;
    CHECK_OK(parse_object(&c, object));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    const sheaf_tensor *qkv = sheaf_schema_find(
        schema, "transformer.encoder.layers.39.self_attention.query_key_value.weight");
    assert_true(qkv != NULL && qkv->shape[0] == 4608 && qkv->cut.nparts == 3);
    assert_true(qkv->cut.part[0].units == 2 && qkv->cut.part[0].rows_per_unit == 2048 &&
                qkv->cut.part[2].units == 2 && qkv->cut.part[2].rows_per_unit == 128);
    const sheaf_tensor *up =
        sheaf_schema_find(schema, "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight");
    assert_true(up != NULL && up->shape[0] == 2 * 13696 && up->cut.nparts == 2);
    const sheaf_tensor *conv = sheaf_schema_find(schema, "transformer.vision.conv.weight");
    assert_true(conv != NULL && conv->shape[0] == 4096 && conv->shape[1] == 1792 &&
                conv->shape[2] == 2);
    const sheaf_tensor *table = sheaf_schema_find(schema, "transformer.rotary_pos_emb.inv_freq");
    assert_true(table != NULL && table->buffer && table->shape[0] == 32);
    assert_true(sheaf__family_chatglm.buffer(table, &c, 0) == 1.0f);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    json_decref(object);
}

TEST(test_config__says_which_key_is_wrong)
{
    static const struct {
        const char *inside, *key, *value; /* value NULL: no such key */
        sheaf_code code;
        const char *part;
    } cases[] = {
        { NULL, "num_layers", NULL, SHEAF_E_FORMAT, "'num_layers'" },
        { NULL, "num_hidden_layers", "39", SHEAF_E_LAYOUT, "'num_hidden_layers'" },
        { NULL, "multi_query_group_num", "3", SHEAF_E_LAYOUT, "'multi_query_group_num'" },
        { NULL, "kv_channels", "126", SHEAF_E_LAYOUT, "'kv_channels'" },
        { NULL, "add_bias_linear", "true", SHEAF_E_UNSUPPORTED, "'add_bias_linear'" },
        { NULL, "rmsnorm", "false", SHEAF_E_UNSUPPORTED, "'rmsnorm'" },
        { NULL, "pre_seq_len", "128", SHEAF_E_UNSUPPORTED, "'pre_seq_len'" },
        { NULL, "quantization_bit", "4", SHEAF_E_UNSUPPORTED, "'quantization_bit'" },
        { NULL, "hidden_dropout", "0.1", SHEAF_E_UNSUPPORTED, "'hidden_dropout'" },
        { NULL, "boi_token_id", NULL, SHEAF_E_FORMAT, "'boi_token_id'" },
        { "vision_config", "scaling_factor", NULL, SHEAF_E_FORMAT,
          "'vision_config.scaling_factor'" },
        { "vision_config", "image_size", "1134", SHEAF_E_LAYOUT, "'vision_config.image_size'" },
        { "vision_config", "num_positions", "6400", SHEAF_E_LAYOUT,
          "'vision_config.num_positions' | 6401" },
        { "vision_config", "hidden_act", "\"quick_gelu\"", SHEAF_E_UNSUPPORTED,
          "'vision_config.hidden_act'" },
        { "vision_config", "dropout_prob", "0.1", SHEAF_E_UNSUPPORTED,
          "'vision_config.dropout_prob'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *object = published_object("cogagent-9b");
        json_t *at = cases[i].inside == NULL ? object : json_object_get(object, cases[i].inside);
        sheaf_config c;
        if (cases[i].value == NULL)
            json_object_del(at, cases[i].key);
        else
            json_object_set_new(at, cases[i].key,
                                json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        CHECK_FAILS(parse_object(&c, object), cases[i].code, cases[i].part);
        json_decref(object);
    }
}
