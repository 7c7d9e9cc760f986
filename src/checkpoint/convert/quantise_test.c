/* quantise_test.c - convert --quantize writes what transformers and bitsandbytes wrote, byte for
 * byte, in any number of files; what is refused. */
#include "tests/recordings.h"
#include "tests/stored.h"
#include "tests/sources.h"

#include "base/json.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/tools/init.h"
#include "checkpoint/tools/verify.h"
#include "dialects/common/model_folder.h"

enum { MOST_FILES = 8 };

/* All files of a folder. */
typedef struct folder {
    sheaf_safetensors *file[MOST_FILES];
    int count;
    int64_t tensors, bytes;
} folder;

static folder open_folder(const char *dir)
{
    folder f = { .count = 0 };
    char **names = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, dir));
    for (int64_t i = 0; i < n; i++)
        if (sheaf__ends_with(names[i], ".safetensors")) {
            assert_true(f.count < MOST_FILES);
            f.file[f.count++] = record(textf("%s/%s", dir, names[i]));
        }
    for (int i = 0; i < f.count; i++)
        for (int64_t k = 0; k < f.file[i]->header.count; k++, f.tensors++)
            f.bytes += f.file[i]->header.entry[k].bytes;
    sheaf__names_free(names, n);
    return f;
}

static void compare_tensor(const folder *got, const sheaf_safetensors *file, const char *name)
{
    int at = 0;
    while (at + 1 < got->count && sheaf__safetensors_find(got->file[at], name) == NULL)
        at++;
    check_same_tensor(got->file[at], name, file, name);
}

static void compare_folders(const char *got, const char *want)
{
    const size_t mark = keeping.n;
    const folder a = open_folder(got), b = open_folder(want);
    assert_int_equal(a.tensors, b.tensors);
    for (int i = 0; i < b.count; i++)
        for (int64_t k = 0; k < b.file[i]->header.count; k++)
            compare_tensor(&a, b.file[i], b.file[i]->header.entry[k].name);
    release_kept(mark);
}

static void drop_json(void *object)
{
    json_decref(object);
}

static json_t *config_of(const char *dir)
{
    json_t *json = NULL;
    CHECK_OK(sheaf__json_load(&json, textf("%s/config.json", dir)));
    return kept(json, drop_json);
}

static sheaf_status *quantise(const char *src, const char *dst, sheaf_weights_convert_options how)
{
    sheaf_weights_convert_report report;
    how.src = src;
    how.dst = dst;
    how.to = how.to != NULL ? how.to : "hf";
    CHECK_OK(sheaf__remove_tree(dst));
    sheaf_status *st = sheaf_convert(&report, &how);
    const bool late = how.quantize == SHEAF_QUANTIZE_NF4_DOUBLE; /* its texts are not counted */
    if (st == NULL && how.quantize != SHEAF_QUANTIZE_NONE && !late)
        assert_int_equal(report.bytes, open_folder(dst).bytes);
    return st;
}

/* `computes`: the recording was loaded to compute in another type than the weights'. */
static const struct {
    const char *base, *want;
    sheaf_quantize as;
    sheaf_dtype dtype;
    bool computes;
} recorded[] = {
    { "tiny_llama", "bnb_nf4", SHEAF_QUANTIZE_NF4, SHEAF_BOOL, false },
    { "tiny_llama", "bnb_nf4_double", SHEAF_QUANTIZE_NF4_DOUBLE, SHEAF_BOOL, false },
    { "tiny_llama", "bnb_int8", SHEAF_QUANTIZE_INT8, SHEAF_BOOL, false },
    { "tiny_qwen2", "bnb_nf4", SHEAF_QUANTIZE_NF4, SHEAF_BOOL, false },
    { "tiny_qwen2", "bnb_int8", SHEAF_QUANTIZE_INT8, SHEAF_BOOL, false },
    { "tiny_qwen2", "bnb_nf4_from_f32", SHEAF_QUANTIZE_NF4, SHEAF_F32, true },
};

static const char *folder_of(const char *model, const char *name)
{
    return recording(textf("quant/%s/%s", model, name));
}

