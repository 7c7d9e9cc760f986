/* diff_test.c - undivided tensors of a checkpoint, and what sheaf diff finds. */
#include "tests/faults/tiny_state.h"
#include "tests/golden.h"
#include "tests/stored.h"

#include <unistd.h>

#include "checkpoint/tools/verify.h"

/* ---- a checkpoint as a source ---- */

static void check_box(sheaf_source *source, int kind, int seed, int64_t row0, int64_t rows,
                      int64_t col0, int64_t cols)
{
    float got[TINY_CAPACITY * TINY_SLICES];
    CHECK_OK(source->read(source, tiny_kinds[kind].name, row0, rows, col0, cols, got));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (got[r * cols + c] != tiny_value(seed, kind, row0 + r, col0 + c))
                fail_msg("%s: row %d, column %d", tiny_kinds[kind].name, (int)(row0 + r),
                         (int)(col0 + c));
}

TEST(test_checkpoint__every_box_of_every_kind_of_cut)
{
    CHECK_OK(tiny_save(&(tiny_run){ .out = at("run"), .seed = 3, .step = 3, .ranks = 3 }));
    sheaf_probe probe;
    CHECK_OK(sheaf_probe_open(&probe, at("run/checkpoints/step-00000003"), false));
    assert_int_equal(probe.kind, SHEAF_WEIGHTS_CHECKPOINT);
    assert_int_equal(probe.source->count(probe.source), TINY_TENSORS);
    for (int k = 0; k < TINY_TENSORS; k++) {
        const int64_t *shape = tiny_kinds[k].shape;
        const sheaf_source_entry *e = probe.source->find(probe.source, tiny_kinds[k].name);
        assert_true(e != NULL && e->dtype == SHEAF_F32 && e->ndim == tiny_kinds[k].ndim &&
                    e->shape[0] == shape[0]);
        for (int64_t r0 = 0; r0 < shape[0]; r0++)
            for (int64_t r1 = r0 + 1; r1 <= shape[0]; r1++)
                for (int64_t c0 = 0; c0 < shape[1]; c0++)
                    for (int64_t c1 = c0 + 1; c1 <= shape[1]; c1++)
                        check_box(probe.source, k, 3, r0, r1 - r0, c0, c1 - c0);
    }
    assert_null(probe.source->find(probe.source, "master/none"));
    sheaf_probe_close(&probe);
    CHECK_OK(sheaf_probe_open(&probe, at("run"), false));
    assert_int_equal(probe.kind, SHEAF_WEIGHTS_RUN);
    sheaf_probe_close(&probe);
}

/* ---- what differs ---- */

static char told[4096];
static void listen(void *context, const sheaf_diff_item *i)
{
    const size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%d %s %" PRId64 "/%" PRId64 " %g @%" PRId64 "\n",
             (int)i->kind, i->name, i->differing, i->elements, i->largest, i->first);
}

static const sheaf_weights_diff_options heard = { .on_item = listen };

static bool differ_by(sheaf_weights_diff_report *report, const char *a, const char *b)
{
    told[0] = '\0';
    CHECK_OK(sheaf_diff(report, a, b, &heard));
    return !report->same;
}

TEST(test_diff__checkpoints)
{
    const char *a = at("run/checkpoints/step-00000003");
    sheaf_weights_diff_report report;
    CHECK_OK(tiny_save(&(tiny_run){ .out = at("second"), .seed = 3, .step = 3, .ranks = 1 }));
    CHECK_OK(tiny_save(&(tiny_run){ .out = at("second"), .seed = 4, .step = 4, .ranks = 2 }));
    assert_false(differ_by(&report, a, at("second/checkpoints/step-00000003")));
    assert_true(report.tensors == TINY_TENSORS && report.different == 0 && report.largest == 0);
    assert_true(differ_by(&report, a, at("second/checkpoints/step-00000004")));
    assert_int_equal(report.different, TINY_TENSORS);
    assert_non_null(strstr(told, "0 master/fused 36/36 142858 @0\n"));
    assert_non_null(strstr(told, "5 step "));
    assert_non_null(strstr(told, "5 seed "));
    CHECK_FAILS(sheaf_diff(&report, at("run"), a, &heard), SHEAF_E_ARG, "/adapter");
}

/* A file of one tensor of each shape and type. */
static const char *write_file(const char *name, const sheaf_safetensors_spec *specs, int n,
                              const void *const *data)
{
    made_tensors made = { .count = 0 };
    for (int i = 0; i < n; i++)
        made_add(&made, specs[i].name, specs[i].dtype, specs[i].ndim, specs[i].shape, data[i]);
    return made_write(&made, at(name));
}

