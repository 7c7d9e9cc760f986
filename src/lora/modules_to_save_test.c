/* modules_to_save_test.c - tensors trained whole beside the factors: which, under which names, and
 * read back the same. */
#include "tests/files.h"
#include "tests/resolved.h"

static const sheaf_schema *model_of(sheaf_family family)
{
    sheaf_config c = small_config(family, 1100, 32, 48, 2, 4, 4, 8);
    if (family == SHEAF_COGAGENT) {
        c.patches = 9, c.experts = 2, c.cross_head_dim = 6, c.cross_width = 12,
        c.cross_layers[0] = 3;
        c.vit = (sheaf_vit){ .layers = 2,
                             .hidden = 24,
                             .heads = 4,
                             .ffn = 40,
                             .vocab = 1,
                             .positions = 10,
                             .patch = 14,
                             .channels = 3 };
        c.encoder = (sheaf_encoder){ .layers = 2,
                                     .width = 12,
                                     .head_width = 4,
                                     .ffn = 20,
                                     .embed = 5,
                                     .image = 56,
                                     .patch = 14,
                                     .channels = 3 };
    }
    return schema_of(c, 4);
}

/* Names that a chooser takes, up to a NULL; "x*" is every name with x in it. */
static bool is_listed(void *self, const sheaf_tensor *t)
{
    for (const char *const *name = self; *name != NULL; name++) {
        const size_t n = strlen(*name);
        if (n > 0 && (*name)[n - 1] == '*' ? memmem(t->name, strlen(t->name), *name, n - 1) != NULL
                                           : strcmp(*name, t->name) == 0)
            return true;
    }
    return false;
}

#define VIT "mixins.eva.vit_model.transformer.layers.0."
#define TOWER "mixins.encoder.vit.model.blocks.0."

static const struct {
    const char *name;
    sheaf_family family;
    const char *targets;
    const char *chosen[5], *saved[8], *told[8]; /* saved: without PEFT's prefix */
} cases[] = {
    { "a module with its bias, by its path", SHEAF_COGAGENT, "sat", LIST(VIT "mlp.dense_h_to_4h*"),
      LIST(VIT "mlp.dense_h_to_4h.weight", VIT "mlp.dense_h_to_4h.bias"),
      LIST(VIT "mlp.dense_h_to_4h") },
    { "half a module, by the tensor's name", SHEAF_COGAGENT, "sat",
      LIST(VIT "mlp.dense_h_to_4h.weight"), LIST(VIT "mlp.dense_h_to_4h.weight"),
      LIST(VIT "mlp.dense_h_to_4h.weight") },
    { "parameters that are no module's", SHEAF_COGAGENT, "sat",
      LIST("mixins.eva.boi", TOWER "attn.q_bias"), LIST("mixins.eva.boi", TOWER "attn.q_bias"),
      LIST("mixins.eva.boi", TOWER "attn.q_bias") },
    { "a layer with factors too", SHEAF_COGAGENT, "sat-vit",
      LIST(VIT "attention.dense*", "transformer.layers.1.cross_attention.key_value*"),
      LIST(VIT "attention.dense.weight", VIT "attention.dense.bias",
           "transformer.layers.1.cross_attention.key_value.weight"),
      LIST(VIT "attention.dense.weight", VIT "attention.dense.bias",
           "transformer.layers.1.cross_attention.key_value.weight") },
    { "nothing", SHEAF_COGAGENT, "sat", { NULL }, { NULL }, { NULL } },
    { "Llama", SHEAF_LLAMA, "q_proj",
      LIST("model.norm.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"),
      LIST("model.layers.1.self_attn.q_proj.weight", "model.norm.weight", "lm_head.weight"),
      LIST("model.layers.1.self_attn.q_proj.weight", "model.norm", "lm_head") },
};

static void same_names(const char *what, char *const *got, int n, const char *const *want,
                       const char *prefix)
{
    int i = 0;
    for (; want[i] != NULL; i++) {
        const char *full = textf("%s%s", prefix, want[i]);
        if (i >= n || strcmp(got[i], full) != 0)
            fail_msg("%s: %s, wanted %s", what, i < n ? got[i] : "nothing", full);
    }
    if (i != n)
        fail_msg("%s: %s besides", what, got[i]);
}

/* adapter_config.json, read as another program's start would. */
static void check_read_back(const char *name, const sheaf_lora *lora, const sheaf_schema *schema)
{
    char *text;
    sheaf_lora_options read;
    CHECK_OK(sheaf_lora_options_json(&text, &lora->options));
    put(at("adapter_config.json"), text);
    CHECK_OK(sheaf_lora_options_read(&read, at("adapter_config.json"), NULL));
    sheaf_lora *again = resolved(schema, &read);
    if (again->nmodules != lora->nmodules || again->nsaved != lora->nsaved)
        fail_msg("%s: %d modules and %d tensors, read back %d and %d", name, lora->nmodules,
                 lora->nsaved, again->nmodules, again->nsaved);
    for (int i = 0; i < lora->nsaved; i++) {
        assert_ptr_equal(again->saved[i], lora->saved[i]);
        assert_string_equal(again->saved_name[i], lora->saved_name[i]);
    }
    sheaf_lora_options_release(&read);
    free(text);
}

TEST(test_beside__what_is_saved_and_told)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const sheaf_schema *schema = model_of(cases[i].family);
        sheaf_lora_options *o = options_of(cases[i].targets);
        sheaf_lora *lora = resolved(schema, o);
        for (int again = 0; again < 2; again++) /* the second time changes nothing */
            CHECK_OK(sheaf_lora_save_also(lora, schema, is_listed, (void *)cases[i].chosen));
        same_names(cases[i].name, lora->saved_name, lora->nsaved, cases[i].saved,
                   "base_model.model.");
        same_names(cases[i].name, lora->options.modules_to_save.list,
                   lora->options.modules_to_save.n, cases[i].told, "");
        check_read_back(cases[i].name, lora, schema);
    }
}

/* Tensors that --modules-to-save saves already stay once; the rest takes its place in the model's
 * order. */
TEST(test_beside__joins_what_is_saved_already)
{
    static const char *const chosen[] = { "mixins.lm.lm_head.weight",
                                          "transformer.word_embeddings.weight",
                                          "transformer.final*", NULL };
    static const char *const saved[] = { "mixins.lm.lm_head.weight",
                                         "transformer.word_embeddings.weight",
                                         "transformer.final_layernorm.weight", NULL };
    const sheaf_schema *schema = model_of(SHEAF_COGAGENT);
    sheaf_lora_options *o = options_of("sat");
    CHECK_OK(sheaf__lora_set_saved(o, "transformer.word_embeddings"));
    sheaf_lora *lora = resolved(schema, o);
    assert_int_equal(lora->nsaved, 1);
    CHECK_OK(sheaf_lora_save_also(lora, schema, is_listed, (void *)chosen));
    same_names("joined", lora->saved_name, lora->nsaved, saved, "base_model.model.");
    check_read_back("joined", lora, schema);
}

FIXTURE(make_scratch, remove_scratch);
