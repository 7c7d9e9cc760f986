/* options_test.c - adapter_config.json as PEFT writes it, and what is refused in one. */
#include "tests/files.h"
#include "tests/golden.h"

#include "base/json.h"
#include "lora/adapter.h"

/* ---- all recorded adapters ---- */

/* Those PEFT made that are more than plain LoRA on linear layers, and the word for it. */
static const struct {
    const char *part, *what;
} refused[] = {
    { "/lora_bias/", "a bias on B" },
    { "/trainable_tokens/", "trained token rows" },
};

static sheaf_status *read_text(sheaf_lora_options *out, const char *text)
{
    put(at("adapter_config.json"), text);
    return sheaf_lora_options_read(out, at("adapter_config.json"), NULL);
}

/* Written again, a file PEFT wrote has the same keys, values and bytes. */
static void one_file(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (strstr(path, refused[i].part) != NULL) {
            sheaf_lora_options o;
            CHECK_OK(sheaf_lora_options_read(&o, path, NULL));
            CHECK_FAILS(sheaf_lora_check_runs(&o), SHEAF_E_UNSUPPORTED, refused[i].what);
            sheaf_lora_options_release(&o);
            return;
        }
    sheaf_lora_options o, again;
    CHECK_OK(sheaf_lora_options_read(&o, path, NULL));
    assert_null(o.unknown_keys);
    char *text, *once_more;
    const char *original = file_text(path, NULL);
    CHECK_OK(sheaf_lora_options_json(&text, &o));
    CHECK_OK(read_text(&again, text));
    CHECK_OK(sheaf_lora_options_json(&once_more, &again));
    assert_string_equal(text, once_more);
    json_t *mine = json_loads(text, 0, NULL), *theirs = json_loads(original, 0, NULL);
    assert_non_null(mine);
    assert_non_null(theirs);
    /* GPT-2's flag means nothing for linear layers; a custom class is written as null. */
    const bool odd = strstr(path, "gpt2") != NULL || strstr(path, "/lora_qkvo/") != NULL ||
                     strstr(path, "/lora_all/") != NULL || strstr(path, "conv2d") != NULL;
    if (!odd) {
        if (!json_equal(mine, theirs))
            fail_msg("%s: wrote %s\nfor %s", path, text, original);
        /* those of golden/omnilmm were laid out anew after PEFT wrote them */
        if (strstr(path, "/llama/tiny_") != NULL && strcmp(text, original) != 0)
            fail_msg("%s", path);
    }
    json_decref(mine);
    json_decref(theirs);
    free(text), free(once_more);
    sheaf_lora_options_release(&o);
    sheaf_lora_options_release(&again);
}

static int walk(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    if (d == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        const char *path = textf("%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, "adapter_config.json") == 0) {
            one_file(path);
            n++;
        } else if (sheaf__path_kind(path) == SHEAF_PATH_DIR) {
            n += walk(path);
        }
    }
    closedir(d);
    return n;
}

TEST(test_config__every_recorded_adapter_reads_and_writes_back)
{
    const int n = walk(golden(""));
    print_message("%d adapter_config.json\n", n);
    assert_true(n >= (golden_is_full() ? 61 : 1));
}

/* ---- single keys ---- */

