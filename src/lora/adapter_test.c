/* adapter_test.c - which modules an adapter means, how A and B are cut, and which files fit. */
#include "tests/fake_source.h"
#include "tests/resolved.h"

#include <unistd.h>

#include "base/regex.h"
#include "lora/match.h"
#include "tests/faults/denied_memory.h"

static sheaf_config config(void)
{
    return small_config(SHEAF_LLAMA, 511, 64, 172, 3, 8, 4, 8);
}

/* ---- matching ---- */

static const struct {
    const char *pattern, *path;
    bool whole, yes;
} regexes[] = {
    { "q_proj", "model.layers.0.self_attn.q_proj", true, false },
    { ".*q_proj", "model.layers.0.self_attn.q_proj", true, true },
    { ".*layers\\.\\d+\\.self_attn\\.(q|k)_proj", "model.layers.11.self_attn.k_proj", true, true },
    { "model", "model.norm", false, true },
    { "norm", "model.norm", false, false },
    { "(a|ab)(c|bcd)", "abcd", true, true }, /* full match backtracks */
};

TEST(test_match__as_pythons_re)
{
    for (size_t i = 0; i < ARRAY_LEN(regexes); i++) {
        bool yes;
        CHECK_OK(sheaf__regex_match(&yes, NULL, "", regexes[i].pattern, "", regexes[i].path,
                                    regexes[i].whole));
        if (yes != regexes[i].yes)
            fail_msg("%s on %s", regexes[i].pattern, regexes[i].path);
    }
    bool yes;
    CHECK_FAILS(sheaf__regex_match(&yes, NULL, "", "(a", "", "a", true), SHEAF_E_ARG,
                "pattern '(a'");
    /* Some ten million steps: more than are allowed, few enough to end without a limit. */
    CHECK_FAILS(sheaf__regex_match(&yes, NULL, "", "((a+)+)+", "", "aaaaaaaaaaaaaab", true),
                SHEAF_E_ARG, "limit");
    alarm(20); /* it would match for longer than anybody waits */
    CHECK_FAILS(sheaf__regex_match(&yes, NULL, "", "((a+)+)+", "",
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", true),
                SHEAF_E_ARG, "limit");
    alarm(0);
}

TEST(test_patterns__first_match_wins_at_a_dot)
{
    sheaf_pattern list[] = { { (char *)"^model.layers.0.self_attn.v_proj", 2 },
                             { (char *)"down_proj", 4 },
                             { (char *)"layers.1.self_attn.q_proj", 12 },
                             { (char *)"proj", 7 },
                             { (char *)".*v_proj", 9 } };
    static const struct {
        const char *path;
        double want;
    } cases[] = {
        { "model.layers.0.self_attn.v_proj", 2 },  { "model.layers.1.self_attn.v_proj", 9 },
        { "model.layers.2.mlp.down_proj", 4 },     { "model.layers.1.self_attn.q_proj", 12 },
        { "model.layers.11.self_attn.q_proj", 8 }, { "model.layers.0.mlp.up_proj", 8 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double got;
        CHECK_OK(sheaf__lora_pattern_value(&got, &(sheaf_patterns){ list, (int)ARRAY_LEN(list) },
                                           cases[i].path, 8));
        CHECK_NEAR(cases[i].path, got, cases[i].want, 0);
    }
}

/* ---- resolving ---- */

TEST(test_resolve__names_shapes_scale_and_cuts)
{
    const sheaf_schema *schema = schema_of(config(), 8);
    sheaf_lora_options *o = options_of("o_proj,k_proj");
    o->rank = 3, o->alpha = 7, o->rslora = true;
    sheaf_lora *lora = resolved(schema, o);
    assert_int_equal(lora->nmodules, 6);
    const sheaf_lora_module *k = &lora->module[0], *down = &lora->module[1];
    assert_string_equal(k->a_name,
                        "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight");
    assert_string_equal(k->b_name,
                        "base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight");
    assert_true(k->a_shape[0] == 3 && k->a_shape[1] == 64 && k->b_shape[0] == 32 &&
                k->b_shape[1] == 3);
    assert_true(k->scale == (float)(7 / sqrt(3.0)) && k->rank == 3 && k->alpha == 7);
    /* k is cut by rows (out): B follows, A is whole. */
    assert_true(k->a_cut.nparts == 0 && k->b_cut.nparts == 1 && k->b_cut.axis == 0 &&
                k->b_cut.slices == 8);
    assert_true(k->b_cut.part[0].units == 4 && k->b_cut.part[0].rows_per_unit == 8);
    /* o is cut by columns (in): A follows along its axis 1, B is whole. */
    assert_string_equal(down->base->module, "model.layers.0.self_attn.o_proj");
    assert_true(down->b_cut.nparts == 0 && down->a_cut.nparts == 1 && down->a_cut.axis == 1);
    assert_true(down->a_shape[1] == 64 && down->a_cut.part[0].rows_per_unit == 16);
    CHECK_OK(sheaf_cut_check(&down->a_cut, down->a_shape[1]));
}

/* Targets, and the number of their modules. */
static const struct {
    const char *targets, *exclude, *layers;
    int count;
} selections[] = {
    { "all-linear", NULL, NULL, 21 },
    { "q_proj,v_proj", NULL, NULL, 6 },
    { "self_attn.q_proj", NULL, NULL, 3 },
    { "model.layers.1.mlp.up_proj", NULL, NULL, 1 },
    { "lm_head,v_proj", NULL, NULL, 4 },
    { "q_proj", NULL, "0,2", 2 },
    { "all-linear", NULL, "0,2", 14 },
    { "all-linear", "q_proj", "1", 6 },
    { "model.layers.1.mlp.up_proj,q_proj", NULL, "0", 2 }, /* a whole path counts in any layer */
    { ".*\\.(q|k)_proj", NULL, NULL, 6 },
    { "all-linear", ".*layers\\.0\\.mlp.*", NULL, 18 },
    { "q_proj,v_proj", "layers.1.self_attn.v_proj", NULL, 5 },
};

TEST(test_resolve__selections)
{
    const sheaf_schema *schema = schema_of(config(), 4);
    for (size_t i = 0; i < ARRAY_LEN(selections); i++) {
        sheaf_lora_options *o = options_of(selections[i].targets);
        CHECK_OK(sheaf__lora_set_exclude(o, selections[i].exclude));
        CHECK_OK(sheaf__lora_set_layers(o, selections[i].layers));
        sheaf_lora *lora = resolved(schema, o);
        if (lora->nmodules != selections[i].count)
            fail_msg("%s: %d modules", selections[i].targets, lora->nmodules);
        assert_false(lora->options.all_linear); /* spelled out, as PEFT stores it */
    }
}

/* Of a mixture the first number in a module's path is its layer, the second its expert. */
static const struct {
    const char *targets, *layers, *pattern;
    int count;
} of_mixtures[] = {
    { "w1,q_proj", NULL, NULL, 9 },     { "w1,q_proj", "1", NULL, 3 },
    { "all-linear", "0", NULL, 11 },    { "w1,q_proj", "1", "layers", 3 },
    { "w1,q_proj", "1", "experts", 3 },
};

TEST(test_resolve__layers_of_a_mixture)
{
    sheaf_config c = config();
    c.family = SHEAF_MIXTRAL;
    c.num_experts = 2;
    c.expert_ffn = c.ffn;
    c.top_k = 1;
    const sheaf_schema *schema = schema_of(c, 4);
    for (size_t i = 0; i < ARRAY_LEN(of_mixtures); i++) {
        sheaf_lora_options *o = options_of(of_mixtures[i].targets);
        CHECK_OK(sheaf__lora_set_layers(o, of_mixtures[i].layers));
        if (of_mixtures[i].pattern != NULL) {
            o->layers_pattern.list = calloc(1, sizeof *o->layers_pattern.list);
            o->layers_pattern.list[0] = strdup(of_mixtures[i].pattern);
            o->layers_pattern.n = 1;
        }
        sheaf_lora *lora = resolved(schema, o);
        if (lora->nmodules != of_mixtures[i].count)
            fail_msg("%s: %d modules", of_mixtures[i].targets, lora->nmodules);
    }
}

/* A pattern that finds no memory is not a bad one. */
TEST(test_match__says_that_memory_is_short)
{
    long n = 1;
    if (!DENIED_MEMORY_WORKS)
        return; /* see tests/faults/denied_memory.h */
    for (bool done = false; !done; n++) {
        bool found = false;
        deny_begin(n);
        sheaf_status *st = sheaf__regex_match(&found, NULL, "", "layers\\.(\\d+)\\.[qk]_proj", "",
                                              "layers.3.q_proj", true);
        deny_end();
        done = atomic_load(&deny_seen) < n;
        if (st != NULL)
            CHECK_FAILS(st, SHEAF_E_MEMORY, "pattern");
        else
            assert_true(found);
    }
    assert_true(n > 4); /* text, pattern, match and context */
}

/* A file may hold patterns that match nothing; flags may not. */
static const struct {
    const char *targets, *layers, *patterns, *part;
} patterns[] = {
    { "q_proj,v_proj", NULL,
      "q_proj=4,layers.2.self_attn.v_proj=2,^model.layers.0.self_attn.v_proj=3", NULL },
    { "q_proj,v_proj", NULL, "(q|k)_proj=4,.*=2", NULL },
    { "q_proj,v_proj", NULL, "q_prj=4", "pattern 'q_prj' | one that" },
    { "q_proj,v_proj", NULL, "q_prj=4", "| none of 6 adapted modules | q_proj" },
    { "q_proj,v_proj", NULL, "q_proj=4,^model.layers.1.self_atn.v_proj=2",
      "| model.layers.1.self_attn.v_proj" },
    { "q_proj,v_proj", NULL, "k_proj=4", "pattern 'k_proj'" }, /* a module without LoRA */
    { "q_proj,v_proj", NULL, "layers.3.self_attn.q_proj=4", "layers.3" }, /* past the last layer */
    { "q_proj,v_proj", "0,2", "layers.1.self_attn.q_proj=4", "none of 4" },
    { "q_proj,v_proj", NULL, "x+=4", "pattern 'x+'" },
};

TEST(test_resolve__patterns_that_match_nothing)
{
    const sheaf_schema *schema = schema_of(config(), 4);
    for (size_t i = 0; i < 2 * ARRAY_LEN(patterns); i++) {
        const char *text = patterns[i / 2].patterns, *part = patterns[i / 2].part;
        sheaf_lora_options *o = options_of(patterns[i / 2].targets);
        CHECK_OK(sheaf__lora_set_layers(o, patterns[i / 2].layers));
        if (i % 2 == 0)
            CHECK_OK(sheaf__lora_set_pattern(&o->rank_pattern, text, true));
        else
            CHECK_OK(sheaf__lora_set_pattern(&o->alpha_pattern, text, false));
        sheaf_lora *lora = NULL;
        if (part == NULL) {
            lora = resolved(schema, o);
        } else {
            CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), SHEAF_E_ARG, part);
            CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), SHEAF_E_ARG,
                        i % 2 == 0 ? "rank pattern" : "alpha pattern");
            o->tolerant = true;
            lora = resolved(schema, o);
        }
    }
}

