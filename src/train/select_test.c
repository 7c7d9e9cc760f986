/* select_test.c - what patterns choose, SAT's rules by hand and by the recorded parameter
 * groups. */
#include "tests/check.h"
#include "tests/golden.h"

#include <jansson.h>

#include "base/json.h"
#include "train/select.h"

static const char llama_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"tie_word_embeddings\": %s}";
/* Small ones, but with 60 layers in the ViT, for SAT's rule. */
#define COG                                                                                                                          \
    "\"num_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, \"vocab_size\": 64, \"layernorm_order\": \"pre\","          \
    " \"model_parallel_size\": 1, \"max_sequence_length\": 64, \"use_bias\": false, \"inner_hidden_size\": 24, \"bos_token_id\": 1," \
    " \"eos_token_id\": 2, \"pad_token_id\": 0, \"image_length\": 4, \"eva_args\": {\"model_class\": \"EVA2CLIPModel\","             \
    " \"num_layers\": 60, \"hidden_size\": 8, \"num_attention_heads\": 2, \"vocab_size\": 1, \"layernorm_order\": \"post\","         \
    " \"model_parallel_size\": 1, \"max_sequence_length\": 5, \"inner_hidden_size\": 12, \"use_final_layernorm\": false,"            \
    " \"layernorm_epsilon\": 1e-6, \"row_parallel_linear_final_bias\": false, \"image_size\": [28, 28], \"pre_len\": 1,"             \
    " \"post_len\": 0, \"in_channels\": 3, \"patch_size\": 14}"
static const char cogvlm_config[] = "{\"model_class\": \"CogVLMModel\", " COG "}";
static const char cogagent_config[] =
    "{\"model_class\": \"CogAgentModel\", " COG
    ", \"is_decoder\": [true, true], \"cross_attn_hidden_size\": 8,"
    " \"cross_hidden_size_per_attention_head\": 4, \"cross_image_pix\": 28, \"encoder_override\": {\"width\": 8, \"layers\": 3,"
    " \"head_width\": 4, \"mlp_ratio\": 2.6667, \"image_size\": 28, \"patch_size\": 14, \"embed_dim\": 6}}";

static sheaf_schema *schema_of(const char *text)
{
    sheaf_config c;
    sheaf_schema *schema = NULL;
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    sheaf_config_release(&c);
    return schema;
}

static sheaf_schema *llama(bool tied)
{
    char text[512];
    snprintf(text, sizeof text, llama_config, tied ? "true" : "false");
    return schema_of(text);
}

/* Notes that were told, for the patterns that a model is too small for. */
static void count_note(void *context, const sheaf_event *event)
{
    *(int *)context += event->kind == SHEAF_EVENT_NOTE;
}

static sheaf_status *choose(sheaf__selection *out, const sheaf_schema *schema, sheaf_method method,
                            const char *train, const char *scale, int *notes)
{
    sheaf_train_options o;
    const sheaf_events events = { count_note, notes };
    sheaf_train_options_default(&o);
    o.method = method;
    o.train = train;
    o.lr_scale = scale;
    return sheaf__select(out, schema, NULL, &o, notes == NULL ? NULL : &events);
}

static int64_t count_of(sheaf__selection *s, const sheaf_schema *schema, const char *part)
{
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++)
        n += sheaf__selected(s, &schema->tensor[i]) && strstr(schema->tensor[i].name, part) != NULL;
    return n;
}

