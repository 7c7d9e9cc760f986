/* gguf_projector_test.c - a tower of MiniCPM-V as a GGUF file has the bytes that llama.cpp's own
 * script wrote of the same model (tests/data/gguf/mmproj/record.py), by their hashes. */
#include "tests/files.h"

#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

static const char *recorded(const char *name)
{
    static char path[2000];
    snprintf(path, sizeof path, "%s/tests/data/gguf/mmproj/%s", getenv("SHEAF_SOURCE_ROOT"), name);
    return path;
}

static char *text_of(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, path, 1 << 24));
    return text;
}

/* ---- the model, by the rule of record.py ---- */

static void write_numbers(sheaf_safetensors_writer *file, int64_t at, const sheaf_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    const uint64_t begin = sheaf__fnv(SHEAF__FNV, t->name, strlen(t->name));
    float *x = malloc((size_t)n * sizeof *x);
    uint16_t *out = malloc((size_t)n * sizeof *out);
    assert_true(x != NULL && out != NULL);
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)((uint32_t)(begin + (uint64_t)i * 2654435761u) >> 24) - 128) / 256;
    assert_true(sheaf__dtype_convert(out, SHEAF_BF16, x, SHEAF_F32, n));
    CHECK_OK(sheaf__safetensors_write(file, at, 0, out, n * (int64_t)sizeof *out));
    free(x);
    free(out);
}

/* A folder of the model; in its config `change`, which is no longer, replaces `from`. */
static const char *model_with(const char *from, const char *change)
{
    char path[2100];
    const char *folder = at("model");
    sheaf_config config;
    sheaf_schema *schema = NULL;
    sheaf_safetensors_writer *file = NULL;
    char *text = text_of(recorded("config.json"));
    if (from != NULL) {
        char *there = strstr(text, from);
        assert_non_null(there);
        assert_true(strlen(from) >= strlen(change));
        memset(there, ' ', strlen(from));
        memcpy(there, change, strlen(change));
    }
    CHECK_OK(sheaf__remove_tree(folder));
    CHECK_OK(sheaf__make_dir(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    put(path, text);
    CHECK_OK(sheaf_config_parse(&config, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&schema, &config, 1));
    sheaf_safetensors_spec *spec = calloc((size_t)schema->count, sizeof *spec);
    assert_non_null(spec);
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        spec[i] = (sheaf_safetensors_spec){ .name = t->name, .dtype = SHEAF_BF16, .ndim = t->ndim };
        memcpy(spec[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_OK(sheaf__safetensors_begin(&file, path, spec, schema->count, NULL, 0));
    for (int64_t i = 0; i < schema->count; i++)
        write_numbers(file, i, &schema->tensor[i]);
    CHECK_OK(sheaf__safetensors_finish(file));
    free(spec);
    free(text);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return folder;
}

static sheaf_status *convert(const char *folder, const char *dst, sheaf_dtype dtype, int threads)
{
    sheaf_weights_convert_report report;
    return sheaf_convert(
        &report,
        &(sheaf_weights_convert_options){
            .src = folder, .dst = dst, .to = "gguf-mmproj", .dtype = dtype, .threads = threads });
}

/* ---- its file ---- */

/* Some numbers of a table that processors compute otherwise in its last bit. */
static uint64_t hash_of_some(const char *bytes, int64_t size)
{
    enum { EVERY = 997 };
    uint64_t hash = SHEAF__FNV;
    for (int64_t i = 0; i < size / 4; i += EVERY) {
        float x;
        memcpy(&x, bytes + 4 * i, sizeof x);
        const int32_t rounded = (int32_t)lrint((double)x * 1000);
        hash = sheaf__fnv(hash, &rounded, sizeof rounded);
    }
    return hash;
}

/* What record.py prints of a file (free()). */
static char *listing_of(const char *path)
{
    char *bytes = text_of(path), *out = NULL;
    sheaf__gguf *file = NULL;
    sheaf_text text = { 0 };
    CHECK_OK(sheaf__gguf_open(&file, path));
    assert_true(file->ntensors > 0);
    sheaf__text_add(&text, "header %016" PRIx64 "\n",
                    sheaf__fnv(SHEAF__FNV, bytes, (size_t)file->tensor[0].offset));
    for (int64_t i = 0; i < file->ntensors; i++) {
        const sheaf__gguf_tensor *t = &file->tensor[i];
        const bool some = strcmp(t->name, "resampler.pos_embed_k") == 0;
        sheaf__text_add(&text, "%s %016" PRIx64 "\n", t->name,
                        some ? hash_of_some(bytes + t->offset, t->bytes)
                             : sheaf__fnv(SHEAF__FNV, bytes + t->offset, (size_t)t->bytes));
    }
    CHECK_OK(sheaf__text_take(&out, &text));
    sheaf__text_release(&text);
    sheaf__gguf_close(file);
    free(bytes);
    return out;
}

TEST(test_files__are_those_of_llama_cpps_script)
{
    static const struct {
        sheaf_dtype dtype;
        const char *recorded;
    } files[] = { { SHEAF_BOOL, "f16.txt" }, { SHEAF_F16, "f16.txt" }, { SHEAF_F32, "f32.txt" } };
    const char *folder = model_with(NULL, NULL), *out = at("mmproj.gguf");
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        for (int threads = 1; threads < 4; threads += 2) {
            CHECK_OK(convert(folder, out, files[i].dtype, threads));
            char *got = listing_of(out), *want = text_of(recorded(files[i].recorded));
            assert_string_equal(got, want);
            free(got);
            free(want);
            unlink(out);
        }
}

/* ---- what llama.cpp has otherwise ---- */

TEST(test_models__that_llama_cpp_computes_otherwise_are_refused)
{
    static const struct {
        const char *from, *change, *why;
    } models[] = {
        { "\"image_size\": 140", "\"image_size\": 138", "vision_config.image_size" },
        { "\"resampler_num_heads\": 1", "\"resampler_num_heads\": 2", "resampler_num_heads" },
        { "\"model_type\": \"siglip_vision_model\"", "\"num_channels\": 1", "num_channels" },
        { "\"rope_theta\": 10000.0", "\"resampler_ln_eps\": 1", "resampler_ln_eps" },
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const char *folder = model_with(models[i].from, models[i].change), *out = at("mmproj.gguf");
        CHECK_FAILS(convert(folder, out, SHEAF_BOOL, 1), SHEAF_E_UNSUPPORTED, models[i].why);
        assert_int_equal(sheaf__path_kind(out), SHEAF_PATH_NONE);
    }
}

TEST(test_requests__that_have_no_meaning_are_refused)
{
    const char *folder = model_with(NULL, NULL), *out = at("mmproj.gguf");
    CHECK_FAILS(convert(folder, out, SHEAF_BF16, 1), SHEAF_E_ARG, "float16 or float32");
    assert_int_equal(sheaf__path_kind(out), SHEAF_PATH_NONE);
}

FIXTURE(make_scratch, remove_scratch);