static const struct {
    const char *extra;
    sheaf_code code;
    const char *part;
} bad[] = {
    { "\"peft_type\": \"LOHA\"", SHEAF_E_UNSUPPORTED, "'peft_type' | \"LORA\"" },
    { "\"peft_type\": null", SHEAF_E_FORMAT, "'peft_type'" },
    { "\"layer_replication\": [[0, 4], [2, 5]]", SHEAF_E_UNSUPPORTED, "layer replication" },
    { "\"target_parameters\": \"x\"", SHEAF_E_FORMAT, "'target_parameters' | a list of names" },
    { "\"alora_invocation_tokens\": [1]", SHEAF_E_UNSUPPORTED, "activated LoRA" },
    { "\"use_qalora\": true", SHEAF_E_UNSUPPORTED, "QA-LoRA" },
    { "\"kasa_config\": {\"a\": 1}", SHEAF_E_UNSUPPORTED, "KaSA" },
    { "\"init_lora_weights\": \"pissa\"", SHEAF_E_UNSUPPORTED, "'init_lora_weights'" },
    { "\"init_lora_weights\": \"loftq\"", SHEAF_E_UNSUPPORTED,
      "path_initial_model_for_weight_conversion" },
    { "\"r\": 0", SHEAF_E_FORMAT, "'r'" },
    { "\"r\": 1.5", SHEAF_E_FORMAT, "'r'" },
    { "\"r\": \"8\"", SHEAF_E_FORMAT, "'r'" },
    { "\"lora_alpha\": \"x\"", SHEAF_E_FORMAT, "'lora_alpha'" },
    { "\"bias\": \"some\"", SHEAF_E_FORMAT, "'bias'" },
    { "\"target_modules\": 3", SHEAF_E_FORMAT, "'target_modules'" },
    { "\"target_modules\": [\"a\", 3]", SHEAF_E_FORMAT, "'target_modules'" },
    { "\"target_modules\": [\"\"]", SHEAF_E_FORMAT, "'target_modules'" },
    { "\"modules_to_save\": \"lm_head\"", SHEAF_E_FORMAT, "'modules_to_save'" },
    { "\"rank_pattern\": {\"q\": 0}", SHEAF_E_FORMAT, "'rank_pattern'" },
    { "\"rank_pattern\": {\"q\": 2.5}", SHEAF_E_FORMAT, "'rank_pattern'" },
    { "\"alpha_pattern\": {\"q\": \"x\"}", SHEAF_E_FORMAT, "'alpha_pattern'" },
    { "\"layers_to_transform\": [-1]", SHEAF_E_FORMAT, "'layers_to_transform'" },
    { "\"layers_pattern\": \"layers\"", SHEAF_E_FORMAT, "'layers_pattern'" },
    { "\"target_modules\": \".*q\", \"layers_to_transform\": 1", SHEAF_E_FORMAT,
      "'layers_to_transform'" },
};

TEST(test_config__what_is_refused_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const bool typed = strstr(bad[i].extra, "peft_type") != NULL;
        const char *text = textf("{%s%s}", typed ? "" : "\"peft_type\": \"LORA\", ", bad[i].extra);
        sheaf_lora_options o;
        CHECK_FAILS(read_text(&o, text), bad[i].code, bad[i].part);
    }
}

TEST(test_config__unknown_keys_are_kept_in_mind)
{
    sheaf_lora_options o;
    CHECK_OK(read_text(
        &o,
        "{\"peft_type\": \"LORA\", \"new_thing\": 3, \"newer\": false, \"newest\": \"x\", \"target_modules\": "
        "\"ALL-linear\", \"layers_to_transform\": null}"));
    assert_string_equal(o.unknown_keys, "new_thing, newest");
    assert_true(o.all_linear && o.rank == 8 && o.alpha == 8 && o.tolerant);
    sheaf_lora_options copy;
    CHECK_OK(sheaf__lora_options_copy(&copy, &o));
    sheaf_lora_options_release(&o);
    assert_string_equal(copy.unknown_keys, "new_thing, newest");
    sheaf_lora_options_release(&copy);
    /* found by ./run fuzz: its empty text leaked, which the sanitizers see */
    CHECK_OK(read_text(&o, "{\"peft_type\": \"LORA\", \"\": 3}"));
    assert_null(o.unknown_keys);
    sheaf_lora_options_release(&o);
}

/* ---- words of a flag ---- */

