/* schema_test.c - names and shapes of recorded models, cuts by hand and against each other. */
#include "tests/check.h"
#include "tests/golden.h"

#include <jansson.h>

#include "schema/schema.h"

/* heads 6 in 3 groups of width 4; vocabulary 11; MLP 10. */
static const sheaf_config small = { .family = SHEAF_LLAMA,
                                    .vocab = 11,
                                    .hidden = 16,
                                    .ffn = 10,
                                    .layers = 2,
                                    .heads = 6,
                                    .kv_heads = 3,
                                    .head_dim = 4,
                                    .qkv_bias = true,
                                    .o_bias = true,
                                    .mlp_bias = true,
                                    .rope = { .theta = 1e4, .partial = 1 } };

static int check_model(const char *config)
{
    const int dir = (int)(strstr(config, "/hf/config.json") - config);
    sheaf_config c;
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf_config_read(&c, config));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    assert_null(schema->config.json);
    json_t *info = json_load_file(textf("%.*s/info.json", dir, config), 0, NULL),
           *params = json_object_get(info, "params"), *shape;
    const char *name;
    assert_int_equal(schema->count, json_object_size(params));
    json_object_foreach(params, name, shape)
    {
        const sheaf_tensor *t = sheaf_schema_find(schema, name);
        if (t == NULL)
            fail_msg("%s: %s is not in the schema", config, name);
        assert_int_equal(t->ndim, json_array_size(shape));
        for (int d = 0; d < t->ndim; d++)
            assert_int_equal(t->shape[d], json_integer_value(json_array_get(shape, (size_t)d)));
        if (t->ndim == 1)
            assert_int_equal(t->shape[1], 1);
    }
    json_decref(info);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    return 1;
}

TEST(test_schema__has_the_tensors_of_every_recorded_model)
{
    assert_true(golden_each("llama/*/hf/config.json", check_model) >= 4);
}

TEST(test_schema__is_in_model_order)
{
    static const char *const want[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.v_proj.bias",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.self_attn.o_proj.bias",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.gate_proj.bias",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.bias",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.mlp.down_proj.bias",
        "model.layers.1.input_layernorm.weight",
    };
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf_schema_new(&schema, &small, 4));
    assert_int_equal(schema->count, 1 + 2 * 16 + 2);
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_string_equal(schema->tensor[i].name, want[i]);
    assert_string_equal(schema->tensor[33].name, "model.norm.weight");
    assert_string_equal(schema->tensor[34].name, "lm_head.weight");
    assert_string_equal(schema->tensor[3].module, "model.layers.0.self_attn.q_proj");
    assert_string_equal(schema->tensor[34].module, "lm_head");
    sheaf_schema_free(schema);
    sheaf_schema_free(NULL);
}

TEST(test_schema__a_tied_head_and_absent_biases_are_absent)
{
    sheaf_config c = small;
    sheaf_schema *schema = NULL;
    c.tied = true;
    c.o_bias = c.mlp_bias = false;
    CHECK_OK(sheaf_schema_new(&schema, &c, 4));
    assert_int_equal(schema->count, 1 + 2 * 12 + 1);
    assert_null(sheaf_schema_get(schema, SHEAF_HEAD, -1, false));
    assert_null(sheaf_schema_find(schema, "lm_head.weight"));
    assert_null(sheaf_schema_get(schema, SHEAF_O, 0, true));
    assert_null(sheaf_schema_get(schema, SHEAF_DOWN, 1, true));
    assert_non_null(sheaf_schema_get(schema, SHEAF_V, 1, true));
    assert_non_null(sheaf_schema_get(schema, SHEAF_NORM_FINAL, -1, false));
    sheaf_schema_free(schema);
}

/* Rows of a slice of a tensor with one part; all of a replicated one. */
static sheaf_range slice_of(const sheaf_tensor *t, int slice)
{
    const int64_t units = t->cut.part[0].units, wide = t->cut.part[0].rows_per_unit,
                  slices = t->cut.slices;
    return t->cut.nparts == 0 ? (sheaf_range){ 0, t->shape[t->cut.axis] }
                              : (sheaf_range){ units * slice / slices * wide,
                                               units * (slice + 1) / slices * wide };
}

