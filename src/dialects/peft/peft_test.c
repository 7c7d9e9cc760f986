/* peft_test.c - all spellings of adapter tensors come to PEFT's own; recorded adapters are
 * rewritten byte for byte. */
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"
#include "tests/same_sources.h"
#include "tests/pickled.h"
#include "tests/put_tensors.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/made_llama.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"

#define P "base_model.model."
#define Q "model.layers.0.self_attn.q_proj"

TEST(test_name__every_spelling)
{
    static const struct {
        const char *stored, *want;
    } rows[] = {
        { P Q ".lora_A.weight", P Q ".lora_A.weight" },
        { P Q ".lora_A.default.weight", P Q ".lora_A.weight" },
        { P Q ".lora_B.my_task.weight", P Q ".lora_B.weight" },
        { P Q ".lora_B.default.bias", P Q ".lora_B.bias" },
        { P Q ".lora_B.bias", P Q ".lora_B.bias" },
        { Q ".lora_A.weight", P Q ".lora_A.weight" },
        { Q ".lora_B.default.weight", P Q ".lora_B.weight" },
        { P Q ".lora_magnitude_vector", P Q ".lora_magnitude_vector" },
        { P Q ".lora_magnitude_vector.weight", P Q ".lora_magnitude_vector" },
        { P Q ".lora_magnitude_vector.default.weight", P Q ".lora_magnitude_vector" },
        { P "model.embed_tokens.lora_embedding_A", P "model.embed_tokens.lora_embedding_A" },
        { P "model.embed_tokens.lora_embedding_B.default",
          P "model.embed_tokens.lora_embedding_B" },
        { P "e.token_adapter.trainable_tokens_delta.default",
          P "e.token_adapter.trainable_tokens_delta" },
        { P "model.embed_tokens.base_layer.weight", P "model.embed_tokens.base_layer.weight" },
        { P "lm_head.weight", P "lm_head.weight" },
        { P "lm_head.modules_to_save.weight", P "lm_head.weight" },
        { P "lm_head.modules_to_save.default.weight", P "lm_head.weight" },
        { "lm_head.modules_to_save.default.bias", P "lm_head.bias" },
        { P "r.modules_to_save.default.query", P "r.query" },
        { P "r.modules_to_save.default.attn.out_proj.weight", P "r.attn.out_proj.weight" },
        { P Q ".base_layer.bias", P Q ".base_layer.bias" },
        { P Q ".bias", P Q ".bias" },
        { "_orig_mod." P Q ".lora_A.weight", P Q ".lora_A.weight" },
        { P "_orig_mod." Q ".lora_A.weight", P Q ".lora_A.weight" },
        { "module._orig_mod." P Q ".lora_B.default.weight", P Q ".lora_B.weight" },
        { "_orig_mod.module." P "module." Q ".lora_A.weight", P Q ".lora_A.weight" },
        { P "model.layers.0._checkpoint_wrapped_module._orig_mod.self_attn.q_proj.lora_A.weight",
          P Q ".lora_A.weight" },
        { "_fsdp_wrapped_module.base_model._fsdp_wrapped_module.model.model.layers.0."
          "_fsdp_wrapped_module._fpw_module.self_attn.q_proj.lora_A.default.weight",
          P Q ".lora_A.weight" },
        { P "a.module.q.lora_A.weight", P "a.module.q.lora_A.weight" }, /* a module's own name */
        { P "a_orig_mod.q.lora_A.weight", P "a_orig_mod.q.lora_A.weight" },
        { P Q ".lora_A.a.b.weight",
          P Q ".lora_A.a.b.weight" }, /* no form that PEFT writes: kept, to be reported */
        { "", P "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *got = NULL;
        CHECK_OK(sheaf__peft_name(&got, rows[i].stored));
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("'%s' became '%s', not '%s'", rows[i].stored, got, rows[i].want);
        free(got);
    }
}

/* Calls visit() for every recorded adapter folder of the Llama family. */
static int each_adapter(void (*visit)(const char *path))
{
    static const char *const inside[] = { "lora/adapter_init",
                                          "lora/adapter_final",
                                          "lora_variants/rslora/adapter",
                                          "lora_variants/dora/adapter",
                                          "lora_variants/modules_to_save/adapter",
                                          "lora_variants/rank_pattern/adapter",
                                          "lora_variants/embedding_target/adapter",
                                          "lora_variants/layers_to_transform/adapter",
                                          "lora_variants/bias_all/adapter",
                                          "lora_variants/bias_lora_only/adapter" };
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2",
                                          "tiny_llama3rope" };
    int n = 0;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t i = 0; i < ARRAY_LEN(inside); i++) {
            const char *path = textf("llama/%s/%s", models[m], inside[i]);
            if (sheaf__path_kind(golden(textf("%s/adapter_model.safetensors", path))) !=
                SHEAF_PATH_FILE)
                continue;
            visit(golden(path));
            n++;
        }
    return n;
}

