/* shipped_recipes_test.c - every recipe that comes with sheaf is read, and means something in the
 * real models; and how
 * --recipe NAME finds them. */
#include "tests/files.h"
#include "tests/sources.h"

#include <unistd.h>

#include "lora/sizes.h"
#include "train/select.h"
#include "cli/lib/cli.h"
#include "library/train_settings.h"

static const struct {
    const char *prefix, *config; /* itself, or a file in tests/data/configs */
} models[] = {
    { "llama3-", "llama-3-8b" },
    { "mistral-", "mistral-7b" },
    { "qwen2-", "qwen2-7b" },
    { "minicpmv-", "minicpmv-2.0" },
    { "minicpmv-", "minicpmv-2.5" },
    { "minicpmv-", "minicpmv-2.6" },
    { "minicpmv-", "minicpmv-4.5" },
    { "omnilmm-", "omnilmm-12b" },
    { "glm4v-", "cogagent-9b" },
    { "qwenvl-", "qwen2.5-vl-7b" },
    { "qwenvl-", "qwen3-vl-8b" },
    { "qwen3moe-", "qwen3-30b-a3b" },
    { "gemma-", "gemma-2b" },
    { "cogvlm-hf-", "cogvlm-chat-hf" },
    { "cogagent-hf-", "cogagent-chat-hf" },
    { "glm4-",
      "{\"model_type\": \"glm4\", \"hidden_size\": 4096, \"intermediate_size\": 13696,"
      " \"num_hidden_layers\": 40, \"num_attention_heads\": 32, \"num_key_value_heads\": 2,"
      " \"head_dim\": 128, \"attention_bias\": true, \"partial_rotary_factor\": 0.5,"
      " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, \"max_position_embeddings\": 32768,"
      " \"vocab_size\": 151552, \"pad_token_id\": 151329, \"eos_token_id\": [151329, 151336, 151338],"
      " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}" },
    { "cogvlm-", "cogvlm-224" },
    { "cogvlm-", "cogvlm-490" },
    { "cogvlm2-",
      "{\"architectures\": [\"CogVLMForCausalLM\"], \"num_multi_query_heads\": 8,"
      " \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32,"
      " \"num_attention_heads\": 32, \"vocab_size\": 128256, \"bos_token_id\": 128000,"
      " \"eos_token_id\": 128001, \"pad_token_id\": 128002, \"torch_dtype\": \"bfloat16\","
      " \"vision_config\": {\"hidden_size\": 1792, \"image_size\": 1344, \"in_channels\": 3,"
      " \"intermediate_size\": 15360, \"layer_norm_eps\": 1e-6, \"num_heads\": 16,"
      " \"num_hidden_layers\": 63,"
      " \"num_positions\": 9217, \"patch_size\": 14}}" },
    { "cogagent-", "cogagent-1120" },
};

/* Numbers trained: of factors, and of base tensors (first, last possible). Worked by hand from
 * the sizes above, but for the 11.5 G that users counted. */
