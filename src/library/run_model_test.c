/* run_model_test.c - what a checkpoint itself says of its run: a later contract is refused by
 * whatever uses the run, and what was fixed then holds. */
#include "base/hash.h"
#include "library/run_model.h"
#include "library/train_settings.h"
#include "sheaf/sheaf.h"
#include "tests/files.h"
#include "train/contract.h"

static char model[400], data[400];

static int train_once(void **state)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    sheaf_run_train_options how;
    snprintf(model, sizeof model, "%s/tests/data/llama/tiny_llama/hf", root == NULL ? "." : root);
    snprintf(data, sizeof data, "%s/tests/data/llama/tiny_llama/fwd_inputs.safetensors",
             root == NULL ? "." : root);
    if (make_scratch(state) != 0)
        return 1;
    SHEAF_INIT(&how);
    how.model = model;
    how.data = data;
    how.out = at("run");
    how.steps = 1;
    how.threads = 2;
    how.settings = "dtype: bfloat16\nbf16-sums: pairs\nlr: 1e-2\n";
    CHECK_OK(sheaf_run_train(NULL, &how));
    return 0;
}

/* The manifest of the run's step, `was` in it replaced by `is`, and its own hash renewed. */
static void change_manifest(const char *was, const char *is)
{
    static const char name[] = "run/checkpoints/step-00000001/manifest.json";
    char *text, hash[33];
    size_t size;
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
    change_manifest(was, is);
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
    change_manifest(is, was);
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
    change_manifest(began, "");
    change_manifest(fixed, "");
    check_ways("pairs, slices, 8");
    free(text);
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
    };
    return cmocka_run_group_tests(tests, train_once, remove_scratch);
}