static void check_names_unchanged(const char *path)
{
    sheaf_source *source = NULL;
    sheaf_safetensors *file = NULL;
    char *own = NULL, inside[1100];
    CHECK_OK(open_adapter_at(&source, path));
    snprintf(inside, sizeof inside, "%s/adapter_model.safetensors", path);
    CHECK_OK(sheaf__safetensors_open(&file, inside));
    assert_int_equal(source->count(source), file->header.count);
    for (int64_t i = 0; i < file->header.count; i++)
        if (source->find(source, file->header.entry[i].name) == NULL)
            fail_msg("%s: %s", path, file->header.entry[i].name);
    sheaf__safetensors_close(file);
    source->close(source);
    CHECK_OK(sheaf_peft_config_path(&own, path));
    assert_int_equal(sheaf__path_kind(own), SHEAF_PATH_FILE);
    free(own);
}

TEST(test_open__recorded_adapters_keep_their_names)
{
    assert_true(each_adapter(check_names_unchanged) >= 8);
}

static sheaf_status *copy_rows(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    sheaf_source *source = context;
    const sheaf_source_entry *e = source->entry(source, index);
    return source->read(source, e->name, row0, rows, 0, e->ndim == 2 ? e->shape[1] : 1, dst);
}

static void check_rewritten(const char *path)
{
    sheaf_source *source = NULL;
    sheaf_folder *folder = NULL;
    sheaf_safetensors_spec spec[128];
    char *text = NULL, *own = NULL, *a = NULL, *b = NULL, inside[1100];
    size_t n = 0, na = 0, nb = 0;
    CHECK_OK(open_adapter_at(&source, path));
    CHECK_OK(sheaf_peft_config_path(&own, path));
    CHECK_OK(sheaf__file_read_all(&text, &n, own, 1 << 20));
    const int64_t count = source->count(source);
    assert_true(count <= 128);
    for (int64_t i = 0; i < count; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        spec[i] =
            (sheaf_safetensors_spec){ e->name, e->dtype, e->ndim, { e->shape[0], e->shape[1] } };
    }
    CHECK_OK(sheaf_peft_begin(&folder, at("again"), text, NULL, spec, count, true));
    CHECK_OK(sheaf__folder_write_all(folder, copy_rows, source, 100));
    CHECK_OK(sheaf__folder_commit(folder));
    source->close(source);
    snprintf(inside, sizeof inside, "%s/adapter_model.safetensors", path);
    CHECK_OK(sheaf__file_read_all(&a, &na, inside, 1 << 24));
    CHECK_OK(sheaf__file_read_all(&b, &nb, at("again/adapter_model.safetensors"), 1 << 24));
    if (na != nb || memcmp(a, b, na) != 0)
        fail_msg("%s: not the same bytes", path);
    free(a);
    CHECK_OK(sheaf__file_read_all(&a, &na, at("again/adapter_config.json"), 1 << 20));
    assert_string_equal(a, text);
    free(a);
    free(b);
    free(text);
    free(own);
}

TEST(test_write__recorded_adapters_byte_for_byte)
{
    assert_true(each_adapter(check_rewritten) >= 8);
}