#define GATED (INT64_C(4096) + 11008)
static const struct {
    const char *name;
    int64_t factors, least, most;
} counts[] = {
    { "cogvlm-lora", 19517440, 9 * (2 * 15360 * 1792 + 15360 + 1792),
      9 * (2 * 15360 * 1792 + 15360 + 1792) },
    { "cogvlm2-lora", 8 * 32 * INT64_C(10240), 0, 0 }, /* 4096 in, 6144 out */
    { "cogagent-lora", -1, INT64_C(11450000000), INT64_C(11550000000) },
    /* q, k, v and dense: of text and experts, of the ViT */
    { "cogvlm-lora-clean", 16 * 8 * (2 * 32 * INT64_C(4096) + 63 * 1792), 0, 0 },
    { "cogagent-text-lora", 16 * 32 * (8 * INT64_C(4096) + 3 * GATED), 0, 0 },
    { "cogagent-cross-attention", 0, 32 * (2 * 1024 * INT64_C(4096) + 2048 * 1024 + 4096),
      32 * (2 * 1024 * INT64_C(4096) + 2048 * 1024 + 4096) },
    /* q and o, k and v, gate and up, down; tables, layers, norms */
    { "llama3-lora", 16 * 32 * INT64_C(81920), 0, 0 },
    { "llama3-head", 0, 128256 * INT64_C(4096), 128256 * INT64_C(4096) },
    { "llama3-full", 0, INT64_C(8030261248), INT64_C(8030261248) },
    { "mistral-lora", 16 * 32 * INT64_C(81920), 0, 0 },
    { "mistral-head", 0, 32768 * INT64_C(4096), 32768 * INT64_C(4096) },
    { "mistral-full", 0, INT64_C(7248023552), INT64_C(7248023552) },
    { "qwen2-lora", 16 * 28 * INT64_C(90112), 0, 0 },
    { "qwen2-head", 0, 152064 * INT64_C(3584), 152064 * INT64_C(3584) },
    { "qwen2-full", 0, INT64_C(7615616512), INT64_C(7615616512) },
    /* copies for modules_to_save are counted below */
    { "minicpmv-lora", -1, 0, 0 },
    { "minicpmv-full", 0, INT64_C(3434000000), INT64_C(8695895280) },
    { "omnilmm-lora", 64 * 32 * INT64_C(26624), 0, 0 },
    { "omnilmm-full", 0, INT64_C(11610000000), INT64_C(11620000000) },
    /* of the text model and of the tower */
    { "glm4v-lora", 8 * (40 * INT64_C(8704) + 63 * 7168), 0, 0 },
    { "cogagent-head-only", 0, 32000 * INT64_C(4096), 32000 * INT64_C(4096) },
    /* q, k and v together and the output, of both experts; CogAgent's cross-attention, and the
     * outputs of the ViT's attention */
    { "cogvlm-hf-lora", 8 * 32 * 2 * INT64_C(24576), 0, 0 },
    { "cogagent-hf-lora", 8 * (32 * (2 * INT64_C(24576) + 13312) + 63 * 3584), 0, 0 },
    { "glm4-lora", 8 * 40 * INT64_C(16896), 0, 0 },
    { "gemma-lora", 8 * 18 * INT64_C(68096), 0, 0 },
    /* attention, router, 128 experts */
    { "qwen3moe-lora", 8 * 48 * INT64_C(1100928), 0, 0 },
    /* by model below; Qwen2.5-7B and the merger, Qwen3-8B and the merger */
    { "qwenvl-lora", -1, 0, 0 },
    { "qwenvl-full", 0, 7615616512 + INT64_C(44574464), 8190735360 + INT64_C(40119040) },
};

/* Full copies in the adapters of upstream's scripts, by hand from reference sizes: embeddings,
 * resampler (with a table of 64 or 256 rows in 2.0 and OmniLMM), tower. */
static const struct {
    const char *recipe, *config;
    int64_t factors, copies;
} copies[] = {
    { "minicpmv-lora", "minicpmv-2.6", 64 * 28 * INT64_C(22528),
      151666 * INT64_C(3584) + 68619264 + 402552736 },
    { "minicpmv-lora", "minicpmv-4.5", 64 * 36 * INT64_C(26624),
      151748 * INT64_C(4096) + 88907776 + 417792240 },
    { "minicpmv-lora", "minicpmv-2.5", 64 * 32 * INT64_C(26624),
      128256 * INT64_C(4096) + 89038848 + 417792240 },
    { "minicpmv-lora", "minicpmv-2.0", 64 * 40 * INT64_C(18432),
      122753 * INT64_C(2304) + 29514240 + 397747744 },
    { "omnilmm-lora", "omnilmm-12b", 64 * 32 * INT64_C(26624), 32009 * INT64_C(4096) + 93364224 },
    { "qwenvl-lora", "qwen2.5-vl-7b", 8 * 28 * INT64_C(90112), 0 },
    { "qwenvl-lora", "qwen3-vl-8b", 8 * 36 * INT64_C(75776), 0 },
};

static const cli_command command = { "train", "fine-tune", "usage: sheaf train\n", NULL, 0, 0 };