/* Cuts worked out by hand from the rule; axis -1 = replicated. */
TEST(test_cuts__by_hand)
{
    static const struct {
        const char *name;
        int axis;
        int64_t units, wide;
        int in, out;
        sheaf_range first, last;
    } rows[] = {
        { "model.embed_tokens.weight", 0, 11, 1, 0, 1, { 0, 2 }, { 8, 11 } },
        { "lm_head.weight", 0, 11, 1, 1, 0, { 0, 2 }, { 8, 11 } },
        { "model.layers.1.self_attn.q_proj.weight", 0, 3, 8, 1, 0, LIST(0, 0),
          LIST(16, 24) }, /* groups of two heads of 4 */
        { "model.layers.1.self_attn.q_proj.bias", 0, 3, 8, -1, -1, { 0, 0 }, { 16, 24 } },
        { "model.layers.1.self_attn.k_proj.weight", 0, 3, 4, 1, 0, { 0, 0 }, { 8, 12 } },
        { "model.layers.1.self_attn.k_proj.bias", 0, 3, 4, -1, -1, { 0, 0 }, { 8, 12 } },
        { "model.layers.1.self_attn.v_proj.weight", 0, 3, 4, 1, 0, { 0, 0 }, { 8, 12 } },
        { "model.layers.1.self_attn.o_proj.weight", 1, 3, 8, 1, 0, { 0, 0 }, { 16, 24 } },
        { "model.layers.1.self_attn.o_proj.bias", -1, 0, 0, -1, -1, { 0, 16 }, { 0, 16 } },
        { "model.layers.1.mlp.gate_proj.weight", 0, 10, 1, 1, 0, { 0, 2 }, { 7, 10 } },
        { "model.layers.1.mlp.up_proj.bias", 0, 10, 1, -1, -1, { 0, 2 }, { 7, 10 } },
        { "model.layers.1.mlp.down_proj.weight", 1, 10, 1, 1, 0, { 0, 2 }, { 7, 10 } },
        { "model.layers.1.mlp.down_proj.bias", -1, 0, 0, -1, -1, { 0, 16 }, { 0, 16 } },
        { "model.layers.0.input_layernorm.weight", -1, 0, 0, -1, -1, { 0, 16 }, { 0, 16 } },
        { "model.norm.weight", -1, 0, 0, -1, -1, { 0, 16 }, { 0, 16 } },
    };
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf_schema_new(&schema, &small, 4));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf_tensor *t = sheaf_schema_find(schema, rows[i].name);
        const sheaf_range first = slice_of(t, 0), last = slice_of(t, 3);
        if (t->cut.nparts != (rows[i].axis >= 0) ||
            (rows[i].axis >= 0 &&
             (t->cut.axis != rows[i].axis || t->cut.part[0].units != rows[i].units ||
              t->cut.part[0].rows_per_unit != rows[i].wide)))
            fail_msg("%s: cut", rows[i].name);
        if (t->in_axis != rows[i].in || t->out_axis != rows[i].out || t->cut.slices != 4)
            fail_msg("%s: axes or slices", rows[i].name);
        if (first.begin != rows[i].first.begin || first.end != rows[i].first.end ||
            last.begin != rows[i].last.begin || last.end != rows[i].last.end)
            fail_msg("%s: slices [%ld, %ld) and [%ld, %ld)", rows[i].name, (long)first.begin,
                     (long)first.end, (long)last.begin, (long)last.end);
    }
    sheaf_schema_free(schema);
}

/* Every cut is sound, agrees with sheaf_cut_rows(), and the slices tile the axis. */
TEST(test_cuts__tile_their_axis_for_every_number_of_slices)
{
    for (int slices = 1; slices <= SHEAF_MAX_SLICES; slices *= 2) {
        sheaf_schema *schema = NULL;
        CHECK_OK(sheaf_schema_new(&schema, &small, slices));
        for (int64_t i = 0; i < schema->count; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            int64_t next = 0;
            if (t->cut.nparts == 0)
                continue;
            CHECK_OK(sheaf_cut_check(&t->cut, t->shape[t->cut.axis]));
            for (int s = 0; s < slices; s++) {
                const sheaf_range rows = slice_of(t, s);
                sheaf_range other;
                CHECK_OK(sheaf_cut_rows(&other, &t->cut, 0, s));
                assert_true(rows.begin == next && rows.begin == other.begin &&
                            rows.end == other.end);
                next = rows.end;
            }
            assert_int_equal(next, t->shape[t->cut.axis]);
        }
        sheaf_schema_free(schema);
    }
}