TEST(test_quantise__writes_the_bytes_of_transformers)
{
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(recorded); i++) {
        const char *base = folder_of(recorded[i].base, "base_bf16"),
                   *want = folder_of(recorded[i].base, recorded[i].want);
        if (recorded[i].as != SHEAF_QUANTIZE_NF4_DOUBLE && !recordings_are_full())
            continue;
        for (int threads = 1; threads <= 4; threads += 3)
            for (int64_t shard = 0; shard <= 40000; shard += 40000) {
                CHECK_OK(quantise(base, at("out"),
                                  (sheaf_weights_convert_options){ .quantize = recorded[i].as,
                                                                   .dtype = recorded[i].dtype,
                                                                   .threads = threads,
                                                                   .shard_bytes = shard }));
                compare_folders(at("out"), want);
            }
        json_t *a = config_of(at("out")), *b = config_of(want);
        if (recorded[i].computes)
            json_object_set_new(json_object_get(b, "quantization_config"), "bnb_4bit_compute_dtype",
                                json_string("float32"));
        if (!json_equal(a, b))
            fail_msg("%s/%s: another config.json", recorded[i].base, recorded[i].want);
        compared++;
    }
    assert_true(compared > 0);
}

/* ---- GPTQ and AWQ ---- */

static const struct {
    const char *recorded; /* NULL: in 8 bits there is none */
    sheaf_quantize as;
} packed[] = {
    { "quant/tiny_llama_gptq_sym", SHEAF_QUANTIZE_GPTQ_4 },
    { NULL, SHEAF_QUANTIZE_GPTQ_8 },
    { "quant/tiny_llama_awq", SHEAF_QUANTIZE_AWQ_4 },
};

/* What calibration does not change is the same: all but codes, of AutoAWQ's zeros, which it
 * computes in float16, all but a few; its codes are a step off at most. */
static void compare_packed(const char *got, const char *want)
{
    folder a = open_folder(got), b = open_folder(want);
    int64_t compared = 0, apart = 0, all = 0;
    assert_int_equal(a.tensors, b.tensors);
    for (int64_t k = 0; k < b.file[0]->header.count; k++) {
        const sheaf_safetensors_entry *e, *w;
        const char *name = b.file[0]->header.entry[k].name;
        uint8_t *x = raw_of(a.file[0], name, &e), *y = raw_of(b.file[0], name, &w);
        assert_int_equal(e->dtype == w->dtype && e->ndim == w->ndim && e->bytes == w->bytes, true);
        assert_memory_equal(e->shape, w->shape, (size_t)e->ndim * sizeof *e->shape);
        const bool awq = strstr(want, "awq") != NULL, codes = sheaf__ends_with(name, ".qweight");
        if (!codes && !(awq && sheaf__ends_with(name, ".qzeros"))) {
            CHECK_BYTES(name, x, y, (size_t)e->bytes);
            compared++;
        }
        for (int64_t i = 0; awq && codes && i < 2 * e->bytes; i++) {
            const int by = (x[i / 2] >> i % 2 * 4 & 15) - (y[i / 2] >> i % 2 * 4 & 15);
            assert_true(by >= -1 && by <= 1);
            apart += by != 0;
            all++;
        }
    }
    assert_true(compared > 14 && apart * 300 <= all);
}

/* Read again, numbers are half a step of their group from the base's. */
static void check_near(const char *base, float step)
{
    const sheaf_weights_convert_options plain = { .dtype = SHEAF_F32 },
                                        values = { .dtype = SHEAF_F32, .dequantize = true };
    CHECK_OK(quantise(base, at("plain"), plain));
    CHECK_OK(quantise(at("out"), at("values"), values));
    folder a = open_folder(at("values")), b = open_folder(at("plain"));
    int64_t compared = 0;
    for (int64_t k = 0; k < b.file[0]->header.count; k++) {
        const sheaf_safetensors_entry *e, *w;
        const char *name = b.file[0]->header.entry[k].name;
        float *x = raw_of(a.file[0], name, &e), *y = raw_of(b.file[0], name, &w);
        for (int64_t g = 0; e->ndim == 2 && strstr(name, ".layers.") != NULL && g < e->bytes / 128;
             g++) {
            float most = 0, off = 0;
            for (int64_t i = 32 * g; i < 32 * (g + 1); i++) {
                most = fmaxf(most, fabsf(y[i]));
                off = fmaxf(off, fabsf(x[i] - y[i]));
            }
            assert_true(off <= most * (0.5f * step + 0x1p-10f)); /* float16: scales, values */
            compared++;
        }
    }
    assert_true(compared > 1000);
}