static const struct {
    const char *targets, *saved, *layers;
    sheaf_code code;
    const char *part;
} wrong[] = {
    { "q_prj", NULL, NULL, SHEAF_E_ARG, "target 'q_prj'" },
    { "q_prj", NULL, NULL, SHEAF_E_ARG, "| q_proj" },
    { "q_proj,dwon_proj", NULL, NULL, SHEAF_E_ARG, "| down_proj" },
    { "self_attn.q_prj", NULL, NULL, SHEAF_E_ARG, "target 'self_attn.q_prj'" },
    { ".*query", NULL, NULL, SHEAF_E_ARG, "no layer is adapted: target '.*query'" },
    { "q_proj,norm", NULL, NULL, SHEAF_E_UNSUPPORTED, "a norm" },
    { ".*mlp.*", NULL, NULL, SHEAF_E_UNSUPPORTED, "target 'model.layers.0.mlp'" },
    { ".*", NULL, NULL, SHEAF_E_UNSUPPORTED, "target 'model'" },
    { "q_proj", "lm_haed", NULL, SHEAF_E_ARG, "| lm_head" },
    { "q_proj", NULL, "3", SHEAF_E_ARG, "0 to 2" },
    { "q_proj(", NULL, NULL, SHEAF_E_ARG, "a regular expression" },
    { "proj,q_proj", NULL, NULL, SHEAF_E_ARG, "target 'proj'" }, /* whole names alone */
    { "q_proj", "q_proj", NULL, SHEAF_E_ARG, "no layer is adapted: target 'q_proj'" },
    { "q_proj,k_proj", NULL, "1,7", SHEAF_E_ARG, "0 to 2" },
    { ".*_proj", NULL, "1", SHEAF_E_ARG, "layers of '.*_proj' | a list of targets" },
};