static sheaf_status *read_recipe(cli *cli, cli_option *table, sheaf_train_options *o,
                                 const char *recipe, int argc, char **more)
{
    static const char *const words[] = { "train", "--model", "M", "--data",
                                         "D",     "--out",   "O", "--recipe" };
    char *argv[32];
    int n = 0;
    for (; n < (int)ARRAY_LEN(words); n++)
        argv[n] = (char *)words[n];
    argv[n++] = (char *)recipe;
    for (int i = 0; i < argc; i++)
        argv[n++] = more[i];
    sheaf_train_options_default(o);
    sheaf__train_settings(table, o, false);
    *cli = (driver){ .out = stdout, .err = stderr, .command = &command };
    sheaf_status *st = cli_parse(cli, table, NULL, n, argv);
    return st != NULL ? st : sheaf__train_settings_check(&cli->settings, table, o);
}

static int64_t numbers_of(const sheaf_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static void resolve(const char *name, const char *model, const char *config,
                    const sheaf_train_options *o)
{
    sheaf_config c;
    sheaf_schema *schema;
    sheaf_lora *lora = NULL;
    sheaf_lora_options options = { 0 };
    sheaf__selection selection;
    CHECK_OK(sheaf_config_parse(&c, config, strlen(config)));
    CHECK_OK(sheaf_schema_new(&schema, &c, o->slices));
    if (o->method == SHEAF_METHOD_LORA) {
        CHECK_OK(sheaf_train_options_lora(&options, o));
        CHECK_OK(sheaf_lora_resolve(&lora, schema, &options));
    }
    CHECK_OK(sheaf__select(&selection, schema, lora, o, NULL));
    int64_t factors = 0, whole = 0;
    for (int i = 0; lora != NULL && i < lora->nmodules; i++)
        factors += lora->module[i].a_shape[0] * lora->module[i].a_shape[1] +
                   lora->module[i].b_shape[0] * lora->module[i].b_shape[1];
    for (int64_t i = 0; i < schema->count; i++)
        whole +=
            sheaf__selected(&selection, &schema->tensor[i]) ? numbers_of(&schema->tensor[i]) : 0;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        if (strcmp(counts[i].name, name) == 0 &&
            ((counts[i].factors >= 0 && factors != counts[i].factors) || whole < counts[i].least ||
             whole > counts[i].most))
            fail_msg("%s trains %lld numbers of factors and %lld others", name, (long long)factors,
                     (long long)whole);
    for (size_t i = 0; i < ARRAY_LEN(copies) && lora != NULL; i++) {
        sheaf__lora_sizes sizes;
        if (strcmp(copies[i].recipe, name) != 0 || strcmp(copies[i].config, model) != 0)
            continue;
        sheaf__lora_sizes_of(&sizes, lora, schema, NULL, NULL);
        if (sizes.factors != copies[i].factors || sizes.copies != copies[i].copies)
            fail_msg("%s of %s has %lld numbers of factors and %lld copies", name, model,
                     (long long)sizes.factors, (long long)sizes.copies);
    }
    sheaf__selection_release(&selection);
    sheaf_lora_free(lora);
    sheaf_lora_options_release(&options);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

/* Its first line names it, and it says where it differs from SAT's. */
static void check_header(const char *path, const char *name)
{
    const char *text = file_text(path, NULL);
    const char *start = textf("# %s - ", name);
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("%s does not begin with '%s'", path, start);
    if ((strncmp(name, "cogvlm-", 7) == 0 || strncmp(name, "cogagent-", 9) == 0) &&
        strstr(name, "-hf-") == NULL && strstr(text, "differs from SAT's") == NULL &&
        strstr(text, "Not as SAT") == NULL)
        fail_msg("%s does not say where it differs from SAT's", path);
}

TEST(test_recipes__each_is_read_and_fits_the_real_models)
{
    char **names;
    int64_t count, found = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, in_sources("recipes")));
    for (int64_t i = 0; i < count; i++) {
        char *dot = strrchr(names[i], '.');
        assert_true(dot != NULL && strcmp(dot, ".recipe") == 0);
        const char *path = in_sources("recipes/%s", names[i]);
        *dot = '\0';
        check_header(path, names[i]);
        cli cli;
        cli_option table[CLI_MAX_OPTIONS];
        sheaf_train_options o;
        CHECK_OK(read_recipe(&cli, table, &o, path, 0, NULL));
        assert_true((o.steps > 0 || o.epochs > 0) &&
                    (o.dtype == SHEAF_BF16 || strcmp(names[i], "minicpmv-lora") == 0));
        int fits = 0;
        size_t longest = 0; /* of several prefixes: cogvlm-hf- before cogvlm- */
        for (size_t m = 0; m < ARRAY_LEN(models); m++)
            if (strncmp(names[i], models[m].prefix, strlen(models[m].prefix)) == 0 &&
                strlen(models[m].prefix) > longest)
                longest = strlen(models[m].prefix);
        for (size_t m = 0; m < ARRAY_LEN(models); m++)
            if (strlen(models[m].prefix) == longest &&
                strncmp(names[i], models[m].prefix, longest) == 0) {
                char *config = models[m].config[0] == '{' ? strdup(models[m].config)
                                                          : published_config(models[m].config, "");
                resolve(names[i], models[m].config, config, &o);
                free(config);
                fits++;
            }
        if (fits == 0)
            fail_msg("%s: no model for it here", names[i]);
        for (size_t k = 0; k < ARRAY_LEN(counts); k++)
            found += strcmp(counts[k].name, names[i]) == 0;
        driver_release(&cli);
    }
    assert_int_equal(found, ARRAY_LEN(counts)); /* none of those listed above is missing */
    sheaf__names_free(names, count);
}

