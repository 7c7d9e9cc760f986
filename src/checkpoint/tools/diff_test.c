/* diff_test.c - undivided tensors of a checkpoint, and what sheaf diff finds. */
#include "tests/faults/tiny_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/tools/verify.h"
#include "formats/safetensors.h"

static char folder[80];

static char *path_in(const char *name)
{
    char *path;
    CHECK_OK(sheaf__path_join(&path, folder, name));
    return path;
}

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

static void test_checkpoint__every_box_of_every_kind_of_cut(void **state)
{
    CHECK_OK(tiny_save(&(tiny_run){ .out = folder, .seed = 3, .step = 3, .ranks = 3 }));
    char *dir = path_in("checkpoints/step-00000003");
    sheaf_probe probe;
    CHECK_OK(sheaf_probe_open(&probe, dir, false));
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
    CHECK_OK(sheaf_probe_open(&probe, folder, false));
    assert_int_equal(probe.kind, SHEAF_WEIGHTS_RUN);
    sheaf_probe_close(&probe);
    free(dir);
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

static void test_diff__checkpoints(void **state)
{
    char *other = strdup(tiny_folder()), *a = path_in("checkpoints/step-00000003"), *b, *c;
    sheaf_weights_diff_report report;
    CHECK_OK(tiny_save(&(tiny_run){ .out = other, .seed = 3, .step = 3, .ranks = 1 }));
    CHECK_OK(tiny_save(&(tiny_run){ .out = other, .seed = 4, .step = 4, .ranks = 2 }));
    CHECK_OK(sheaf__path_join(&b, other, "checkpoints/step-00000003"));
    CHECK_OK(sheaf__path_join(&c, other, "checkpoints/step-00000004"));
    assert_false(differ_by(&report, a, b));
    assert_true(report.tensors == TINY_TENSORS && report.different == 0 && report.largest == 0);
    assert_true(differ_by(&report, a, c));
    assert_int_equal(report.different, TINY_TENSORS);
    assert_non_null(strstr(told, "0 master/fused 36/36 142858 @0\n"));
    assert_non_null(strstr(told, "5 step "));
    assert_non_null(strstr(told, "5 seed "));
    CHECK_FAILS(sheaf_diff(&report, folder, a, &heard), SHEAF_E_ARG, "/adapter");
    CHECK_OK(sheaf__remove_tree(other));
    free(other), free(a), free(b), free(c);
}

/* A file of one tensor of each shape and type. */
static char *write_file(const char *name, const sheaf_safetensors_spec *specs, int n,
                        const void *const *data)
{
    char *path = path_in(name);
    sheaf_safetensors_writer *w;
    CHECK_OK(sheaf__safetensors_begin(&w, path, specs, n, NULL, 0));
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        CHECK_OK(sheaf__safetensors_bytes(&bytes, &specs[i]));
        CHECK_OK(sheaf__safetensors_write(w, i, 0, data[i], bytes));
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    return path;
}

static void test_diff__values_types_shapes_and_names(void **state)
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
    char *p = write_file("a.safetensors", a, 9,
                         (const void *const[]){ x, x, ids, x, x, x, x, zero, zero });
    char *q = write_file("b.safetensors", b, 9,
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
    free(p), free(q);
}

/* ---- models ---- */

static const char *data_path(char *buffer, const char *tail)
{
    const char *golden = getenv("SHEAF_GOLDEN"), *data = getenv("SHEAF_TEST_DATA"),
               *root = getenv("SHEAF_SOURCE_ROOT");
    if (golden != NULL || data != NULL)
        snprintf(buffer, 1024, "%s/%s", golden != NULL ? golden : data, tail);
    else
        snprintf(buffer, 1024, "%s/tests/data/%s", root != NULL ? root : ".", tail);
    return buffer;
}

static void copy_file(const char *to_dir, const char *from_dir, const char *name, const char *find,
                      const char *put)
{
    char *from, *to, *bytes;
    size_t size;
    CHECK_OK(sheaf__path_join(&from, from_dir, name));
    CHECK_OK(sheaf__path_join(&to, to_dir, name));
    CHECK_OK(sheaf__file_read_all(&bytes, &size, from, 1 << 20));
    FILE *f = fopen(to, "w");
    const char *at = find != NULL ? strstr(bytes, find) : NULL;
    assert_true(find == NULL || at != NULL);
    const size_t head = at != NULL ? (size_t)(at - bytes) : size;
    fwrite(bytes, 1, head, f);
    if (at != NULL)
        fprintf(f, "%s%s", put, at + strlen(find));
    fclose(f);
    free(from), free(to), free(bytes);
}

static void copy_adapter(const char *to, const char *from, const char *find, const char *put)
{
    assert_int_equal(mkdir(to, 0755), 0);
    copy_file(to, from, "adapter_model.safetensors", NULL, NULL);
    copy_file(to, from, "adapter_config.json", find, put);
}

static void test_diff__shards_and_adapters(void **state)
{
    char a[1024], b[1024];
    sheaf_weights_diff_report report;
    data_path(a, "llama/tiny_llama/hf");
    data_path(b, "llama/tiny_llama/hf_sharded");
    assert_false(differ_by(&report, a, b));
    assert_int_equal(report.tensors, 30);
    data_path(a, "llama/tiny_llama/lora/adapter_init");
    data_path(b, "llama/tiny_llama/lora/adapter_final");
    assert_true(differ_by(&report, a, b));
    assert_int_equal(report.different, 42);
    assert_int_equal(report.config_keys, 0);
    data_path(b, "llama/tiny_llama/lora_variants/rslora/adapter");
    assert_true(differ_by(&report, a, b));
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
        char *copy = path_in("adapter");
        copy_adapter(copy, a, edits[i].find, edits[i].put);
        assert_int_equal(differ_by(&report, a, copy), edits[i].keys > 0);
        assert_true(report.different == 0 && report.config_keys == edits[i].keys);
        CHECK_OK(sheaf__remove_tree(copy));
        free(copy);
    }
    CHECK_FAILS(sheaf_diff(&report, a, "/nonexistent", &heard), SHEAF_E_IO, "/nonexistent");
}