TEST(test_resolve__what_cannot_be_is_named)
{
    const sheaf_schema *schema = schema_of(config(), 4);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        sheaf_lora_options *o = options_of(wrong[i].targets);
        CHECK_OK(sheaf__lora_set_saved(o, wrong[i].saved));
        CHECK_OK(sheaf__lora_set_layers(o, wrong[i].layers));
        sheaf_lora *lora;
        CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), wrong[i].code, wrong[i].part);
    }
}

/* A tower of this width and a resampler whose modules hold many tensors, and a table that no
 * training changes. */
static const sheaf_schema *omnilmm(int width)
{
    static const char form[] =
        "{\"model_type\":\"omnilmm\",\"hidden_size\":128,\"intermediate_size\":208,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"vocab_size\":150,\"num_query\":16,\"image_size\":84,\"vision_config\":{\"img_size\":56,"
        "\"patch_size\":14,\"embed_dim\":%d,\"depth\":4,\"num_heads\":4,\"mlp_ratio\":2.5}}";
    sheaf_config c;
    const char *text = textf(form, width);
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    const sheaf_schema *schema = schema_of(c, 4);
    sheaf_config_release(&c);
    return schema;
}

/* Targets and saved modules, and the numbers of factors and tensors; or the error. */
typedef struct vision_row {
    const char *targets, *saved;
    int modules, tensors;
    sheaf_code code;
    const char *wrong;
} vision_row;

