/* folders_test.c - no memory, at any allocation, while models and adapters are read and written. */
#include "tests/faults/denied_memory.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"

#include "dialects/hf/hf.h"
#include "schema/schema.h"

/* One thing to do; it frees all it made, also on failure. */
typedef sheaf_status *(*job)(void);

static sheaf_status *read_config(void)
{
    sheaf_config c;
    sheaf_schema *schema = NULL;
    char *text = NULL;
    sheaf_status *st = sheaf_config_read(&c, golden("llama/tiny_llama3rope/config_4x_style.json"));
    if (st != NULL)
        return st;
    st = sheaf_schema_new(&schema, &c, 8);
    if (st == NULL)
        st = sheaf_hf_config_with_dtype(&text, c.json, SHEAF_BF16);
    free(text);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    return st;
}

/* Is this model what that config says? */
static sheaf_status *check_model(const char *model, const char *config)
{
    sheaf_source *source = NULL;
    sheaf_config c = { 0 };
    sheaf_schema *schema = NULL;
    sheaf_status *st = open_stored(&source, golden(model));
    if (st == NULL)
        st = sheaf_config_read(&c, golden(config));
    if (st == NULL)
        st = sheaf_schema_new(&schema, &c, 8);
    if (st == NULL)
        st = sheaf_hf_check(source, schema, c.json);
    if (source != NULL)
        source->close(source);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    return st;
}

static sheaf_status *read_model(void)
{
    return check_model("llama/tiny_qwen2/hf_sharded", "llama/tiny_qwen2/hf/config.json");
}

/* A model that is refused: messages must not need the memory that is lacking. */
static sheaf_status *refuse_model(void)
{
    return check_model("llama/tiny_llama/hf", "llama/tiny_mistral/hf/config.json");
}

static sheaf_status *read_adapter(void)
{
    sheaf_source *source = NULL;
    sheaf_status *st = open_adapter_at(&source, golden("llama/tiny_llama/lora/adapter_final"));
    if (st == NULL)
        source->close(source);
    return st;
}

static sheaf_status *zeros(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    return NULL;
}

static sheaf_status *write_model(void)
{
    static const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 2, { 3, 4 } },
                                                   { "y", SHEAF_F32, 1, { 9 } },
                                                   { "z", SHEAF_U8, 1, { 5 } } };
    sheaf_folder *folder = NULL;
    sheaf_status *st = sheaf_hf_begin(&folder, at("out/dst"), "{}", spec, 3,
                                      &(sheaf_folder_options){ .shard_bytes = 48 });
    if (st != NULL)
        return st;
    st = sheaf_hf_copy_extras(folder, golden("llama/tiny_llama/hf"), NULL);
    if (st == NULL)
        st = sheaf__folder_write_all(folder, zeros, NULL, 20);
    if (st == NULL)
        return sheaf__folder_commit(folder);
    sheaf__folder_abandon(folder);
    return st;
}

static sheaf_status *write_text(void)
{
    return sheaf__file_write_whole(at("out/text"), "text", 4);
}

static const struct {
    const char *name;
    job job;
    sheaf_code refused;
    int least;
} jobs[] = {
    { "read a config", read_config, 0, 60 },
    { "read a model", read_model, 0, 200 },
    { "refuse a model", refuse_model, SHEAF_E_LAYOUT, 100 },
    { "read an adapter", read_adapter, 0, 40 },
    { "write a model", write_model, 0, 40 },
    { "write a text", write_text, 0, 3 },
};

/* Denies allocation after allocation until the job no longer notices; beyond the first hundred only
 * each second one, third one and so on, but in ./run soak. */
static void deny_each(size_t i)
{
    for (long n = 1;; n += in_soak(1, 1 + (int)n / 100)) {
        CHECK_OK(sheaf__remove_tree(at("out")));
        CHECK_OK(sheaf__make_dir(at("out")));
        deny_begin(n);
        sheaf_status *st = jobs[i].job();
        const int code = st == NULL ? 0 : (int)sheaf_status_code(st);
        sheaf_status_free(st);
        deny_end();
        if (atomic_load(&deny_live) != 0)
            fail_msg("%s: %ld blocks left when allocation %ld is denied", jobs[i].name,
                     atomic_load(&deny_live), n);
        if (code != 0 && code != SHEAF_E_MEMORY && code != SHEAF_E_IO &&
            code != (int)jobs[i].refused)
            fail_msg("%s: code %d when allocation %ld is denied", jobs[i].name, code, n);
        const bool done = atomic_load(&deny_seen) < n;
        if (sheaf__path_kind(at("out/dst")) != SHEAF_PATH_NONE) /* complete, or not there */
            assert_int_equal(entries(at("out/dst")), 5);
        if (code != 0) /* nothing else is left, unless removing it was what lacked the memory */
            assert_true(entries(at("out")) <= 1);
        if (done) {
            print_message("%s: %ld allocations\n", jobs[i].name, n);
            assert_true(code == (int)jobs[i].refused && n > jobs[i].least);
            return;
        }
    }
}

TEST(test_memory__any_denied_allocation_is_a_status)
{
    if (!DENIED_MEMORY_WORKS)
        return; /* see denied_memory.h */
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        deny_each(i);
}

FIXTURE(make_scratch, remove_scratch);
