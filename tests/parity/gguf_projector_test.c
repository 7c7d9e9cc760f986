/* gguf_projector_test.c - a tower of MiniCPM-V as a GGUF file has the bytes that llama.cpp's own
 * script wrote of the same model (tests/data/gguf/mmproj/record.py), by their hashes. */
#include "tests/parity/recorded.h"
#include "tests/sources.h"

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "formats/gguf.h"

static const char *recorded(const char *name)
{
    return in_sources("tests/data/gguf/mmproj/%s", name);
}

/* The model, by the rule of record.py. */
static void make_numbers(float *x, const sheaf_tensor *t, int64_t n, const sheaf_config *config)
{
    const uint64_t begin = sheaf__fnv(SHEAF__FNV, t->name, strlen(t->name));
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)((uint32_t)(begin + (uint64_t)i * 2654435761u) >> 24) - 128) / 256;
}

/* A folder of the model; in its config `change` replaces `from`. */
static const char *model_with(const char *from, const char *change)
{
    const char *folder = at("model");
    sheaf_schema *schema;
    CHECK_OK(sheaf__remove_tree(folder));
    CHECK_OK(sheaf__make_dir(folder));
    copy_edited(in_dir(folder, "config.json"), recorded("config.json"), from, change);
    CHECK_OK(sheaf_schema_new(&schema, config_of(folder, "config.json"), 1));
    write_model(in_dir(folder, "model.safetensors"), schema, SHEAF_BF16, make_numbers);
    sheaf_schema_free(schema);
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

/* What record.py prints of a file. */
static const char *listing_of(const char *path)
{
    const char *bytes = file_text(path, NULL);
    char *out;
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
    return kept(out, free);
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
            assert_string_equal(listing_of(out), file_text(recorded(files[i].recorded), NULL));
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