static const vision_row vision[] = {
    { ".*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj|o_proj)", "embed_tokens,resampler", 8,
      1 + 14, 0, NULL },
    /* three blocks of 13, and 4 + 2 around them */
    { "model\\..*layers\\.\\d+\\.self_attn\\.q_proj", "resampler,vision_tower", 2, 14 + 45, 0,
      NULL },
    { "model\\.vision_tower\\..*\\.qkv", "", 3, 0, 0, NULL },
    { "all-linear", "", 2 * 7 + 3 * 4 + 1, 0, 0, NULL },
    { "kv_proj", "", 1, 0, 0, NULL },
    { "model\\.resampler", "", 0, 0, SHEAF_E_UNSUPPORTED, "target 'model.resampler'" },
    { "model\\.resampler\\.query", "", 0, 0, SHEAF_E_ARG,
      "no layer is adapted" }, /* a parameter, as PEFT sees it */
    /* nor is one proposed */
    { "model.resampler.quer", "", 0, 0, SHEAF_E_ARG,
      "no module of that name | model.resampler.ln_q" },
    { "out_proj", "", 0, 0, SHEAF_E_UNSUPPORTED, "torch's attention" },
    { "model.vision_tower.patch_embed.proj", "", 0, 0, SHEAF_E_UNSUPPORTED, "a convolution" },
    { "q_proj", "resampeler", 0, 0, SHEAF_E_ARG, "module to save 'resampeler'" },
};