static const struct {
    const char *name;
    const char *config; /* NULL: llama */
    sheaf_method method;
    const char *train;
    int64_t chosen; /* -1: everything that is no buffer */
    const char *all_contain;
} cases[] = {
    { "lora alone trains no base tensor", NULL, SHEAF_METHOD_LORA, NULL, 0, "" },
    { "beside lora", NULL, SHEAF_METHOD_LORA, "*norm.weight,lm_head.weight", 8, "" },
    { "full", NULL, SHEAF_METHOD_FULL, NULL, -1, "" },
    { "the head by itself", NULL, SHEAF_METHOD_HEAD, NULL, 1, "lm_head.weight" },
    { "a range", NULL, SHEAF_METHOD_HEAD, "model.layers.{1..2}.mlp.*_proj.weight", 6, ".mlp." },
    { "numbers in a list with commas", NULL, SHEAF_METHOD_HEAD,
      "*.{0,2}.mlp.up_proj.weight,*.{1}.mlp.down_proj.weight", 3, ".mlp." },
    { "the head of CogVLM", cogvlm_config, SHEAF_METHOD_HEAD, NULL, 1, "mixins.lm.lm_head.weight" },
    { "SAT's rule for CogVLM", cogvlm_config, SHEAF_METHOD_LORA, "*vit*.{46..54}.mlp*", 36,
      ".mlp.dense_" },
    { "buffers are not trained", cogvlm_config, SHEAF_METHOD_HEAD, "*rotary*", 4, "vision_" },
    { "full leaves buffers", cogvlm_config, SHEAF_METHOD_FULL, NULL, -1, "" },
    { "cross-attention with its norm", cogagent_config, SHEAF_METHOD_HEAD, "*cross_attention*", 8,
      "cross_attention" },
    { "the tower without what is not run", cogagent_config, SHEAF_METHOD_HEAD, "*encoder.vit*",
      4 + 2 * 21, "encoder" },
};

TEST(test_select__what_methods_and_patterns_choose)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_schema *schema = cases[i].config == NULL ? llama(false) : schema_of(cases[i].config);
        sheaf__selection s;
        CHECK_OK(choose(&s, schema, cases[i].method, cases[i].train, NULL, NULL));
        int64_t chosen = 0, buffers = 0;
        for (int64_t t = 0; t < schema->count; t++) {
            const bool yes = sheaf__selected(&s, &schema->tensor[t]);
            chosen += yes;
            buffers += schema->tensor[t].buffer;
            if (yes && (schema->tensor[t].buffer ||
                        strstr(schema->tensor[t].name, cases[i].all_contain) == NULL))
                fail_msg("%s: chose %s", cases[i].name, schema->tensor[t].name);
        }
        if (chosen != (cases[i].chosen >= 0 ? cases[i].chosen : schema->count - buffers))
            fail_msg("%s: chose %d tensors", cases[i].name, (int)chosen);
        sheaf__selection_release(&s);
        sheaf_schema_free(schema);
    }
}

TEST(test_select__a_tied_head_is_the_table)
{
    sheaf_schema *schema = llama(true);
    sheaf__selection s;
    CHECK_OK(choose(&s, schema, SHEAF_METHOD_HEAD, NULL, NULL, NULL));
    assert_int_equal(count_of(&s, schema, ""), 1);
    assert_int_equal(count_of(&s, schema, "embed_tokens"), 1);
    sheaf__selection_release(&s);
    sheaf_schema_free(schema);
}

/* A recipe for many layers fits a model with few; a name that no model of the family has does
 * not. */
TEST(test_select__a_range_beyond_the_model_is_told)
{
    sheaf_schema *schema = llama(false);
    sheaf__selection s;
    int notes = 0;
    CHECK_OK(
        choose(&s, schema, SHEAF_METHOD_LORA, "*.{46..54}.mlp*", "*.{46..54}.mlp*=0.1", &notes));
    assert_int_equal(notes, 2);
    assert_int_equal(count_of(&s, schema, ""), 0);
    sheaf__selection_release(&s);
    CHECK_FAILS(choose(&s, schema, SHEAF_METHOD_LORA, "*.{46..54}.nlp*", NULL, &notes), SHEAF_E_ARG,
                "`train`: '*.{46..54}.nlp*'");
    assert_null(s.pattern);
    sheaf_schema_free(schema);
}

static const struct {
    const char *train, *scale, *part;
} bad[] = {
    { "lm_haed.weight", NULL, "did you mean lm_head.weight" },
    { "lm_head.weight,,x", NULL, "nothing between two commas" },
    { "lm_head.weight,", NULL, "nothing between two commas" },
    { "*{2..1}*", NULL, "`train`: pattern" },
    { "*norm*", "*norm*", "PATTERN=X" },
    { "*norm*", "*norm*=", "PATTERN=X" },
    { "*norm*", "=1", "PATTERN=X" },
    { "*norm*", "*norm*=-1", "PATTERN=X" },
    { "*norm*", "*norm*=nan", "PATTERN=X" },
    { "*norm*", "*norm*=1x", "PATTERN=X" },
    { "*norm*", "*norm*=1,", "PATTERN=X" },
    { "*norm*", "*mlp*=0.1", "`lr-scale`: '*mlp*'" },
};