/* The settings of CogVLM's finetune_demo scripts and its test_config_bf16.json, and flags over
 * them. */
TEST(test_recipes__sats_settings)
{
    static const struct {
        const char *name;
        int64_t rank, steps, seq;
        double last;
    } demo[] = {
        { "cogvlm-lora", 10, 800, 1288, 1.008879722072778e-6 },
        { "cogagent-lora", 50, 2000, 400, 1.008879722072778e-6 },
    };
    for (size_t i = 0; i < ARRAY_LEN(demo); i++) {
        cli cli;
        cli_option table[CLI_MAX_OPTIONS];
        sheaf_train_options o;
        const char *path = in_sources("recipes/%s.recipe", demo[i].name);
        char *more[] = { (char *)"--tp=3", (char *)"--micro-batch=2", (char *)"--dtype=float32" };
        CHECK_OK(read_recipe(&cli, table, &o, path, 3, more));
        assert_true(o.tp == 3 && o.micro_batch == 2 && o.dtype == SHEAF_F32);
        assert_true(o.lora_rank == demo[i].rank && o.lora_alpha == 1 && o.steps == demo[i].steps &&
                    o.seq == demo[i].seq);
        assert_true(o.beta1 == 0.9 && o.beta2 == 0.95 && o.eps == 1e-8 && o.weight_decay == 0.05 &&
                    o.clip == 0.1);
        assert_true(o.seed == 2023 && o.save_every == 200 && o.checkpointing);
        const sheaf_schedule s =
            sheaf_train_options_schedule(&o); /* t = 101 and the last step, by hand */
        const double pi = 3.14159265358979323846, w = 0.02 * (double)o.steps;
        CHECK_NEAR("held", sheaf_schedule_rate(&s, o.lr, 99), 5e-7, 1e-21);
        CHECK_NEAR("not held", sheaf_schedule_rate(&s, o.lr, 100),
                   1e-6 * ((cos(pi * (101 - w) / (double)o.steps) + 1) * 4.5 + 1), 1e-20);
        CHECK_NEAR("last", sheaf_schedule_rate(&s, o.lr, o.steps - 1), demo[i].last, 1e-20);
        driver_release(&cli);
    }
}