/* The tower is as wide as the text model: no kv_proj. */
static const vision_row equal_vision[] = {
    { "q_proj", "resampler", 2, 13, 0, NULL },
    { "all-linear", "", 2 * 7 + 3 * 4, 0, 0, NULL },
    { "kv_proj", "", 0, 0, SHEAF_E_ARG, "no module of that name" },
};

static void check_vision(const sheaf_schema *schema, const vision_row *row)
{
    sheaf_lora_options *o = options_of(row->targets);
    sheaf_lora *lora = NULL;
    CHECK_OK(sheaf__lora_set_saved(o, row->saved));
    if (row->wrong != NULL) {
        CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), row->code, row->wrong);
    } else {
        lora = resolved(schema, o);
        assert_int_equal(lora->nmodules, row->modules);
        assert_int_equal(lora->nsaved, row->tensors);
    }
}

TEST(test_resolve__modules_of_many_tensors)
{
    const sheaf_schema *schema = omnilmm(64), *equal = omnilmm(128);
    for (size_t i = 0; i < ARRAY_LEN(vision); i++)
        check_vision(schema, &vision[i]);
    for (size_t i = 0; i < ARRAY_LEN(equal_vision); i++)
        check_vision(equal, &equal_vision[i]);
}

TEST(test_resolve__a_files_list_may_name_foreign_layers)
{
    const sheaf_schema *schema = schema_of(config(), 4);
    sheaf_lora_options *o = options_of("q_proj,query_key_value");
    sheaf_lora *lora;
    CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), SHEAF_E_ARG, "query_key_value");
    o->tolerant = true;
    assert_int_equal(resolved(schema, o)->nmodules, 3);
}

TEST(test_resolve__saved_modules_and_biases)
{
    sheaf_config c = config();
    c.qkv_bias = true;
    const sheaf_schema *schema = schema_of(c, 4);
    sheaf_lora_options *o = options_of("q_proj,o_proj");
    /* "norm" is the end of input_layernorm too, as PEFT compares */
    CHECK_OK(sheaf__lora_set_saved(o, "lm_head,norm"));
    o->bias = SHEAF_BIAS_ALL;
    sheaf_lora *lora = resolved(schema, o);
    assert_int_equal(lora->nsaved, 3 * (2 + 3) + 2);
    assert_string_equal(lora->saved_name[0],
                        "base_model.model.model.layers.0.input_layernorm.weight");
    assert_string_equal(lora->saved_name[1],
                        "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias");
    assert_string_equal(lora->saved_name[2],
                        "base_model.model.model.layers.0.self_attn.k_proj.bias");
    assert_string_equal(lora->saved_name[lora->nsaved - 1], "base_model.model.lm_head.weight");
    o->bias = SHEAF_BIAS_LORA_ONLY;
    lora = resolved(schema, o);
    assert_int_equal(lora->nsaved, 3 * (2 + 1) + 2);
    o = options_of("q_proj");
    CHECK_OK(sheaf__lora_set_saved(o, "mlp")); /* everything inside it */
    lora = resolved(schema, o);
    assert_int_equal(lora->nsaved, 9);
}

TEST(test_tied__named_uses_make_two_tensors)
{
    static const struct {
        const char *targets, *saved;
        bool unties;
    } cases[] = {
        { "q_proj", NULL, false },        { "all-linear", NULL, false },
        { "q_proj", "norm", false },      { "q_proj", "embed_tokens", true },
        { "q_proj,lm_head", NULL, true }, { "q_proj", "embed_tokens,lm_head", true },
    };
    sheaf_config c = config();
    c.tied = true;
    const sheaf_schema *tied = schema_of(c, 4);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_lora_options *o = options_of(cases[i].targets);
        CHECK_OK(sheaf__lora_set_saved(o, cases[i].saved));
        sheaf_config plain = config();
        assert_false(sheaf_lora_unties(o, &plain));
        assert_int_equal(sheaf_lora_unties(o, &c), cases[i].unties);
        sheaf_lora *lora;
        if (cases[i].unties)
            CHECK_FAILS(sheaf_lora_resolve(&lora, tied, o), SHEAF_E_UNSUPPORTED, "tied table");
        else
            resolved(tied, o);
    }
}