TEST(test_select__bad_lists_are_named)
{
    sheaf_schema *schema = llama(false);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf__selection s;
        CHECK_FAILS(choose(&s, schema, SHEAF_METHOD_HEAD, bad[i].train, bad[i].scale, NULL),
                    SHEAF_E_ARG, bad[i].part);
    }
    sheaf_schema_free(schema);
}

/* A name that exists but cannot be trained is not offered as a cure. */
TEST(test_select__what_no_training_changes_is_told)
{
    sheaf_schema *schema = schema_of(cogagent_config);
    sheaf__selection s;
    CHECK_FAILS(
        choose(&s, schema, SHEAF_METHOD_HEAD, "mixins.encoder.vit.model.head.bias", NULL, NULL),
        SHEAF_E_ARG, "only such that no training changes, like mixins.encoder.vit.model.head.bias");
    CHECK_FAILS(choose(&s, schema, SHEAF_METHOD_HEAD, "*inv_freq", NULL, NULL), SHEAF_E_ARG,
                "like mixins.rotary.rotary_emb.inv_freq");
    CHECK_FAILS(
        choose(&s, schema, SHEAF_METHOD_HEAD, "mixins.encoder.vit.model.head.bais", NULL, NULL),
        SHEAF_E_ARG, "none of ");
    CHECK_FAILS(choose(&s, schema, SHEAF_METHOD_HEAD, "mixins.eva.boj", NULL, NULL), SHEAF_E_ARG,
                "did you mean mixins.eva.boi");
    sheaf_schema_free(schema);
}

static const struct {
    const char *name;
    bool decays;
} decay[] = {
    { "mixins.eva.boi", true },
    { "mixins.encoder.pos_embed", true },
    { "mixins.encoder.vit.model.cls_token", true },
    { "mixins.encoder.vit.model.blocks.0.attn.q_bias", true },
    { "mixins.encoder.vit.model.blocks.0.attn.proj.bias", false },
    { "mixins.encoder.vit.model.blocks.0.attn.inner_attn_ln.weight", false },
    { "mixins.encoder.vit.model.blocks.0.mlp.ffn_ln.bias", false },
    { "mixins.encoder.vit.model.norm.weight", false },
    { "mixins.eva.linear_proj.norm1.weight", false },
    { "mixins.eva.vit_model.transformer.layers.3.post_attention_layernorm.weight", false },
    { "mixins.eva.vit_model.transformer.position_embeddings.weight", true },
    { "transformer.final_layernorm.weight", false },
    { "base_model.model.transformer.layers.0.attention.dense.lora_A.weight", true },
    { "base_model.model.transformer.layers.0.attention.dense.lora_B.weight", true },
    { "bias", false },
};

TEST(test_learning__decay_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(decay); i++)
        if (sheaf__family_named("cogvlm")->decays(decay[i].name) != decay[i].decays)
            fail_msg("%s", decay[i].name);
}

TEST(test_learning__is_set_on_every_member)
{
    sheaf__trained plain = { .name = (char *)"model.norm.weight", .decay = true, .lr_scale = 1 };
    sheaf__trained factor = { .name =
                                  (char *)"base_model.model.mixins.eva.vit_model.x.lora_A.weight",
                              .decay = true,
                              .lr_scale = 1 };
    sheaf__trained *item[] = { &plain, &factor };
    sheaf__trained_set set = { .count = 2, .item = item };
    char *pattern[] = { (char *)"*vit*A.weight", (char *)"*vit*", (char *)"mixins*" };
    double scale[] = { 0.25, 0.5, 0 };
    sheaf__selection s = {
        .family = sheaf__family_named("llama"), .scaled = pattern, .scale = scale, .nscaled = 3
    };
    sheaf__learning_set(&set, &s);
    assert_true(plain.decay && plain.lr_scale == 1 && factor.decay && factor.lr_scale == 0.25);
    s.family = sheaf__family_named("cogvlm");
    s.scaled = pattern + 2; /* the name begins with the module, not with PEFT's prefix */
    s.scale = scale + 2;
    s.nscaled = 1;
    sheaf__learning_set(&set, &s);
    assert_true(!plain.decay && plain.lr_scale == 1 && factor.decay && factor.lr_scale == 0);
}

