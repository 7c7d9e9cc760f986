/* run_model_test.c - what a checkpoint itself says of its run: another contract is refused by
 * whatever uses the run, an older one too, and what was fixed then holds. */
#include "base/hash.h"
#include "library/run_model.h"
#include "models/sums.h"
#include "sheaf/sheaf.h"
#include "tests/tiny_llama.h"
#include "tests/sources.h"

static sheaf_status *train(const char *out, int64_t steps, bool resume, const char *settings)
{
    sheaf_run_train_options how = { .size = sizeof how,
                                    .model = resume ? NULL : model,
                                    .data = resume ? NULL : data,
                                    .out = at(out),
                                    .steps = steps,
                                    .resume = resume,
                                    .threads = 2,
                                    .settings = settings };
    return sheaf_run_train(NULL, &how);
}

static int train_once(void **state)
{
    if (find_data(state) != 0)
        return 1;
    CHECK_OK(train("run", 1, false, "dtype: bfloat16\nsums: pairs\nlr: 1e-2\n"));
    return 0;
}

/* What a file holds, with `was` in it replaced by `is`. */
static char *replaced(const char *path, const char *was, const char *is)
{
    const char *text = file_text(path, NULL);
    char *changed = NULL;
    const char *found = strstr(text, was);
    assert_non_null(found);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(found - text), text, is, found + strlen(was)) >
                0);
    return changed;
}

/* The manifest of the step that `out` has, `was` in it replaced by `is`, and its own hash renewed.
 */
static void change_manifest(const char *out, const char *was, const char *is)
{
    const char *path = at_format("%s/checkpoints/step-00000001/manifest.json", out);
    char *changed = replaced(path, was, is), hash[33];
    char *self = strstr(changed, "\"self\": \"");
    assert_non_null(self);
    memcpy(strchr(self, ':') + 3,
           sheaf__hash_text(hash, sheaf__hash(changed, (size_t)(self - changed))), 32);
    put(path, changed);
    free(changed);
}

static sheaf_status *evaluate(const char *path, const char *adapter)
{
    sheaf_model *m;
    sheaf_model_open_options open = {
        .size = sizeof open, .model = path, .adapter = adapter, .late = true
    };
    sheaf_model_evaluate_options how = { .size = sizeof how };
    open.evaluates = how.data = data;
    sheaf_status *st = sheaf_model_open(&m, &open);
    TRY(st, sheaf_model_evaluate(NULL, m, &how));
    sheaf_model_close(m);
    return st;
}

static sheaf_status *open_late(const char *path)
{
    sheaf_model *m = NULL;
    sheaf_model_open_options how = { .size = sizeof how, .model = path, .late = true };
    sheaf_status *st = sheaf_model_open(&m, &how);
    sheaf_model_close(m);
    return st;
}

TEST(test_contract__of_another_version_is_refused)
{
    static const char says[] = "written by another version of sheaf | numeric contract 2, which "
                               "this one reads | numeric contract 1";
    const char *const step = "run/checkpoints/step-00000001";
    CHECK_OK(evaluate(at(step), NULL));
    change_manifest("run", "\"contract\": 2,", "\"contract\": 1,");
    CHECK_FAILS(evaluate(at(step), NULL), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(at("run"), NULL), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(model, at("run")), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(evaluate(model, at(step)), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(open_late(at(step)), SHEAF_E_UNSUPPORTED, says);
    CHECK_FAILS(open_late(at("run")), SHEAF_E_UNSUPPORTED, says);
    CHECK_OK(evaluate(model, at("run/adapter"))); /* names no contract */
    CHECK_FAILS(train("run", 2, true, NULL), SHEAF_E_UNSUPPORTED, says);
    change_manifest("run", "\"contract\": 1,", "\"contract\": 2,");
    CHECK_OK(evaluate(at("run"), NULL));
}

/* How `path` would be computed: "SUMS, SLICES". */
static const char *way(char out[60], const char *path)
{
    sheaf__opened opened;
    sheaf__run_model run;
    CHECK_OK(sheaf__run_model_open(&opened, &run, &(sheaf__open_options){ .model = path }));
    assert_int_equal(opened.schema->slices, run.r.options.slices);
    snprintf(out, 60, "%s, %d", sheaf__sums_name(run.r.options.dtype, run.r.options.sums),
             run.r.options.slices);
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
TEST(test_settings__are_those_of_the_checkpoint)
{
    const char *text = file_text(at("run/settings"), NULL);
    check_ways("pairs, 8");
    put(at("run/settings"), textf("model: '%s'\nsums: tiles\nslices: 2\n", model));
    check_ways("pairs, 8");
    put(at("run/settings"), textf("model: '%s'\n", model));
    check_ways("pairs, 8");
    put(at("run/settings"), text);
}

/* ---- runs that go on ---- */

/* OUT/settings with `was` replaced by `is`. */
static void change_settings(const char *out, const char *was, const char *is)
{
    const char *path = at_format("%s/settings", out);
    char *changed = replaced(path, was, is);
    put(path, changed);
    free(changed);
}

static void check_settings(const char *out, const char *line, bool there)
{
    const char *text = file_text(at_format("%s/settings", out), NULL);
    if ((strstr(text, line) != NULL) != there)
        fail_msg("%s: '%s' %s in its settings", out, line, there ? "is not" : "is");
}

static void check_same(const char *a, const char *b)
{
    sheaf_weights_diff_report report = { .size = sizeof report };
    CHECK_OK(sheaf_weights_diff(&report, at(a), at(b), NULL));
    assert_true(report.tensors > 0 && report.different == 0);
}

/* Until flags beside an adapter were compared with it, settings had what flags said. */
TEST(test_resume__settings_that_are_not_the_adapters_stay)
{
    const char *settings = textf("adapter: '%s'\n", at("run/adapter"));
    CHECK_OK(train("further", 1, false, settings));
    CHECK_OK(train("further too", 2, false, settings));
    check_settings("further", "lora-rank: 8\n", true);
    change_settings("further", "lora-rank: 8\n", "lora-rank: 2\n");
    change_manifest("further", "lora-rank: 8\\n", "lora-rank: 2\\n");
    CHECK_OK(train("further", 2, true, NULL));
    check_settings("further", "lora-rank: 2\n", true);
    check_same("further/adapter", "further too/adapter");
}

TEST(test_contract__is_that_of_its_page)
{
    const char *text = file_text(in_sources("docs/contract.md"), NULL);
    const char *title = textf("# The numeric contract, version %d\n", SHEAF__CONTRACT);
    assert_ptr_equal(strstr(text, title), text);
}

FIXTURE(train_once, remove_scratch);
