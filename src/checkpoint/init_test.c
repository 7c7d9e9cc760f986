/* init_test.c - new models: what each number depends on, and that the folder is one. */
#include "tests/check.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/diff.h"
#include "checkpoint/init.h"
#include "dialects/hf.h"
#include "ops/kernels.h"

static char folder[64];

static char *path_in(const char *name)
{
    char *path;
    CHECK_OK(sheaf__path_join(&path, folder, name));
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char small[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"vocab_size\": 37, \"hidden_size\": 12, "
    "\"intermediate_size\": 20, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "
    "\"initializer_range\": 0.5, \"tie_word_embeddings\": true, \"eos_token_id\": [1, 2], \"dtype\": \"bfloat16\"}";

static void init(const char *spec, const char *name, uint64_t seed, const sheaf_dtype *dtype, int threads)
{
    char *dst = path_in(name);
    sheaf_init_report report;
    CHECK_OK(sheaf_init(&report, &(sheaf_init_options){ .spec = spec, .dst = dst, .seed = seed, .dtype = dtype, .threads = threads }));
    assert_true(report.tensors > 0 && report.parameters > 0);
    free(dst);
}

static void ignore(void *context, const sheaf_diff_item *item) { }

static sheaf_diff_report compare(const char *a, const char *b)
{
    char *p = path_in(a), *q = path_in(b);
    sheaf_diff_report report;
    CHECK_OK(sheaf_diff(&report, p, q, ignore, NULL));
    free(p);
    free(q);
    return report;
}

static void test_init__is_a_function_of_seed_name_and_index(void **state)
{
    char *spec = path_in("config.json"), *dir = path_in("one");
    write_text(spec, small);
    const sheaf_dtype f32 = SHEAF_F32;
    init(spec, "one", 7, &f32, 1);
    sheaf_source *source;
    CHECK_OK(sheaf_hf_open(&source, dir));
    assert_int_equal(source->count(source), 2 + 2 * 12);
    for (int64_t i = 0; i < source->count(source); i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, n = e->shape[0] * cols;
        const bool bias = strstr(e->name, ".bias") != NULL;
        float got[37 * 12 + 1];
        assert_true(n <= 37 * 12 && e->dtype == SHEAF_F32);
        CHECK_OK(source->read(source, e->name, 0, e->shape[0], 0, cols, got));
        for (int64_t k = 0; k < n; k++) {
            const float want = e->ndim == 1 ? (bias ? 0 : 1)
                                            : sheaf__random_normal(7, sheaf__name_key(e->name), (uint64_t)k) * 0.5f;
            if (got[k] != want)
                fail_msg("%s[%d]: %g, wanted %g", e->name, (int)k, (double)got[k], (double)want);
        }
    }
    source->close(source);
    free(spec);
    free(dir);
}

static void test_init__threads_change_nothing_seeds_all(void **state)
{
    init("tiny-bytes", "a", 1, NULL, 1);
    init("tiny-bytes", "b", 1, NULL, 3);
    init("tiny-bytes", "c", 2, NULL, 3);
    assert_true(compare("a", "b").same);
    const sheaf_diff_report other = compare("a", "c");
    assert_int_equal(other.different, 2 + 4 * 7); /* norms are all ones */
    assert_true(other.tensors == 39 && other.config_keys == 0);
}

/* The config's type is used, said in the copy, and is one rounding of the float32 model. */
static void test_init__half_precision_rounds_once(void **state)
{
    char *spec = path_in("config.json"), *half = path_in("half"), *whole = path_in("whole");
    const sheaf_dtype f32 = SHEAF_F32;
    write_text(spec, small);
    init(spec, "half", 3, NULL, 1);
    init(spec, "whole", 3, &f32, 1);
    sheaf_source *a, *b;
    CHECK_OK(sheaf_hf_open(&a, half));
    CHECK_OK(sheaf_hf_open(&b, whole));
    for (int64_t i = 0; i < a->count(a); i++) {
        const sheaf_source_entry *e = a->entry(a, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, n = e->shape[0] * cols;
        uint16_t got[37 * 12], want[37 * 12];
        float exact[37 * 12];
        assert_int_equal(e->dtype, SHEAF_BF16);
        CHECK_OK(a->read(a, e->name, 0, e->shape[0], 0, cols, got));
        CHECK_OK(b->read(b, e->name, 0, e->shape[0], 0, cols, exact));
        sheaf__kernels_for("ref")->convert(want, SHEAF_BF16, exact, SHEAF_F32, n);
        CHECK_BYTES(e->name, got, want, n * 2);
    }
    a->close(a);
    b->close(b);
    free(spec), free(half), free(whole);
}

static void test_init__built_in_names_are_sound_configs(void **state)
{
    for (const sheaf_init_spec *s = sheaf_init_specs(); s->name != NULL; s++) {
        char *json;
        sheaf_config config;
        sheaf_schema *schema;
        CHECK_OK(sheaf__init_config(&json, s->name));
        assert_non_null(json);
        CHECK_OK(sheaf_config_parse(&config, json, strlen(json)));
        assert_null(config.unknown_keys);
        CHECK_OK(sheaf_schema_new(&schema, &config, 8));
        const bool bytes = strstr(s->name, "bytes") != NULL;
        assert_int_equal(config.byte_vocab, bytes);
        if (bytes)
            assert_true(config.vocab == 259 && config.bos == 256 && config.neos == 1 && config.eos[0] == 257 && config.pad == 258);
        sheaf_schema_free(schema);
        sheaf_config_release(&config);
        free(json);
    }
}

static void test_init__refusals_leave_nothing(void **state)
{
    char *dst = path_in("never"), *bad = path_in("bad.json"), *one = path_in("one");
    sheaf_init_report report;
    CHECK_FAILS(sheaf_init(&report, &(sheaf_init_options){ .spec = "tiny-byte", .dst = dst }), SHEAF_E_ARG, "| tiny-bytes");
    CHECK_FAILS(sheaf_init(&report, &(sheaf_init_options){ .spec = "/nonexistent/config.json", .dst = dst }), SHEAF_E_ARG, "a config.json");
    write_text(bad, "{\"model_type\": \"gpt2\"}");
    CHECK_FAILS(sheaf_init(&report, &(sheaf_init_options){ .spec = bad, .dst = dst }), SHEAF_E_UNSUPPORTED, "model_type");
    assert_int_equal(sheaf__path_kind(dst), SHEAF_PATH_NONE);
    CHECK_FAILS(sheaf_init(&report, &(sheaf_init_options){ .spec = "tiny-bytes", .dst = one }), SHEAF_E_ARG, one);
    free(dst), free(bad), free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init__is_a_function_of_seed_name_and_index),
        cmocka_unit_test(test_init__threads_change_nothing_seeds_all),
        cmocka_unit_test(test_init__half_precision_rounds_once),
        cmocka_unit_test(test_init__built_in_names_are_sound_configs),
        cmocka_unit_test(test_init__refusals_leave_nothing),
    };
    snprintf(folder, sizeof folder, "/tmp/sheaf-init-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sheaf_status_free(sheaf__remove_tree(folder, NULL));
    return failed;
}