/* ---- a file against it ---- */

static fake_source fake_of(const sheaf_lora *lora)
{
    fake_source f = { .source = { .find = fake_find, .count = fake_count, .entry = fake_entry } };
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        f.entry[f.n++] =
            (sheaf_source_entry){ m->a_name, SHEAF_F32, 2, { m->a_shape[0], m->a_shape[1] } };
        f.entry[f.n++] =
            (sheaf_source_entry){ m->b_name, SHEAF_BF16, 2, { m->b_shape[0], m->b_shape[1] } };
    }
    for (int i = 0; i < lora->nsaved; i++)
        f.entry[f.n++] =
            (sheaf_source_entry){ lora->saved_name[i],
                                  SHEAF_F16,
                                  lora->saved[i]->ndim,
                                  { lora->saved[i]->shape[0], lora->saved[i]->shape[1] } };
    return f;
}

TEST(test_check__every_way_a_file_can_be_another)
{
    const sheaf_schema *schema = schema_of(config(), 4);
    sheaf_lora_options *o = options_of("q_proj,lm_head");
    CHECK_OK(sheaf__lora_set_saved(o, "model.norm"));
    sheaf_lora *lora = resolved(schema, o);
    fake_source f = fake_of(lora);
    assert_int_equal(f.n, 9);
    CHECK_OK(sheaf_lora_check(lora, &f.source));
    f.entry[f.n++] = (sheaf_source_entry){
        "base_model.model.lm_head.base_layer.weight", SHEAF_F32, 2, { 511, 64 }
    };
    CHECK_OK(sheaf_lora_check(lora, &f.source)); /* the copy PEFT adds */
    f.entry[f.n++] = (sheaf_source_entry){
        "base_model.model.model.norm.base_layer.weight", SHEAF_F32, 1, { 64 }
    };
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT, "model.norm.base_layer.weight");
    f = fake_of(lora);
    f.entry[3].name = "base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight";
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT,
                "layers.1.self_attn.q_proj.lora_B.weight");
    f = fake_of(lora);
    f.entry[f.n++] = (sheaf_source_entry){
        "base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight", SHEAF_F32, 2, { 8, 8 }
    };
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT, "layers.9");
    lora->options.keep_tie =
        true; /* LoRA on a table that stays tied: PEFT writes it under both names */
    f.entry[f.n - 1].name = "base_model.model.lm_head.lora_embedding_A";
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT, "sheaf merge BASE ADAPTER");
    f = fake_of(lora);
    f.entry[0].shape[1] = 48;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT,
                "shape [8, 64] | shape [8, 48] | the base model this adapter was made for");
    f = fake_of(lora);
    f.entry[1].shape[1] = 4;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT,
                "shape [64, 8] | shape [64, 4] | the rank differs");
    f = fake_of(lora);
    f.entry[8].ndim = 2;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT,
                "base_model.model.model.norm.weight");
    f = fake_of(lora);
    f.entry[2].dtype = SHEAF_F64;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_UNSUPPORTED, "F64");
}

/* PEFT writes the table of positions that it does not train; a file may as well lack it. */
TEST(test_check__what_no_training_changes_may_be_missing)
{
    const sheaf_schema *schema = omnilmm(64);
    sheaf_lora_options *o = options_of("q_proj");
    CHECK_OK(sheaf__lora_set_saved(o, "resampler"));
    sheaf_lora *lora = resolved(schema, o);
    fake_source f = fake_of(lora);
    CHECK_OK(sheaf_lora_check(lora, &f.source));
    int table = 0;
    while (strcmp(f.entry[table].name, "base_model.model.model.resampler.pos_embed") != 0)
        assert_true(++table < f.n);
    f.entry[table].shape[0]++;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT, "resampler.pos_embed");
    f.entry[table] = f.entry[--f.n];
    CHECK_OK(sheaf_lora_check(lora, &f.source));
    f.n--;
    CHECK_FAILS(sheaf_lora_check(lora, &f.source), SHEAF_E_LAYOUT, "| this tensor in the adapter");
}