/* The same tensors from adapter_model.bin as from adapter_model.safetensors. */
static void check_pickled(const char *path)
{
    sheaf_source *want = NULL, *got = NULL;
    CHECK_OK(sheaf__remove_tree(at("pickled")));
    pickle_adapter(at("pickled"), path);
    CHECK_OK(open_adapter_at(&want, path));
    CHECK_OK(open_adapter_at(&got, at("pickled")));
    same_sources(want, got, 0);
    want->close(want);
    got->close(got);
}

TEST(test_open__pickled_adapters_are_the_same)
{
    assert_true(each_adapter(check_pickled) >= 8);
}

/* An adapter folder whose file holds tensors of these names, of one number: 1, 2, ... */
static sheaf_status *open_with(sheaf_source **source, const char *const *names, int64_t n)
{
    sheaf_safetensors_spec spec[16];
    float number[16];
    const void *data[16];
    assert_true(n <= (int64_t)ARRAY_LEN(spec));
    CHECK_OK(sheaf__remove_tree(at("made")));
    mkdir(at("made"), 0700);
    for (int64_t i = 0; i < n; i++) {
        spec[i] = (sheaf_safetensors_spec){ names[i], SHEAF_F32, 2, { 1, 1 } };
        number[i] = (float)(i + 1);
        data[i] = &number[i];
    }
    put_tensors(at("made/adapter_model.safetensors"), spec, n, data);
    return open_adapter_at(source, at("made"));
}

TEST(test_open__in_memory_names_are_read)
{
    static const char *const names[] = { Q ".lora_A.default.weight", P Q ".lora_B.default.weight" };
    sheaf_source *source = NULL;
    float x = 0;
    CHECK_OK(open_with(&source, names, 2));
    assert_non_null(source->find(source, P Q ".lora_A.weight"));
    CHECK_OK(source->read(source, P Q ".lora_B.weight", 0, 1, 0, 1, &x));
    assert_true(x == 2);
    assert_null(source->find(source, names[0]));
    source->close(source);
}

/* PEFT 0.21 with bias "all": the biases of a saved module lie there three times. */
TEST(test_open__words_of_wrappers_are_left_out_and_named)
{
    static const char *const names[] = { "_orig_mod." P Q ".lora_A.weight",
                                         "_orig_mod." P Q ".lora_B.weight" };
    sheaf_source *source = NULL;
    sheaf_catalog *c = NULL;
    CHECK_OK(open_with(&source, names, 2));
    assert_non_null(source->find(source, P Q ".lora_A.weight"));
    source->close(source);
    CHECK_OK(sheaf__open(&c, at("made"), NULL));
    check_found(c, SHEAF_NOTE, "inferred", "names with '_orig_mod.'");
}

TEST(test_open__copies_of_saved_biases_are_left_out)
{
    static const char *const names[] = { P "r.modules_to_save.default.ln.bias",
                                         P "r.ln.bias",
                                         P "r.original_module.ln.bias",
                                         P "score.modules_to_save.default.bias",
                                         P "down.modules_to_save.bias",
                                         P "down.bias",
                                         P "down.original_module.bias",
                                         "up.modules_to_save.bias",
                                         "up.bias" };
    sheaf_source *source = NULL;
    float x = 0;
    CHECK_OK(open_with(&source, names, ARRAY_LEN(names)));
    assert_int_equal(source->count(source), 4);
    CHECK_OK(source->read(source, P "down.bias", 0, 1, 0, 1, &x));
    assert_true(x == 6);
    CHECK_OK(source->read(source, P "up.bias", 0, 1, 0, 1, &x));
    assert_true(x == 9);
    CHECK_OK(source->read(source, P "r.ln.bias", 0, 1, 0, 1, &x));
    assert_true(x == 2);
    CHECK_OK(source->read(source, P "score.bias", 0, 1, 0, 1, &x));
    assert_true(x == 4);
    source->close(source);
}

