/* hashed_test.c - the fingerprint of a model is that of its bytes: not of how they are read, nor of
 * the files they lie in. */
#include "models/hashed.h"

#include <pthread.h>

#include "checkpoint/tools/init.h"
#include "dialects/hf/hf.h"
#include "models/open.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"

static void open_with_print(sheaf__opened *opened, const char *model)
{
    CHECK_OK(sheaf__open_model(
        opened, &(sheaf__open_options){
                    .model = model, .slices = 8, .for_training = true, .hashed = true }));
}

static void weights_of(char out[33], const char *model)
{
    sheaf__opened opened = { 0 };
    open_with_print(&opened, model);
    CHECK_OK(sheaf__hashed_all(opened.hashed, 3));
    CHECK_OK(sheaf__hashed_weights(out, opened.hashed));
    sheaf__opened_close(&opened);
}

/* A source that counts bytes. */
typedef struct counter {
    sheaf_source source;
    sheaf_source *inner;
    _Atomic int64_t bytes; /* several threads read at once */
} counter;
static const sheaf_source_entry *find(sheaf_source *s, const char *name)
{
    return ((counter *)s)->inner->find(((counter *)s)->inner, name);
}
static int64_t count(sheaf_source *s)
{
    return ((counter *)s)->inner->count(((counter *)s)->inner);
}
static const sheaf_source_entry *entry(sheaf_source *s, int64_t i)
{
    return ((counter *)s)->inner->entry(((counter *)s)->inner, i);
}
static sheaf_status *read_box(sheaf_source *s, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    counter *c = (counter *)s;
    c->bytes += rows * cols * (int64_t)sheaf_dtype_bytes(c->inner->find(c->inner, name)->dtype);
    return c->inner->read(c->inner, name, row0, rows, col0, cols, dst);
}
static void close_counter(sheaf_source *s)
{
    (void)s;
}

/* Rows of a slice of a tensor with one part; all of a replicated one. */
static sheaf_range slice_of(const sheaf_tensor *t, int slice)
{
    const int64_t units = t->cut.part[0].units, wide = t->cut.part[0].rows_per_unit,
                  slices = t->cut.slices;
    return t->cut.nparts == 0 ? (sheaf_range){ 0, t->shape[t->cut.axis] }
                              : (sheaf_range){ units * slice / slices * wide,
                                               units * (slice + 1) / slices * wide };
}

/* Reads all matrices as the ranks of a run do: each slice its box, `tall` rows at a time, and some
 * of it twice. */
static void read_slices(sheaf__hashed *print, const sheaf_schema *schema, int64_t tall, bool twice)
{
    sheaf_source *s = sheaf__hashed_source(print);
    char *buffer = room(1 << 20);
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        for (int k = 0; k < (twice ? 2 : 1) * schema->slices && t->ndim == 2; k++) {
            const sheaf_range range = slice_of(t, k % schema->slices);
            const bool rows = t->cut.nparts > 0 && t->cut.axis == 0,
                       cols = t->cut.nparts > 0 && t->cut.axis == 1;
            const int64_t r0 = rows ? range.begin : 0, r1 = rows ? range.end : t->shape[0],
                          c0 = cols ? range.begin : 0, c1 = cols ? range.end : t->shape[1];
            for (int64_t r = r0; r < r1; r += tall)
                CHECK_OK(
                    s->read(s, t->name, r, r1 - r < tall ? r1 - r : tall, c0, c1 - c0, buffer));
        }
    }
}

TEST(test_hashed__does_not_depend_on_how_it_is_read)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2" };
    static const struct {
        int slices;
        int64_t tall;
        bool twice;
    } ways[] = {
        { 8, 32, false }, { 8, 5, true }, { 1, 7, false }, { 4, 1000, false }, { 2, 1, true }
    };
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        const char *model = golden(textf("llama/%s/hf", models[m]));
        char want[33], is[33];
        weights_of(want, model);
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            sheaf_config config;
            sheaf_schema *schema = NULL;
            sheaf_source *file = NULL;
            sheaf__hashed *print = NULL;
            CHECK_OK(sheaf_config_read(&config, textf("%s/config.json", model)));
            CHECK_OK(sheaf_schema_new(&schema, &config, ways[w].slices));
            CHECK_OK(open_stored(&file, model));
            counter c = { { find, count, entry, read_box, close_counter }, file, 0 };
            CHECK_OK(sheaf__hashed_new(&print, &c.source, &config));
            read_slices(print, schema, ways[w].tall, ways[w].twice);
            int64_t vectors = 0;
            for (int64_t i = 0; i < schema->count; i++)
                vectors += schema->tensor[i].ndim == 1 ? schema->tensor[i].shape[0] * 4 : 0;
            c.bytes = 0;
            CHECK_OK(sheaf__hashed_all(print, 2));
            assert_int_equal(c.bytes, vectors); /* no matrix is read again */
            CHECK_OK(sheaf__hashed_weights(is, print));
            assert_string_equal(is, want);
            sheaf__hashed_free(print);
            file->close(file);
            sheaf_schema_free(schema);
            sheaf_config_release(&config);
        }
    }
}

