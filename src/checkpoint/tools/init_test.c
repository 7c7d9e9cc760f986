/* init_test.c - new models: what each number depends on, and that the folder is one. */
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"

#include "base/random.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/tools/init.h"
#include "ops/kernels.h"

static const char small[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"vocab_size\": 37, \"hidden_size\": 12, "
    "\"intermediate_size\": 20, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "
    "\"initializer_range\": 0.5, \"tie_word_embeddings\": true, \"eos_token_id\": [1, 2], \"dtype\": \"bfloat16\"}";

static void init(const char *spec, const char *name, uint64_t seed, const sheaf_dtype *dtype,
                 int threads)
{
    sheaf_weights_init_report report;
    CHECK_OK(sheaf_init(&report,
                        &(sheaf_weights_init_options){ .spec = spec,
                                                       .dst = at(name),
                                                       .seed = seed,
                                                       .dtype = dtype == NULL ? SHEAF_BOOL : *dtype,
                                                       .threads = threads }));
    assert_true(report.tensors > 0 && report.parameters > 0);
}

static sheaf_weights_diff_report compare(const char *a, const char *b)
{
    sheaf_weights_diff_report report;
    CHECK_OK(sheaf_diff(&report, at(a), at(b), &(sheaf_weights_diff_options){ 0 }));
    return report;
}

TEST(test_init__is_a_function_of_seed_name_and_index)
{
    const sheaf_dtype f32 = SHEAF_F32;
    put(at("config.json"), small);
    init(at("config.json"), "one", 7, &f32, 1);
    sheaf_source *source;
    CHECK_OK(open_stored(&source, at("one")));
    assert_int_equal(source->count(source), 2 + 2 * 12);
    for (int64_t i = 0; i < source->count(source); i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, n = e->shape[0] * cols;
        const bool bias = strstr(e->name, ".bias") != NULL;
        float got[37 * 12 + 1];
        assert_true(n <= 37 * 12 && e->dtype == SHEAF_F32);
        CHECK_OK(source->read(source, e->name, 0, e->shape[0], 0, cols, got));
        for (int64_t k = 0; k < n; k++) {
            const float want =
                e->ndim == 1
                    ? (bias ? 0 : 1)
                    : sheaf__random_normal(7, sheaf__name_key(e->name), (uint64_t)k) * 0.5f;
            if (got[k] != want)
                fail_msg("%s[%d]: %g, wanted %g", e->name, (int)k, (double)got[k], (double)want);
        }
    }
    source->close(source);
}

TEST(test_init__threads_change_nothing_seeds_all)
{
    init("tiny-bytes", "a", 1, NULL, 1);
    init("tiny-bytes", "b", 1, NULL, 3);
    init("tiny-bytes", "c", 2, NULL, 3);
    assert_true(compare("a", "b").same);
    const sheaf_weights_diff_report other = compare("a", "c");
    assert_int_equal(other.different, 2 + 4 * 7); /* norms are all ones */
    assert_true(other.tensors == 39 && other.config_keys == 0);
}

/* The config's type is used, said in the copy, and is one rounding of the float32 model. */
TEST(test_init__half_precision_rounds_once)
{
    const sheaf_dtype f32 = SHEAF_F32;
    put(at("config.json"), small);
    init(at("config.json"), "half", 3, NULL, 1);
    init(at("config.json"), "whole", 3, &f32, 1);
    sheaf_source *a, *b;
    CHECK_OK(open_stored(&a, at("half")));
    CHECK_OK(open_stored(&b, at("whole")));
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
}

TEST(test_init__built_in_names_are_sound_configs)
{
    const sheaf__family_spec *s;
    for (int i = 0; (s = sheaf__init_spec_at(i)) != NULL; i++) {
        char *json;
        sheaf_config config;
        sheaf_schema *schema;
        CHECK_OK(sheaf__init_config(&json, s->name));
        assert_non_null(json);
        CHECK_OK(sheaf_config_parse(&config, json, strlen(json)));
        assert_null(config.unknown_keys);
        CHECK_OK(sheaf_schema_new(&schema, &config, 8));
        const bool sees = sheaf__family_for(&config)->towers != NULL,
                   bytes = sees || strstr(s->name, "bytes") != NULL;
        assert_int_equal(config.byte_vocab, bytes);
        if (bytes) /* ids behind the pad are marks of images */
            assert_true((sees ? config.vocab > 259 : config.vocab == 259) && config.bos == 256 &&
                        config.neos == 1 && config.eos[0] == 257 && config.pad == 258);
        sheaf_schema_free(schema);
        sheaf_config_release(&config);
        free(json);
    }
}

/* ---- CogVLM and CogAgent ---- */

static const char *const cogs[] = { "cogvlm-tiny", "cogagent-tiny" };

static sheaf_source *open_made(const char *name)
{
    sheaf_source *source;
    CHECK_OK(open_stored(&source, at(name)));
    return source;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

TEST(test_init__cog_tensors_begin_as_they_should)
{
    for (size_t m = 0; m < ARRAY_LEN(cogs); m++) {
        init(cogs[m], cogs[m], 5, NULL, 2);
        sheaf_source *source = open_made(cogs[m]);
        int64_t drawn = 0;
        for (int64_t i = 0; i < source->count(source); i++) {
            const sheaf_source_entry *e = source->entry(source, i);
            int64_t rows = 1, cols = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
            for (int d = 0; d < (e->ndim > 1 ? e->ndim - 1 : 1); d++)
                rows *= e->shape[d];
            float *x = room((size_t)(rows * cols) * sizeof *x);
            CHECK_OK(source->read(source, e->name, 0, rows, 0, cols, x));
            const bool zero = has(e->name, "bias") ||
                              strcmp(e->name, "mixins.eva.pos_embed") == 0 ||
                              strcmp(e->name, "mixins.encoder.pos_embed") == 0;
            const bool one = !zero && (has(e->name, "norm") || has(e->name, "_ln."));
            for (int64_t k = 0;
                 k < rows * cols && !has(e->name, "rotary_emb") && !has(e->name, "rope");
                 k++, drawn++)
                if (x[k] !=
                    (zero ? 0
                     : one
                         ? 1
                         : sheaf__random_normal(5, sheaf__name_key(e->name), (uint64_t)k) * 0.05f))
                    fail_msg("%s[%d]: %g", e->name, (int)k, (double)x[k]);
        }
        assert_true(drawn > 1000000);
        source->close(source);
    }
}

static void read_all(float *x, sheaf_source *source, const char *name, int64_t n)
{
    const sheaf_source_entry *e = source->find(source, name);
    if (e == NULL)
        fail_msg("no %s", name);
    const int64_t cols = e->ndim > 1 ? e->shape[1] : 1;
    assert_int_equal(e->shape[0] * cols, n);
    CHECK_OK(source->read(source, name, 0, e->shape[0], 0, cols, x));
}

/* 8 by 8 patches and heads of 8 wide: two frequencies an axis, 1 and 1/100; patch 11 is row 1,
 * column 3, and an index counts 16 / 8. Every block has the tables too. */
TEST(test_init__tables_of_angles_by_hand)
{
    static const double turn[8] = { 2, 2, 0.02, 0.02, 6, 6, 0.06, 0.06 };
    float cosines[64 * 8], sines[64 * 8], frequency[8];
    sheaf_source *source = open_made("cogagent-tiny");
    for (int block = -1; block < 3; block++) {
        char name[2][128];
        for (int k = 0; k < 2; k++) {
            if (block < 0)
                snprintf(name[k], sizeof *name, "mixins.encoder.vit.model.rope.freqs_%s",
                         k ? "sin" : "cos");
            else
                snprintf(name[k], sizeof *name,
                         "mixins.encoder.vit.model.blocks.%d.attn.rope.freqs_%s", block,
                         k ? "sin" : "cos");
        }
        read_all(cosines, source, name[0], 64 * 8);
        read_all(sines, source, name[1], 64 * 8);
        for (int i = 0; i < 8; i++) {
            CHECK_NEAR(name[0], cosines[11 * 8 + i], cos(turn[i]), 1e-6);
            CHECK_NEAR(name[1], sines[11 * 8 + i], sin(turn[i]), 1e-6);
        }
    }
    read_all(frequency, source, "mixins.rotary.rotary_emb.inv_freq", 8);
    for (int i = 0; i < 8; i++)
        CHECK_NEAR("inv_freq", frequency[i], pow(10000, -i / 8.0), 1e-7);
    source->close(source);
}

/* The same against files that SAT wrote, where they are at hand. */
static int check_buffers(const char *config)
{
    char recorded[1600];
    sheaf_catalog *catalog;
    sheaf_source *want;
    snprintf(recorded, sizeof recorded, "%.*s", (int)(strrchr(config, '/') - config), config);
    CHECK_OK(sheaf__open(&catalog, recorded, NULL));
    assert_non_null(catalog->config); /* says the tower's sizes, which SAT's own does not */
    put(at("recorded.json"), catalog->config);
    CHECK_OK(sheaf__catalog_source(&want, catalog, false));
    init(at("recorded.json"), "as-recorded", 1, NULL, 1);
    sheaf_source *got = open_made("as-recorded");
    assert_int_equal(got->count(got), want->count(want));
    int buffers = 0;
    for (int64_t i = 0; i < want->count(want); i++) {
        const sheaf_source_entry *e = want->entry(want, i);
        if (!has(e->name, "rotary_emb.") && !has(e->name, "rope."))
            continue;
        const int64_t n = e->shape[0] * (e->ndim > 1 ? e->shape[1] : 1);
        float *a = room((size_t)n * sizeof *a), *b = room((size_t)n * sizeof *b);
        read_all(a, got, e->name, n);
        read_all(b, want, e->name, n);
        for (int64_t k = 0; k < n; k++)
            CHECK_NEAR(e->name, a[k], b[k], 2e-6);
        buffers++;
    }
    assert_true(buffers > 0);
    got->close(got);
    want->close(want);
    CHECK_OK(sheaf__remove_tree(at("as-recorded")));
    return 1;
}

TEST(test_init__buffers_are_those_that_sat_computes)
{
    assert_true(golden_each("*/mp1/model_config.json", check_buffers) > 0);
}

static void check_config(const char *path, const char *part)
{
    if (strstr(file_text(path, NULL), part) == NULL)
        fail_msg("%s lacks %s", path, part);
}

TEST(test_init__cog_goes_to_sat_and_back)
{
    for (size_t m = 0; m < ARRAY_LEN(cogs); m++) {
        sheaf_weights_convert_report report;
        CHECK_OK(sheaf_convert(&report,
                               &(sheaf_weights_convert_options){
                                   .src = at(cogs[m]), .dst = at("sat"), .to = "sat", .tp = 2 }));
        assert_int_equal(report.parts, 2);
        assert_true(compare(cogs[m], "sat").same);
        CHECK_OK(sheaf_convert(&report, &(sheaf_weights_convert_options){
                                            .src = at("sat"), .dst = at("back"), .to = "hf" }));
        const sheaf_weights_diff_report d = compare(cogs[m], "back");
        assert_true(d.same && d.config_keys == 0);
        init(at("sat"), "again", 5, NULL, 1); /* a SAT checkpoint tells the model, too */
        const sheaf_weights_diff_report e = compare(cogs[m], "again");
        assert_true(e.same && e.config_keys == 0);
        check_config(at("again/config.json"),
                     m == 0 ? "\"model_type\": \"cogvlm\"" : "\"model_type\": \"cogagent\"");
        check_config(at("again/config.json"), "\"model_parallel_size\": 1,");
        CHECK_OK(sheaf__remove_tree(at("sat")));
        CHECK_OK(sheaf__remove_tree(at("back")));
        CHECK_OK(sheaf__remove_tree(at("again")));
    }
}

static void refuse(const char *spec, const char *dst, sheaf_code code, const char *part)
{
    sheaf_weights_init_report report;
    CHECK_FAILS(sheaf_init(&report, &(sheaf_weights_init_options){ .spec = spec, .dst = dst }),
                code, part);
}

TEST(test_init__refusals_leave_nothing)
{
    put(at("bad.json"), "{\"model_type\": \"gpt2\"}");
    refuse("tiny-byte", at("never"), SHEAF_E_ARG, "| tiny-bytes");
    refuse("/nonexistent/config.json", at("never"), SHEAF_E_ARG, "a config.json");
    refuse(at("bad.json"), at("never"), SHEAF_E_UNSUPPORTED, "model_type");
    assert_int_equal(sheaf__path_kind(at("never")), SHEAF_PATH_NONE);
    refuse("tiny-bytes", at("one"), SHEAF_E_ARG, at("one"));
}

FIXTURE(make_scratch, remove_scratch);