TEST(test_diff__values_types_shapes_and_names)
{
    const float x[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, y[] = { 1, 2, 3.5f, 4, 5, 6, 7, 8.25f },
                zero[] = { 0, NAN }, minus[] = { -0.0f, NAN };
    const float inf[] = { INFINITY, 1 };
    const uint16_t half[] = { 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800 };
    const int64_t ids[] = { 1, 2 }, other_ids[] = { 1, INT64_C(1) << 60 };
    const sheaf_safetensors_spec a[] = {
        { "cube", SHEAF_F32, 3, { 2, 2, 2 } }, { "half", SHEAF_F32, 2, { 2, 4 } },
        { "ids", SHEAF_I64, 1, { 2 } },        { "mine", SHEAF_F32, 0, { 0 } },
        { "none", SHEAF_F32, 2, { 3, 0 } },    { "same", SHEAF_F32, 1, { 8 } },
        { "shape", SHEAF_F32, 2, { 2, 4 } },   { "zero", SHEAF_F32, 1, { 2 } },
        { "inf", SHEAF_F32, 1, { 2 } },
    };
    sheaf_safetensors_spec b[9];
    memcpy(b, a, sizeof b);
    b[1].dtype = SHEAF_F16;
    b[3].name = "yours";
    b[6].shape[0] = 4, b[6].shape[1] = 2;
    const char *p = write_file("a.safetensors", a, 9,
                               (const void *const[]){ x, x, ids, x, x, x, x, zero, zero });
    const char *q = write_file("b.safetensors", b, 9,
                               (const void *const[]){ y, half, other_ids, x, x, x, x, minus, inf });
    sheaf_weights_diff_report report;
    assert_true(differ_by(&report, p, q));
    assert_string_equal(told, "0 cube 2/8 0.5 @2\n"
                              "2 half 0/8 0 @-1\n"
                              "0 ids 1/2 1.15292e+18 @1\n"
                              "0 inf 2/2 inf @0\n"
                              "3 mine 0/0 0 @-1\n"
                              "1 shape 0/0 0 @-1\n"
                              "4 yours 0/0 0 @-1\n"
                              "0 zero 1/2 0 @0\n");
    assert_true(report.tensors == 10 && report.different == 8 && isinf(report.largest));
    assert_false(differ_by(&report, p, p));
}

/* ---- models ---- */

TEST(test_diff__shards_and_adapters)
{
    const char *a = golden("llama/tiny_llama/lora/adapter_init"),
               *b = golden("llama/tiny_llama/lora/adapter_final");
    sheaf_weights_diff_report report;
    assert_false(
        differ_by(&report, golden("llama/tiny_llama/hf"), golden("llama/tiny_llama/hf_sharded")));
    assert_int_equal(report.tensors, 30);
    assert_true(differ_by(&report, a, b));
    assert_int_equal(report.different, 42);
    assert_int_equal(report.config_keys, 0);
    assert_true(differ_by(&report, a, golden("llama/tiny_llama/lora_variants/rslora/adapter")));
    assert_non_null(strstr(told, "5 use_rslora"));
    assert_non_null(strstr(told, "5 target_modules"));
    /* Equal tensors with another alpha are another adapter; where it came from does not count. */
    static const struct {
        const char *find, *put;
        int keys;
    } edits[] = {
        { "\"lora_alpha\": 8", "\"lora_alpha\": 9", 1 },
        { "\"base_model_name_or_path\": \"tiny_llama/hf\"", "\"base_model_name_or_path\": null",
          0 },
        { "\"use_rslora\": false", "\"new_key\": 3", 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        CHECK_OK(sheaf__make_dir(at("adapter")));
        copy_edited(at("adapter/adapter_model.safetensors"),
                    golden("llama/tiny_llama/lora/adapter_init/adapter_model.safetensors"), NULL,
                    NULL);
        copy_edited(at("adapter/adapter_config.json"),
                    golden("llama/tiny_llama/lora/adapter_init/adapter_config.json"), edits[i].find,
                    edits[i].put);
        assert_int_equal(
            differ_by(&report, golden("llama/tiny_llama/lora/adapter_init"), at("adapter")),
            edits[i].keys > 0);
        assert_true(report.different == 0 && report.config_keys == edits[i].keys);
        CHECK_OK(sheaf__remove_tree(at("adapter")));
    }
    CHECK_FAILS(sheaf_diff(&report, golden("llama/tiny_llama/hf"), "/nonexistent", &heard),
                SHEAF_E_IO, "/nonexistent");
}

/* transformers 4 and 5 spell one config in two ways; SAT's tells how its files are divided. */
TEST(test_diff__configs_that_mean_the_same)
{
    static const struct {
        const char *config, *find, *put;
        int keys;
    } rows[] = {
        { "llama/tiny_llama/config_4x_style.json", NULL, NULL, 0 },
        { "llama/tiny_llama/config_4x_style.json", "\"rope_theta\": 10000", "\"rope_theta\": 20000",
          2 },
        { "llama/tiny_llama/config_4x_style.json", "\"float32\"", "\"bfloat16\"", 2 },
        { "llama/tiny_llama/hf/config.json", "{", "{\"encoder_override\": {\"a\": 1}, ", 0 },
        { "llama/tiny_llama/hf/config.json", "{", "{\"model_parallel_size\": 4, ", 1 },
        { "llama/tiny_llama/hf/config.json", "{",
          "{\"model_class\": \"A\", \"model_parallel_size\": 4, \"use_lora\": true, ", 1 },
        { "llama/tiny_llama/hf/config.json", "{", "{\"eva_args\": {\"a\": 1}, ", 1 },
    };
    sheaf_weights_diff_report report;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(sheaf__make_dir(at("model")));
        copy_edited(at("model/model.safetensors"), golden("llama/tiny_llama/hf/model.safetensors"),
                    NULL, NULL);
        copy_edited(at("model/config.json"), golden(rows[i].config), rows[i].find, rows[i].put);
        (void)differ_by(&report, golden("llama/tiny_llama/hf"), at("model"));
        if (report.config_keys != rows[i].keys)
            fail_msg("row %zu: %d keys differ: %s", i, (int)report.config_keys, told);
        CHECK_OK(sheaf__remove_tree(at("model")));
    }
}

/* A tied head that one side stores is compared with the other side's table. */
TEST(test_diff__tied_head)
{
    const float x[] = { 1, 2, 3, 4 }, y[] = { 1, 2, 3, 5 };
    const sheaf_safetensors_spec specs[] = {
        { "model.embed_tokens.weight", SHEAF_F32, 2, { 2, 2 } },
        { "lm_head.weight", SHEAF_F32, 2, { 2, 2 } }
    };
    sheaf_weights_diff_report report;
    CHECK_OK(sheaf__make_dir(at("tied")));
    write_file("tied/model.safetensors", specs, 1, (const void *const[]){ x });
    copy_edited(at("tied/config.json"), golden("llama/tiny_qwen2/hf/config.json"), NULL, NULL);
    const char *equal = write_file("equal.safetensors", specs, 2, (const void *const[]){ x, x });
    assert_false(differ_by(&report, at("tied"), equal));
    assert_int_equal(report.tensors, 2);
    const char *other = write_file("other.safetensors", specs, 2, (const void *const[]){ x, y });
    assert_true(differ_by(&report, other, at("tied")));
    assert_string_equal(told, "0 lm_head.weight 1/4 1 @3\n");
}

/* A folder NAME with a model of one weight and, where `moment` is not NULL, optimizer.safetensors.
 */
static const char *folder_of_model(const char *name, const float *moment)
{
    const float weight[] = { 1, 2, 3, 4 };
    const sheaf_safetensors_spec one = { "w", SHEAF_F32, 2, { 2, 2 } };
    const sheaf_safetensors_spec two[] = { { "exp_avg.w", SHEAF_F32, 2, { 2, 2 } },
                                           { "exp_avg_sq.w", SHEAF_F32, 2, { 2, 2 } } };
    CHECK_OK(sheaf__make_dir(at(name)));
    write_file(textf("%s/model.safetensors", name), &one, 1, (const void *const[]){ weight });
    if (moment != NULL)
        write_file(textf("%s/optimizer.safetensors", name), two, 2,
                   (const void *const[]){ weight, moment });
    return at(name);
}

TEST(test_diff__moments_beside_a_model)
{
    const float x[] = { 1, 2, 3, 4 }, y[] = { 1, 2, 3, 5 };
    folder_of_model("with", x);
    folder_of_model("other", y);
    const char *none = folder_of_model("without", NULL), *a = at("with"), *b = at("other"),
               *file = at("other/optimizer.safetensors");
    sheaf_weights_diff_report report;
    assert_false(differ_by(&report, a, a));
    assert_true(report.tensors == 3 && report.moments == 2);
    assert_true(differ_by(&report, a, b));
    assert_string_equal(told, "0 exp_avg_sq.w 1/4 1 @3\n");
    assert_true(report.moments_only_a == 0 && report.moments_only_b == 0);
    /* One side has none: the models are the same, and what was not compared is counted. */
    assert_false(differ_by(&report, a, none));
    assert_true(report.tensors == 1 && report.moments == 0);
    assert_true(report.moments_only_a == 2 && report.moments_only_b == 0);
    assert_false(differ_by(&report, none, b));
    assert_true(report.moments_only_a == 0 && report.moments_only_b == 2);
    /* In a bare file they are tensors like others. */
    assert_true(differ_by(&report, file, none));
    assert_string_equal(told, "3 exp_avg.w 0/0 0 @-1\n"
                              "3 exp_avg_sq.w 0/0 0 @-1\n"
                              "4 w 0/0 0 @-1\n");
    assert_true(differ_by(&report, a, file));
    assert_string_equal(told, "0 exp_avg_sq.w 1/4 1 @3\n"
                              "3 w 0/0 0 @-1\n");
    /* Damage is reported, not taken for absence. */
    assert_int_equal(truncate(file, 40), 0);
    CHECK_FAILS(sheaf_diff(&report, none, b, &heard), SHEAF_E_FORMAT, "optimizer.safetensors");
}

FIXTURE(make_scratch, remove_scratch);