/* ---- what SAT's own set-up chose ---- */

/* SAT's name of a layer that LoRA wraps, as the base has it. */
static void without_original(char *name)
{
    char *at = strstr(name, ".original.");
    if (at != NULL)
        memmove(at, at + strlen(".original"), strlen(at + strlen(".original")) + 1);
}

static json_t *file_in(const char *dir, const char *name)
{
    char path[1600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return json_load_file(path, 0, NULL);
}

static sheaf_schema *recorded_schema(const char *dir, bool *agent)
{
    json_t *file = file_in(dir, "config.json"), *config = json_object_get(file, "config");
    if (!json_is_object(json_object_get(config, "eva_args"))) {
        json_decref(file);
        return NULL;
    }
    *agent = json_object_get(config, "cross_image_pix") != NULL;
    json_object_set_new(config, "model_class",
                        json_string(*agent ? "CogAgentModel" : "CogVLMModel"));
    if (json_is_object(json_object_get(file, "encoder_override")))
        json_object_set(config, "encoder_override", json_object_get(file, "encoder_override"));
    char *text = json_dumps(config, 0);
    sheaf_schema *schema = schema_of(text);
    free(text);
    json_decref(file);
    return schema;
}

/* Each name of the recorded groups: chosen unless no pass reads it, and with that group's scale and
 * decay. */
static int64_t check_groups(const json_t *groups, sheaf__selection *s, const sheaf_schema *schema)
{
    int64_t chosen = 0;
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g), *names = json_object_get(group, "names");
        const double scale = json_number_value(json_object_get(group, "lr"));
        const bool decays = json_object_get(group, "weight_decay") == NULL;
        for (size_t i = 0; i < json_array_size(names); i++) {
            char name[512];
            snprintf(name, sizeof name, "%s", json_string_value(json_array_get(names, i)));
            without_original(name);
            CHECK_NEAR(name, sheaf__learning_scale(s, name), scale, 0);
            if (sheaf__family_named("cogvlm")->decays(name) != decays)
                fail_msg("%s: weight decay", name);
            if (strstr(name, ".matrix_") != NULL)
                continue;
            const sheaf_tensor *t = sheaf_schema_find(schema, name);
            if (t == NULL)
                fail_msg("%s is not in the schema", name);
            chosen += sheaf__selected(s, t);
        }
    }
    return chosen;
}

/* Tensors that a recorded pass gave no gradient, or gave one. */
static int64_t with_gradient(const json_t *norms, const sheaf__selection *s,
                             const sheaf_schema *schema)
{
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const json_t *norm = json_object_get(norms, t->name);
        const bool chosen = sheaf__selected((void *)s, t);
        n += chosen;
        if (chosen && !json_is_number(norm))
            fail_msg("%s has no gradient", t->name);
    }
    return n;
}

static int check_recording(const char *dir)
{
    bool agent;
    json_t *train = file_in(dir, "train_lora_mp1_train.json"),
           *scalars = file_in(dir, "scalars.json");
    sheaf_schema *schema = train == NULL ? NULL : recorded_schema(dir, &agent);
    if (schema != NULL) {
        sheaf__selection s;
        int notes = 0;
        CHECK_OK(choose(
            &s, schema, SHEAF_METHOD_LORA,
            agent
                ? "*encoder*,*cross_attention*,*linear_proj*,*mlp.vision*,*rotary.vision*,*eoi*,*boi*,*vit*"
                : "*vit*.{46..54}.mlp*",
            agent ? "*encoder*=0.1,*vit*=0.1" : NULL, &notes));
        const int64_t chosen = check_groups(json_object_get(train, "param_groups"), &s, schema);
        assert_int_equal(chosen,
                         with_gradient(json_object_get(scalars, "grad_norm_by_name"), &s, schema));
        sheaf__selection_release(&s);
    }
    const bool found = schema != NULL;
    sheaf_schema_free(schema);
    json_decref(train);
    json_decref(scalars);
    return found;
}

TEST(test_select__agrees_with_the_recorded_groups)
{
    assert_true(golden_each("*/", check_recording) > 0);
}