/* Those of finetune_lora.sh and finetune_ds.sh, and the Trainer's warm-up and cosine. */
TEST(test_recipes__minicpmvs_settings)
{
    static const struct {
        const char *name;
        sheaf_dtype dtype;
    } scripts[] = { { "minicpmv-lora", SHEAF_F16 },
                    { "minicpmv-full", SHEAF_BF16 },
                    { "omnilmm-lora", SHEAF_BF16 },
                    { "omnilmm-full", SHEAF_BF16 } };
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        cli cli;
        cli_option table[CLI_MAX_OPTIONS];
        sheaf_train_options o;
        const char *path = in_sources("recipes/%s.recipe", scripts[i].name);
        CHECK_OK(read_recipe(&cli, table, &o, path, 0, NULL));
        assert_true(o.dtype == scripts[i].dtype && o.steps == 10000 && o.seq == 2048 &&
                    o.micro_batch == 1 && o.accumulate == 1 && o.checkpointing);
        assert_true(o.lr == 1e-6 && o.weight_decay == 0.1 && o.beta1 == 0.9 && o.beta2 == 0.95 &&
                    o.eps == 1e-8 && o.clip == 1 && o.save_every == 1000 && o.keep == 10);
        if (o.method == SHEAF_METHOD_LORA)
            assert_true(o.lora_rank == 64 && o.lora_alpha == 64 && o.lora_dropout == 0.05);
        const sheaf_schedule s = sheaf_train_options_schedule(&o);
        const double pi = 3.14159265358979323846;
        CHECK_NEAR("first", sheaf_schedule_rate(&s, o.lr, 0), 0, 0);
        CHECK_NEAR("half of the warm-up", sheaf_schedule_rate(&s, o.lr, 50), 5e-7, 1e-21);
        CHECK_NEAR("last", sheaf_schedule_rate(&s, o.lr, 9999),
                   0.5e-6 * (1 + cos(pi * 9899 / 9900.0)), 1e-20);
        driver_release(&cli);
    }
}

TEST(test_find__a_file_first_then_what_comes_with_sheaf)
{
    char *path;
    CHECK_OK(sheaf__make_dirs(at("shipped")));
    put(at("shipped/one.recipe"), "tp: 2\n");
    put(at("shipped/two.recipe"), "tp: 2\n");
    put(at("shipped/notes.txt"), "");
    put(at("mine.recipe"), "tp: 2\n");
    assert_int_equal(setenv("SHEAF_RECIPES", at("shipped"), 1), 0);
    static const struct {
        const char *name, *want;
    } found[] = { { "one", "shipped/one.recipe" }, { "two.recipe", "shipped/two.recipe" } };
    for (size_t i = 0; i < ARRAY_LEN(found); i++) {
        CHECK_OK(cli_recipe_find(&path, found[i].name));
        assert_string_equal(path, at(found[i].want));
        free(path);
    }
    CHECK_OK(cli_recipe_find(&path, at("mine.recipe")));
    assert_string_equal(path, at("mine.recipe"));
    free(path);
    CHECK_OK(cli_recipe_find(&path, "no/such/file")); /* reading tells */
    free(path);
    CHECK_FAILS(cli_recipe_find(&path, "onee"), SHEAF_E_IO, "did you mean one");
    CHECK_FAILS(cli_recipe_find(&path, "quite different"), SHEAF_E_IO, "one of: one, two");
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(scratch.dir), 0);
    put("one", "tp: 3\n");
    CHECK_OK(sheaf__make_dirs("two")); /* the folder of a run, say */
    CHECK_OK(cli_recipe_find(&path, "one"));
    assert_string_equal(path, "one");
    free(path);
    CHECK_OK(cli_recipe_find(&path, "two"));
    assert_string_equal(path, at("shipped/two.recipe"));
    free(path);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(setenv("SHEAF_RECIPES", at("nothing"), 1), 0);
    CHECK_FAILS(cli_recipe_find(&path, "two"), SHEAF_E_IO, "SHEAF_RECIPES=DIR");
    unsetenv("SHEAF_RECIPES");
}

FIXTURE(make_scratch, remove_scratch);
