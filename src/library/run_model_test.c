/* run_model_test.c - what a checkpoint itself says of its run: a later contract is refused by
 * whatever uses the run, what was fixed then holds, and old runs go on. */
#include "base/hash.h"
#include "library/run_model.h"
#include "library/train_settings.h"
#include "sheaf/sheaf.h"
#include "tests/files.h"
#include "train/contract.h"

static char model[400], data[400];

static sheaf_status *train(const char *out, int64_t steps, bool resume, const char *settings)
{
    sheaf_run_train_options how;
    SHEAF_INIT(&how);
    how.model = resume ? NULL : model;
    how.data = resume ? NULL : data;
    how.out = at(out);
    how.steps = steps;
    how.resume = resume;
    how.threads = 2;
    how.settings = settings;
    return sheaf_run_train(NULL, &how);
}

static int train_once(void **state)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    snprintf(model, sizeof model, "%s/tests/data/llama/tiny_llama/hf", root == NULL ? "." : root);
    snprintf(data, sizeof data, "%s/tests/data/llama/tiny_llama/fwd_inputs.safetensors",
             root == NULL ? "." : root);
    if (make_scratch(state) != 0)
        return 1;
    CHECK_OK(train("run", 1, false, "dtype: bfloat16\nbf16-sums: pairs\nlr: 1e-2\n"));
    return 0;
}

/* The manifest of the step that `out` has, `was` in it replaced by `is`, and its own hash renewed.
 */
static void change_manifest(const char *out, const char *was, const char *is)
{
    char name[80], *text, hash[33];
    size_t size;
    snprintf(name, sizeof name, "%s/checkpoints/step-00000001/manifest.json", out);
    CHECK_OK(sheaf__file_read_all(&text, &size, at(name), 1 << 20));
    const char *found = strstr(text, was);
    assert_non_null(found);
    char *changed = malloc(size + strlen(is) + 1);
    assert_non_null(changed);
    sprintf(changed, "%.*s%s%s", (int)(found - text), text, is, found + strlen(was));
    char *self = strstr(changed, "\"self\": \"");
    assert_non_null(self);
    memcpy(strchr(self, ':') + 3,
           sheaf__hash_text(hash, sheaf__hash(changed, (size_t)(self - changed))), 32);
    put(at(name), changed);
    free(changed);
    free(text);
}

static sheaf_status *evaluate(const char *path, const char *adapter)
{
    sheaf_model_evaluate_options how;
    SHEAF_INIT(&how);
    how.model = path;
    how.adapter = adapter;
    how.data = data;
    return sheaf_model_evaluate(NULL, &how);
}

static sheaf_status *open_late(const char *path)
{
    sheaf_model_open_options how;
    sheaf_model *m = NULL;
    SHEAF_INIT(&how);
    how.model = path;
    how.late = true;
    sheaf_status *st = sheaf_model_open(&m, &how);
    sheaf_model_close(m);
    return st;
}

static void test_contract__of_a_later_version_is_refused(void **state)
{
    char was[40], is[40], says[200];
    const char *const step = "run/checkpoints/step-00000001";
    CHECK_OK(evaluate(at(step), NULL));
    snprintf(was, sizeof was, "\"contract\": 6,");
    snprintf(is, sizeof is, "\"contract\": %d,", SHEAF__CONTRACT + 1);
    change_manifest("run", was, is);
    snprintf(says, sizeof says,
             "the numeric contract of the run | version 1 to %d, which this sheaf knows | version "
             "%d | a newer sheaf",
             SHEAF__CONTRACT, SHEAF__CONTRACT + 1);
    CHECK_FAILS(evaluate(at(step), NULL), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(at("run"), NULL), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(model, at("run")), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(model, at(step)), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(open_late(at(step)), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(open_late(at("run")), SHEAF_E_UNSUPPORTED, says);
    CHECK_OK(evaluate(model, at("run/adapter"))); /* which names no contract */
    change_manifest("run", is, was);
    CHECK_OK(evaluate(at("run"), NULL));
}

/* How `path` would be computed: "SUMS, LORA, SLICES". */
static const char *way(char out[60], const char *path)
{
    sheaf__opened opened;
    sheaf__run_model run;
    CHECK_OK(sheaf__run_model_open(&opened, &run, &(sheaf__open_options){ .model = path }));
    assert_int_equal(opened.schema->slices, run.slices);
    snprintf(out, 60, "%s, %s, %d", sheaf__sums_name(run.dtype, run.sums),
             run.lora_by_slice ? "slices" : "once", run.slices);
    sheaf__opened_close(&opened);
    sheaf__run_model_release(&run);
    return out;
}

static void check_ways(const char *want)
{
    char is[60];
    assert_string_equal(way(is, at("run/checkpoints/step-00000001")), want);
    assert_string_equal(way(is, at("run")), want);
}

/* Whatever the file beside it says, or does not say. */
static void test_settings__are_those_of_the_checkpoint(void **state)
{
    static const char began[] = "lora-sums: once\\n", fixed[] = "bf16-sums: pairs\\n";
    char others[600], *text;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, at("run/settings"), 1 << 20));
    check_ways("pairs, once, 8");
    snprintf(others, sizeof others, "model: '%s'\nbf16-sums: tiles\nlora-sums: slices\nslices: 2\n",
             model);
    put(at("run/settings"), others);
    check_ways("pairs, once, 8");
    snprintf(others, sizeof others, "model: '%s'\n", model);
    put(at("run/settings"), others);
    check_ways("pairs, once, 8");
    /* As runs have it from before there was a choice: the file names what the run did not. */
    put(at("run/settings"), text);
    change_manifest("run", began, "");
    change_manifest("run", fixed, "");
    check_ways("pairs, slices, 8");
    free(text);
}