/* The codes that are read are those of the values of the base, of boxes in any order: those of the
 * slices of sheaf's own form, which cut rows and columns. */
TEST(test_quantise__gptq_and_awq_have_the_layout_of_their_programs)
{
    const char *base = recording("quant/tiny_llama/base_bf16");
    for (size_t i = 0; recordings_are_full() && i < ARRAY_LEN(packed); i++) {
        sheaf_weights_convert_options how = { .quantize = packed[i].as, .group_size = 32 };
        how.dtype = packed[i].as == SHEAF_QUANTIZE_AWQ_4 ? SHEAF_F16 : SHEAF_BOOL;
        CHECK_OK(quantise(base, at("out"), how));
        if (packed[i].recorded != NULL) {
            compare_packed(at("out"), recording(packed[i].recorded));
            json_t *a = config_of(at("out")), *b = config_of(recording(packed[i].recorded));
            json_object_del(json_object_get(b, "quantization_config"), "meta");
            assert_true(json_equal(a, b));
        }
        check_near(base, packed[i].as == SHEAF_QUANTIZE_GPTQ_8 ? 2.0f / 255 : 2.0f / 15);
        for (int slices = 1; slices <= 4; slices *= 2) {
            CHECK_OK(quantise(base, at("slices"),
                              (sheaf_weights_convert_options){ .to = "sheaf", .slices = slices }));
            how.threads = slices;
            how.shard_bytes = 40000;
            CHECK_OK(quantise(at("slices"), at("other"), how));
            compare_folders(at("other"), at("out"));
        }
    }
}

/* transformers 5 has a mixture's router and experts as bare parameters: its save_pretrained()
 * leaves them plain, and it loads no codes of them (5.24.0, bitsandbytes 0.50.2). */
TEST(test_quantise__leaves_routers_and_experts_plain)
{
    static const char *const specs[] = { "families/mixtral/hf/config.json",
                                         "successors/qwen3_moe/hf/config.json" };
    for (size_t s = 0; s < ARRAY_LEN(specs); s++)
        for (sheaf_quantize as = SHEAF_QUANTIZE_NF4; as <= SHEAF_QUANTIZE_INT8; as++) {
            int64_t compared = 0, codes = 0;
            sheaf_weights_init_report report;
            const char *path = in_sources("tests/data/%s", specs[s]);
            sheaf_weights_init_options how = { .spec = path, .dst = at("plain") };
            CHECK_OK(sheaf__remove_tree(at("plain")));
            CHECK_OK(sheaf_init(&report, &how));
            CHECK_OK(quantise(at("plain"), at("out"),
                              (sheaf_weights_convert_options){ .quantize = as }));
            how.dst = at("made");
            how.quantize = as;
            CHECK_OK(sheaf__remove_tree(at("made")));
            CHECK_OK(sheaf_init(&report, &how));
            compare_folders(at("made"), at("out"));
            folder plain = open_folder(at("plain")), out = open_folder(at("out"));
            for (int f = 0; f < plain.count; f++)
                for (int64_t i = 0; i < plain.file[f]->header.count; i++) {
                    const sheaf_safetensors_entry *e = &plain.file[f]->header.entry[i];
                    const bool coded = strstr(e->name, ".layers.") != NULL && e->ndim == 2 &&
                                       strstr(e->name, ".experts.") == NULL &&
                                       !sheaf__ends_with(e->name, ".gate.weight");
                    codes += coded;
                    if (coded)
                        continue;
                    compare_tensor(&out, plain.file[f], e->name);
                    compared++;
                }
            assert_int_equal(report.quantised, codes);
            assert_true(codes >= 4 && compared > codes);
        }
}