TEST(test_hashed__does_not_depend_on_files)
{
    char one[33], shards[33];
    weights_of(one, golden("llama/tiny_llama/hf"));
    weights_of(shards, golden("llama/tiny_llama/hf_sharded"));
    assert_string_equal(one, shards);
}

/* Any bit of any tensor, and the tensor is told. */
TEST(test_hashed__every_bit_counts)
{
    static const char *const specs[] = { "tiny-bytes", "cogagent-tiny" };
    uint64_t dice = 5;
    for (size_t k = 0; k < ARRAY_LEN(specs); k++) {
        sheaf_weights_init_report report;
        sheaf__opened whole = { 0 };
        sheaf_safetensors *file = NULL;
        const char *model = at(specs[k]), *path = textf("%s/model.safetensors", model);
        CHECK_OK(sheaf_init(
            &report, &(sheaf_weights_init_options){ .spec = specs[k], .dst = model, .seed = 3 }));
        open_with_print(&whole, model);
        CHECK_OK(sheaf__hashed_all(whole.hashed, 2));
        CHECK_OK(sheaf__safetensors_open(&file, path));
        const int64_t n = sheaf__hashed_count(whole.hashed);
        for (int64_t i = (int64_t)k; i < n; i += k == 0 ? 1 : 23) {
            char before[33], after[33];
            const sheaf_safetensors_entry *e =
                sheaf__safetensors_find(file, sheaf__hashed_tensor(before, whole.hashed, i));
            sheaf__opened changed = { 0 };
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            FILE *f = fopen(path, "r+b");
            const long where = (long)(e->offset + (int64_t)((dice >> 20) % (uint64_t)e->bytes));
            fseek(f, where, SEEK_SET);
            const int byte = fgetc(f);
            fseek(f, where, SEEK_SET);
            fputc(byte ^ 1 << (dice >> 60 & 7), f);
            fflush(f);
            open_with_print(&changed, model);
            CHECK_OK(sheaf__hashed_all(changed.hashed, 2));
            for (int64_t j = 0; j < n; j++) {
                const char *name = sheaf__hashed_tensor(before, whole.hashed, j);
                sheaf__hashed_tensor(after, changed.hashed, j);
                if ((strcmp(before, after) == 0) != (i != j))
                    fail_msg("%s changed, %s %s", e->name, name, i == j ? "is the same" : "is not");
            }
            sheaf__opened_close(&changed);
            fseek(f, where, SEEK_SET);
            fputc(byte, f);
            fclose(f);
        }
        sheaf__safetensors_close(file);
        sheaf__opened_close(&whole);
    }
}

/* Two rows change places: the same bytes in other units. */
TEST(test_hashed__places_count)
{
    static const sheaf_safetensors_spec spec = { "a", SHEAF_F32, 2, { 4, 3 } };
    static const float rows[2][12] = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0 },
                                       { 4, 5, 6, 1, 2, 3, 7, 8, 9, 0, 0, 0 } };
    char hash[2][33];
    for (int k = 0; k < 2; k++) {
        sheaf_safetensors_writer *w = NULL;
        sheaf_source *source = NULL;
        sheaf__hashed *print = NULL;
        CHECK_OK(sheaf__safetensors_begin(&w, at(k == 0 ? "a.safetensors" : "b.safetensors"), &spec,
                                          1, NULL, 0));
        CHECK_OK(sheaf__safetensors_write(w, 0, 0, rows[k], sizeof rows[k]));
        CHECK_OK(sheaf__safetensors_finish(w));
        CHECK_OK(open_stored(&source, at(k == 0 ? "a.safetensors" : "b.safetensors")));
        CHECK_OK(sheaf__hashed_new(&print, source, NULL));
        CHECK_OK(sheaf__hashed_all(print, 1));
        assert_string_equal(sheaf__hashed_tensor(hash[k], print, 0), "a");
        sheaf__hashed_free(print);
        source->close(source);
    }
    assert_string_not_equal(hash[0], hash[1]);
    /* By the definition in models/hashed.h, worked out with another program. */
    assert_string_equal(hash[0], "aff1be75df87f1ea96d6bdc8fbea2df0");
}

FIXTURE(make_scratch, remove_scratch);