TEST(test_find__by_name_and_by_role)
{
    static const char *const strangers[] = {
        "",
        "model",
        "model.layers.",
        "model.layers.0",
        "model.layers.2.input_layernorm.weight",
        "model.layers.01.mlp.up_proj.weight",
        "model.layers.+1.mlp.up_proj.weight",
        "model.layers.-1.input_layernorm.weight",
        "model.layers.99999999999.input_layernorm.weight",
        "model.layers.0.input_layernorm.bias",
        "model.norm.bias",
        "lm_head",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.mlp.up_proj.weights",
        "model.layers. 1.mlp.up_proj.weight",
    };
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf_schema_new(&schema, &small, 1));
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        assert_ptr_equal(sheaf_schema_find(schema, t->name), t);
        assert_ptr_equal(sheaf_schema_get(schema, t->role, t->layer, t->bias), t);
    }
    for (size_t i = 0; i < ARRAY_LEN(strangers); i++)
        if (sheaf_schema_find(schema, strangers[i]) != NULL)
            fail_msg("found '%s'", strangers[i]);
    assert_null(sheaf_schema_get(schema, SHEAF_Q, 2, false));
    assert_null(sheaf_schema_get(schema, SHEAF_Q, -1, false));
    assert_null(sheaf_schema_get(schema, SHEAF_EMBED, 0, false));
    sheaf_schema_free(schema);
}

TEST(test_schema__refuses_what_contradicts_itself)
{
    sheaf_schema *schema = NULL;
    sheaf_config c;
    static const int bad_slices[] = { 0, -1, 3, 6, 65, 128 };
    for (size_t i = 0; i < ARRAY_LEN(bad_slices); i++)
        CHECK_FAILS(sheaf_schema_new(&schema, &small, bad_slices[i]), SHEAF_E_ARG,
                    "a power of two");
#define WITH(field, value, part)                                                                   \
    c = small;                                                                                     \
    c.field = (value);                                                                             \
    CHECK_FAILS(sheaf_schema_new(&schema, &c, 8), SHEAF_E_LAYOUT, part)
    c = small;
    c.head_dim = 2;     /* the least that can be rotated */
    c.rope.partial = 0; /* a config made by hand need not say 1 */
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    sheaf_schema_free(schema);
    schema = NULL;
    WITH(heads, 7, "a multiple of the 3 key/value heads | 7");
    WITH(head_dim, 5, "5 of a head of 5");
    WITH(rope.partial, 0.25, "1 of a head of 4");
    WITH(vocab, 0, "config: vocab | 1 to 2147483647 | 0");
    WITH(hidden, -1, "config: hidden");
    WITH(ffn, 0, "config: ffn");
    WITH(layers, 0, "config: layers");
    WITH(layers, 5000, "config: layers");
    WITH(kv_heads, 0, "config: kv_heads");
    WITH(heads, 0, "config: heads");
    WITH(head_dim, 0, "config: head_dim");
    assert_null(schema);
}

/* A few bytes of a config would take all memory: twelve million tensors. */
TEST(test_schema__refuses_more_tensors_than_any_model_has)
{
    static const char text[] =
        "{\"model_type\":\"mixtral\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":8,"
        "\"num_hidden_layers\":4096,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_local_experts\":1024}";
    sheaf_schema *schema = NULL;
    sheaf_config c = { 0 };
    CHECK_OK(sheaf_config_parse(&c, text, sizeof text - 1));
    CHECK_FAILS(sheaf_schema_new(&schema, &c, 1), SHEAF_E_UNSUPPORTED, "at most 524288 tensors");
    sheaf_config_release(&c);
    assert_null(schema);
}