/* A tensor's rows that are no multiple of a block, and several files. */
TEST(test_quantise__init_writes_what_convert_would)
{
    static const char *const specs[] = { "tiny-bytes", "cogvlm-tiny", "cogagent-tiny",
                                         "minicpmv-tiny", "omnilmm-tiny" };
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        sheaf_weights_init_report report;
        sheaf_weights_init_options how = {
            .spec = specs[s], .dst = at("plain"), .seed = 5, .dtype = SHEAF_BF16
        };
        CHECK_OK(sheaf__remove_tree(at("plain")));
        CHECK_OK(sheaf_init(&report, &how));
        for (sheaf_quantize as = SHEAF_QUANTIZE_NF4; as <= SHEAF_QUANTIZE_INT8; as++) {
            how.dst = at("made");
            how.quantize = as;
            how.threads = 3;
            CHECK_OK(sheaf__remove_tree(at("made")));
            CHECK_OK(sheaf_init(&report, &how));
            assert_true(report.quantised > 0);
            CHECK_OK(quantise(at("plain"), at("out"),
                              (sheaf_weights_convert_options){ .quantize = as }));
            compare_folders(at("made"), at("out"));
            json_t *a = config_of(at("made")), *b = config_of(at("out"));
            assert_true(json_equal(a, b));
        }
    }
}

TEST(test_quantise__refuses_what_it_cannot)
{
    sheaf_weights_init_report report;
    CHECK_OK(sheaf__remove_tree(at("plain")));
    CHECK_OK(sheaf_init(&report,
                        &(sheaf_weights_init_options){ .spec = "tiny-bytes", .dst = at("plain") }));
    CHECK_FAILS(
        quantise(at("plain"), at("no"),
                 (sheaf_weights_convert_options){ .quantize = SHEAF_QUANTIZE_NF4, .to = "sheaf" }),
        SHEAF_E_ARG, "`quantize` | `to hf`");
    assert_int_equal(sheaf__path_kind(at("no")), SHEAF_PATH_NONE);
    CHECK_OK(quantise(at("plain"), at("once"),
                      (sheaf_weights_convert_options){ .quantize = SHEAF_QUANTIZE_NF4 }));
    CHECK_FAILS(quantise(at("once"), at("no"),
                         (sheaf_weights_convert_options){ .quantize = SHEAF_QUANTIZE_INT8 }),
                SHEAF_E_UNSUPPORTED,
                "`quantize` | weights in float32, bfloat16 or float16 | 'model.layers.0");
    assert_int_equal(sheaf__path_kind(at("no")), SHEAF_PATH_NONE);
    CHECK_FAILS(
        quantise(at("once"), at("no"), (sheaf_weights_convert_options){ .to = "sheaf" }),
        SHEAF_E_ARG,
        "`to sheaf` | plain weights: that form holds none in 4 or 8 bits | 'model.layers.0");
    CHECK_FAILS(
        quantise(at("plain"), at("no"), (sheaf_weights_convert_options){ .dequantize = true }),
        SHEAF_E_ARG, "`dequantize` | weights in 4 or 8 bits, which sheaf reads | none in");
    CHECK_FAILS(quantise(at("plain"), at("no"),
                         (sheaf_weights_convert_options){ .quantize = SHEAF_QUANTIZE_AWQ_4,
                                                          .group_size = 128 }),
                SHEAF_E_UNSUPPORTED, "in groups of 128 | rows that groups divide");
    CHECK_OK(quantise(at("once"), at("slices"),
                      (sheaf_weights_convert_options){ .to = "sheaf", .dequantize = true }));
    char *config = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&config, &size, at("once/config.json"), 1 << 20));
    CHECK_OK(sheaf_hf_config_change(&config, "quantization_config", "{\"quant_method\": \"hqq\"}"));
    put(at("once/config.json"), config);
    free(config);
    CHECK_FAILS(
        quantise(at("once"), at("no"), (sheaf_weights_convert_options){ .dequantize = true }),
        SHEAF_E_UNSUPPORTED,
        "`dequantize`: 'quantization_config.quant_method' | bitsandbytes, gptq, awq, auto-round");
    CHECK_FAILS(quantise(at("once"), at("no"),
                         (sheaf_weights_convert_options){ .quantize = SHEAF_QUANTIZE_NF4 }),
                SHEAF_E_UNSUPPORTED,
                "`quantize`: 'quantization_config.quant_method' | bitsandbytes, gptq, awq");
    assert_int_equal(sheaf__path_kind(at("no")), SHEAF_PATH_NONE);
}