TEST(test_words__lists_expressions_and_patterns)
{
    sheaf_lora_options o;
    CHECK_OK(sheaf__lora_options_default(&o));
    CHECK_OK(sheaf__lora_set_targets(&o, " q_proj , model.layers.0.mlp.up_proj"));
    assert_int_equal(o.targets.n, 2);
    assert_string_equal(o.targets.list[0], "q_proj");
    CHECK_OK(sheaf__lora_set_exclude(&o, "a|b,c"));
    assert_string_equal(o.exclude.regex, "a|b,c");
    CHECK_OK(sheaf__lora_set_pattern(&o.rank_pattern, "q{1,2}=4,(?=x)v=1e1", true));
    assert_int_equal(o.rank_pattern.n, 2);
    assert_string_equal(o.rank_pattern.at[0].key, "q{1,2}");
    assert_string_equal(o.rank_pattern.at[1].key, "(?=x)v");
    assert_true(o.rank_pattern.at[0].value == 4 && o.rank_pattern.at[1].value == 10);
    sheaf_lora_options_release(&o);
    static const char *const bad_patterns[] = { "q",    "=3",    "q=",    "q=x",  "q=0",
                                                "q=-1", "q=1.5", "q=nan", "q=2,", "q=2,r" };
    for (size_t i = 0; i < ARRAY_LEN(bad_patterns); i++) {
        CHECK_OK(sheaf__lora_options_default(&o));
        sheaf_status *st = sheaf__lora_set_pattern(&o.rank_pattern, bad_patterns[i], true);
        if (strcmp(bad_patterns[i], "q=2,") == 0)
            CHECK_OK(st); /* a comma at the end is forgiven */
        else
            CHECK_FAILS(st, SHEAF_E_ARG, "PATTERN=RANK");
        sheaf_lora_options_release(&o);
    }
    CHECK_OK(sheaf__lora_options_default(&o));
    CHECK_FAILS(sheaf__lora_set_targets(&o, "a,,b"), SHEAF_E_ARG, "single commas");
    CHECK_FAILS(sheaf__lora_set_layers(&o, "1,-2"), SHEAF_E_ARG, "-2");
    sheaf_lora_options_release(&o);
}

/* ---- kinds that are only merged ---- */

TEST(test_config__kinds_that_are_only_merged_and_keys_of_no_list)
{
    sheaf_lora_options o;
    CHECK_OK(read_text(
        &o,
        "{\"peft_type\": \"LORA\", \"use_dora\": true, \"lora_bias\": true, \"trainable_token_indices\": [3, 1]}"));
    assert_true(o.dora);
    CHECK_FAILS(sheaf_lora_check_runs(&o), SHEAF_E_UNSUPPORTED, "a bias on B");
    o.lora_bias = false;
    CHECK_FAILS(sheaf_lora_check_runs(&o), SHEAF_E_UNSUPPORTED, "trained token rows");
    assert_true(o.ntokens == 1 && o.tokens[0].module == NULL);
    assert_true(o.tokens[0].nrows == 2 && o.tokens[0].row[0] == 3 && o.tokens[0].row[1] == 1);
    sheaf_lora_options_release(&o);
    CHECK_OK(read_text(
        &o, "{\"peft_type\": \"LORA\", \"trainable_token_indices\": {\"a\": [0], \"b.c\": []}}"));
    assert_true(!o.dora && o.ntokens == 2 && strcmp(o.tokens[1].module, "b.c") == 0 &&
                o.tokens[1].nrows == 0);
    sheaf_lora_options_release(&o);
    static const struct {
        const char *text;
        sheaf_code code;
        const char *part;
    } wrong[] = {
        { "\"trainable_token_indices\": {\"a\": 3}", SHEAF_E_FORMAT, "lists of rows" },
        { "\"trainable_token_indices\": [1.5]", SHEAF_E_FORMAT, "numbers of rows" },
        { "\"trainable_token_indices\": \"all\"", SHEAF_E_FORMAT, "a list of rows" },
        { "\"use_dora\": 1", SHEAF_E_FORMAT, "use_dora" },
        { "\"layer_replication\": [[0, 1]]", SHEAF_E_UNSUPPORTED, "layer replication" },
        { "\"use_something\": true", SHEAF_E_UNSUPPORTED, "use_something" },
        { "\"a_switch\": true", SHEAF_E_UNSUPPORTED, "a_switch" },
        { "\"new_thing\": {\"a\": 1}", SHEAF_E_UNSUPPORTED, "new_thing" },
        { "\"new_rows\": [1]", SHEAF_E_UNSUPPORTED, "new_rows" },
        { "\"some_config\": {\"x\": 1}", SHEAF_E_UNSUPPORTED, "some_config" },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const char *text = textf("{\"peft_type\": \"LORA\", %s}", wrong[i].text);
        CHECK_FAILS(read_text(&o, text), wrong[i].code, wrong[i].part);
    }
    CHECK_OK(read_text(
        &o,
        "{\"peft_type\": \"LORA\", \"use_something\": false, \"some_config\": null, \"none\": {}, \"word\": \"x\"}"));
    assert_string_equal(o.unknown_keys, "word");
    sheaf_lora_options_release(&o);
}

FIXTURE(make_scratch, remove_scratch);