/* transformers 4 and 5 spell one config in two ways; SAT's tells how its files are divided. */
static void test_diff__configs_that_mean_the_same(void **state)
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
    char a[1024], config[1024];
    sheaf_weights_diff_report report;
    data_path(a, "llama/tiny_llama/hf");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *copy = path_in("model");
        assert_int_equal(mkdir(copy, 0755), 0);
        copy_file(copy, a, "model.safetensors", NULL, NULL);
        data_path(config, rows[i].config);
        char *slash = strrchr(config, '/');
        *slash = '\0';
        copy_file(copy, config, slash + 1, rows[i].find, rows[i].put);
        if (strcmp(slash + 1, "config.json") != 0) {
            char *from, *to;
            CHECK_OK(sheaf__path_join(&from, copy, slash + 1));
            CHECK_OK(sheaf__path_join(&to, copy, "config.json"));
            CHECK_OK(sheaf__rename(from, to));
            free(from), free(to);
        }
        (void)differ_by(&report, a, copy);
        if (report.config_keys != rows[i].keys)
            fail_msg("row %zu: %d keys differ: %s", i, (int)report.config_keys, told);
        CHECK_OK(sheaf__remove_tree(copy));
        free(copy);
    }
}

/* A tied head that one side stores is compared with the other side's table. */
static void test_diff__tied_head(void **state)
{
    const float x[] = { 1, 2, 3, 4 }, y[] = { 1, 2, 3, 5 };
    const sheaf_safetensors_spec specs[] = {
        { "model.embed_tokens.weight", SHEAF_F32, 2, { 2, 2 } },
        { "lm_head.weight", SHEAF_F32, 2, { 2, 2 } }
    };
    char *tied = path_in("tied"), *config, config_from[1024];
    assert_int_equal(mkdir(tied, 0755), 0);
    free(write_file("tied/model.safetensors", specs, 1, (const void *const[]){ x }));
    char *text;
    size_t size;
    CHECK_OK(sheaf__file_read_all(
        &text, &size, data_path(config_from, "llama/tiny_qwen2/hf/config.json"), 1 << 20));
    CHECK_OK(sheaf__path_join(&config, tied, "config.json"));
    FILE *f = fopen(config, "w");
    fputs(text, f);
    fclose(f);
    char *equal = write_file("equal.safetensors", specs, 2, (const void *const[]){ x, x });
    char *other = write_file("other.safetensors", specs, 2, (const void *const[]){ x, y });
    sheaf_weights_diff_report report;
    assert_false(differ_by(&report, tied, equal));
    assert_int_equal(report.tensors, 2);
    assert_true(differ_by(&report, other, tied));
    assert_string_equal(told, "0 lm_head.weight 1/4 1 @3\n");
    free(tied), free(config), free(text), free(equal), free(other);
}

/* A folder NAME with a model of one weight and, where `moment` is not NULL, optimizer.safetensors.
 */
static char *folder_of_model(const char *name, const float *moment)
{
    const float weight[] = { 1, 2, 3, 4 };
    const sheaf_safetensors_spec one = { "w", SHEAF_F32, 2, { 2, 2 } };
    const sheaf_safetensors_spec two[] = { { "exp_avg.w", SHEAF_F32, 2, { 2, 2 } },
                                           { "exp_avg_sq.w", SHEAF_F32, 2, { 2, 2 } } };
    char *dir = path_in(name), file[256];
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    free(write_file(file, &one, 1, (const void *const[]){ weight }));
    snprintf(file, sizeof file, "%s/optimizer.safetensors", name);
    if (moment != NULL)
        free(write_file(file, two, 2, (const void *const[]){ weight, moment }));
    return dir;
}

static void test_diff__moments_beside_a_model(void **state)
{
    const float x[] = { 1, 2, 3, 4 }, y[] = { 1, 2, 3, 5 };
    char *a = folder_of_model("with", x), *b = folder_of_model("other", y),
         *none = folder_of_model("without", NULL), *file;
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
    CHECK_OK(sheaf__path_join(&file, b, "optimizer.safetensors"));
    assert_true(differ_by(&report, file, none));
    assert_string_equal(told, "3 exp_avg.w 0/0 0 @-1\n"
                              "3 exp_avg_sq.w 0/0 0 @-1\n"
                              "4 w 0/0 0 @-1\n");
    assert_true(differ_by(&report, a, file));
    assert_string_equal(told, "0 exp_avg_sq.w 1/4 1 @3\n"
                              "3 w 0/0 0 @-1\n");
    /* What is damaged is told, not taken for none. */
    assert_int_equal(truncate(file, 40), 0);
    CHECK_FAILS(sheaf_diff(&report, none, b, &heard), SHEAF_E_FORMAT, "optimizer.safetensors");
    free(a), free(b), free(none), free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__every_box_of_every_kind_of_cut),
        cmocka_unit_test(test_diff__checkpoints),
        cmocka_unit_test(test_diff__values_types_shapes_and_names),
        cmocka_unit_test(test_diff__shards_and_adapters),
        cmocka_unit_test(test_diff__configs_that_mean_the_same),
        cmocka_unit_test(test_diff__tied_head),
        cmocka_unit_test(test_diff__moments_beside_a_model),
    };
    snprintf(folder, sizeof folder, "%s", tiny_folder());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sheaf_status_free(sheaf__remove_tree(folder));
    return failed;
}