/* Without a flag a folder's weights stay as they are, of every quantiser; --dequantize gives the
 * values that the source has. */
TEST(test_quantise__folders_are_copied_or_dequantised)
{
    static const char *const folders[] = { "quant/tiny_llama/bnb_nf4_double",
                                           "quant/tiny_llama/bnb_int8",
                                           "quant/tiny_llama/bnb_nf4_storage_bf16",
                                           "quant/tiny_llama_gptq_sym",
                                           "quant/tiny_llama_awq",
                                           "quant/tiny_llama_ct_pack_sym" };
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        const char *path = folders[i];
        if (i > 0 && !recordings_are_full())
            continue;
        CHECK_OK(quantise(recording(path), at("out"),
                          (sheaf_weights_convert_options){ .shard_bytes = 30000, .threads = 3 }));
        compare_folders(at("out"), recording(path));
        json_t *a = config_of(at("out")), *b = config_of(recording(path));
        assert_true(json_equal(a, b));
        CHECK_OK(quantise(recording(path), at("plain"),
                          (sheaf_weights_convert_options){ .dequantize = true }));
        a = config_of(at("plain"));
        assert_null(json_object_get(a, "quantization_config"));
        sheaf_weights_diff_report report;
        CHECK_OK(
            sheaf_diff(&report, at("plain"), recording(path), &(sheaf_weights_diff_options){ 0 }));
        assert_int_equal(report.different, 0);
        compared++;
    }
    assert_true(compared > 0);
}

/* Puts `value` at number `i` of the first tensor whose name ends in `part`. */
static void damage(const char *path, const char *part, int64_t i, float value)
{
    sheaf_safetensors *file;
    int64_t offset = -1;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    for (int64_t k = 0; k < file->header.count && offset < 0; k++) {
        const sheaf_safetensors_entry *e = &file->header.entry[k];
        const size_t n = strlen(e->name), m = strlen(part);
        if (n > m && strcmp(e->name + n - m, part) == 0 && e->dtype == SHEAF_F32)
            offset = e->offset + 4 * i;
    }
    sheaf__safetensors_close(file);
    assert_true(offset >= 0);
    FILE *to = fopen(path, "r+b");
    assert_non_null(to);
    assert_int_equal(fseek(to, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, to), 1);
    assert_int_equal(fclose(to), 0);
}

TEST(test_quantise__copies_no_damaged_scale)
{
    static const struct {
        sheaf_quantize as;
        const char *part;
        int64_t at;
        float value;
        const char *told;
    } rows[] = {
        { SHEAF_QUANTIZE_NF4, ".absmax", 7, NAN, "absmax: scale of row 1, block 7 |" },
        { SHEAF_QUANTIZE_NF4, ".absmax", 255, INFINITY, "absmax: scale of row 46, block 255 |" },
        { SHEAF_QUANTIZE_NF4, ".absmax", 2, -1, "a finite number, 0 or more | -1" },
        { SHEAF_QUANTIZE_NF4_DOUBLE, ".nested_absmax", 0, INFINITY,
          "nested_absmax: scale 0 | a finite number, 0 or more | inf" },
        { SHEAF_QUANTIZE_INT8, ".SCB", 5, INFINITY, "SCB: scale of row 5, block 0 |" },
    };
    sheaf_weights_init_report report;
    CHECK_OK(sheaf__remove_tree(at("plain")));
    CHECK_OK(sheaf_init(&report,
                        &(sheaf_weights_init_options){ .spec = "tiny-bytes", .dst = at("plain") }));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(quantise(at("plain"), at("once"),
                          (sheaf_weights_convert_options){ .quantize = rows[i].as }));
        const char *path = textf("%s/model.safetensors", at("once"));
        damage(path, rows[i].part, rows[i].at, rows[i].value);
        CHECK_FAILS(quantise(at("once"), at("no"), (sheaf_weights_convert_options){ 0 }),
                    SHEAF_E_NUMBER, rows[i].told);
        assert_int_equal(sheaf__path_kind(at("no")), SHEAF_PATH_NONE);
    }
}

FIXTURE(make_scratch, remove_scratch);