/* ---- runs that go on ---- */

/* OUT/settings with `was` replaced by `is`. */
static void change_settings(const char *out, const char *was, const char *is)
{
    char name[80], *text, *changed = NULL;
    size_t size;
    snprintf(name, sizeof name, "%s/settings", out);
    CHECK_OK(sheaf__file_read_all(&text, &size, at(name), 1 << 20));
    const char *found = strstr(text, was);
    assert_non_null(found);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(found - text), text, is, found + strlen(was)) >
                0);
    put(at(name), changed);
    free(changed);
    free(text);
}

static void check_settings(const char *out, const char *line, bool there)
{
    char name[80], *text;
    size_t size;
    snprintf(name, sizeof name, "%s/settings", out);
    CHECK_OK(sheaf__file_read_all(&text, &size, at(name), 1 << 20));
    if ((strstr(text, line) != NULL) != there)
        fail_msg("%s: '%s' %s in its settings", out, line, there ? "is not" : "is");
    free(text);
}

static void check_same(const char *a, const char *b)
{
    sheaf_weights_diff_report report;
    SHEAF_INIT(&report);
    CHECK_OK(sheaf_weights_diff(&report, at(a), at(b), NULL));
    assert_true(report.tensors > 0 && report.different == 0);
}

/* Until runs in float32 refused an order of bfloat16 sums they stored it. */
static void test_resume__an_order_that_means_nothing_stays(void **state)
{
    CHECK_OK(train("float", 1, false, "bf16-sums: tiles\n"));
    check_settings("float", "bf16-sums", false);
    change_manifest("float", "dtype: float32\\n", "dtype: float32\\nbf16-sums: tiles\\n");
    change_settings("float", "dtype: float32\n", "dtype: float32\nbf16-sums: tiles\n");
    CHECK_OK(train("float", 2, true, NULL));
    check_settings("float", "bf16-sums: tiles", true);
}

/* As if the run had begun before these three could be named. */
static void test_resume__what_a_run_does_anyway_may_be_named(void **state)
{
    static const char *const lines[] = { "lora-sums: slices", "padding: file", "bf16-sums: pairs" };
    static const char *const others[] = { "lora-sums: once\n", "padding: micro-batch\n",
                                          "bf16-sums: tiles\n" };
    static const char all[] = "lora-sums: slices\npadding: file\nbf16-sums: pairs\n",
                      type[] = "dtype: bfloat16\nlora-sums: slices\npadding: file\n"
                               "bf16-sums: pairs\n";
    CHECK_OK(train("named", 2, false, type));
    CHECK_OK(train("silent", 1, false, type));
    for (int i = 0; i < 3; i++) {
        char line[40], in_json[40];
        snprintf(line, sizeof line, "%s\n", lines[i]);
        snprintf(in_json, sizeof in_json, "%s\\n", lines[i]);
        change_settings("silent", line, "");
        change_manifest("silent", in_json, "");
    }
    for (int i = 0; i < 3; i++) {
        char says[80];
        snprintf(says, sizeof says, "| %s, as the run began | ", strchr(lines[i], ':') + 2);
        CHECK_FAILS(train("silent", 2, true, others[i]), SHEAF_E_ARG, says);
    }
    CHECK_OK(train("silent", 2, true, all));
    for (int i = 0; i < 3; i++)
        check_settings("silent", lines[i], false);
    check_same("silent/adapter", "named/adapter");
}

/* Until flags beside an adapter were compared with it, settings had what flags said. */
static void test_resume__settings_that_are_not_the_adapters_stay(void **state)
{
    char settings[600];
    snprintf(settings, sizeof settings, "adapter: '%s'\n", at("run/adapter"));
    CHECK_OK(train("further", 1, false, settings));
    CHECK_OK(train("further too", 2, false, settings));
    check_settings("further", "lora-rank: 8\n", true);
    change_settings("further", "lora-rank: 8\n", "lora-rank: 2\n");
    change_manifest("further", "lora-rank: 8\\n", "lora-rank: 2\\n");
    CHECK_OK(train("further", 2, true, NULL));
    check_settings("further", "lora-rank: 2\n", true);
    check_same("further/adapter", "further too/adapter");
}

static void test_contract__is_that_of_its_page(void **state)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    char path[400], title[60], *text;
    size_t size;
    snprintf(path, sizeof path, "%s/docs/contract.md", root == NULL ? "." : root);
    CHECK_OK(sheaf__file_read_all(&text, &size, path, 1 << 20));
    snprintf(title, sizeof title, "# The numeric contract, version %d\n", SHEAF__CONTRACT);
    assert_ptr_equal(strstr(text, title), text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract__of_a_later_version_is_refused),
        cmocka_unit_test(test_contract__is_that_of_its_page),
        cmocka_unit_test(test_settings__are_those_of_the_checkpoint),
        cmocka_unit_test(test_resume__an_order_that_means_nothing_stays),
        cmocka_unit_test(test_resume__what_a_run_does_anyway_may_be_named),
        cmocka_unit_test(test_resume__settings_that_are_not_the_adapters_stay),
    };
    return cmocka_run_group_tests(tests, train_once, remove_scratch);
}