/* LLaVA's, MiniCPM-V's (2024), swift's, and what Trainer and accelerate keep for going on. */
TEST(test_open__weights_beside_an_adapter_are_refused_by_name)
{
    static const char *const names[] = { P Q ".lora_A.weight", P Q ".lora_B.weight" };
    static const struct {
        const char *file;
        bool refused;
    } rows[] = {
        { "non_lora_trainables.bin", true },  { "vpm_resampler_embedtokens.pt", true },
        { "vit.safetensors", true },          { "value_head.safetensors", true },
        { "model.safetensors", true },        { "optimizer.pt", false },
        { "rng_state_0.pth", false },         { "training_args.bin", false },
        { "adapter_model.bin", false },       { "pytorch_model_fsdp.bin", false },
        { "merged_bf16.safetensors", false }, { "tokenizer.model", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_source *source = NULL;
        CHECK_OK(open_with(&source, names, 2));
        source->close(source);
        CHECK_OK(sheaf__file_write_whole(textf("%s/%s", at("made"), rows[i].file), "x", 1));
        sheaf_status *st = open_adapter_at(&source, at("made"));
        if (rows[i].refused) {
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, rows[i].file);
        } else {
            CHECK_OK(st);
            source->close(source);
        }
    }
}

TEST(test_open__two_tensors_of_one_name_are_refused)
{
    static const char *const names[] = { P Q ".lora_A.one.weight", P Q ".lora_A.two.weight" };
    sheaf_source *source = NULL;
    CHECK_FAILS(open_with(&source, names, 2), SHEAF_E_LAYOUT,
                "tensor '" P Q ".lora_A.weight': duplicate | one tensor of this name | it is in ");
    CHECK_FAILS(open_with(&source, names, 2), SHEAF_E_LAYOUT,
                "adapter_model.safetensors too; here it is stored as " P Q ".lora_A.two.weight | ");
}

TEST(test_open__explains_what_is_there_instead)
{
    sheaf_source *source = NULL;
    mkdir(at("bin"), 0700);
    CHECK_FAILS(open_adapter_at(&source, at("bin")), SHEAF_E_IO,
                "no adapter here | adapter_model.safetensors");
    CHECK_OK(sheaf__file_write_whole(at("bin/model.safetensors"), "x", 1));
    CHECK_FAILS(open_adapter_at(&source, at("bin")), SHEAF_E_IO,
                "adapter_model.safetensors | a whole model");
    CHECK_OK(sheaf__file_write_whole(at("bin/adapter_model.bin"), "x", 1));
    CHECK_FAILS(open_adapter_at(&source, at("bin")), SHEAF_E_FORMAT, "adapter_model.bin: damaged");
    mkdir(at("several"), 0700);
    mkdir(at("several/task"), 0700);
    CHECK_OK(sheaf__file_write_whole(at("several/task/adapter_model.safetensors"), "x", 1));
    CHECK_FAILS(open_adapter_at(&source, at("several")), SHEAF_E_IO,
                "an adapter in the folder task | ");
    CHECK_FAILS(open_adapter_at(&source, at("several/task")), SHEAF_E_FORMAT, "header length");
    mkdir(at("old"), 0700);
    mkdir(at("old/job"), 0700);
    CHECK_OK(sheaf__file_write_whole(at("old/job/adapter_model.bin"), "x", 1));
    CHECK_FAILS(open_adapter_at(&source, at("old")), SHEAF_E_IO, "an adapter in the folder job | ");
    CHECK_FAILS(open_adapter_at(&source, at("none")), SHEAF_E_IO, "none: nothing there");
    char *path = NULL; /* the config is read first, and must not be what is missed where nothing of
                          an adapter is */
    mkdir(at("sat"), 0700);
    CHECK_OK(sheaf__file_write_whole(at("sat/latest"), "1", 1));
    CHECK_FAILS(sheaf_peft_config_path(&path, at("nowhere")), SHEAF_E_IO,
                "| nothing there | check the path");
    CHECK_FAILS(sheaf_peft_config_path(&path, at("sat")), SHEAF_E_IO,
                "no adapter here | adapter_model.safetensors | a checkpoint of a whole model (SAT");
    CHECK_FAILS(sheaf_peft_config_path(&path, at("several")), SHEAF_E_IO,
                "an adapter in the folder task | ");
    CHECK_OK(sheaf_peft_config_path(&path, at("several/task")));
    free(path);
}

FIXTURE(make_scratch, remove_scratch);
