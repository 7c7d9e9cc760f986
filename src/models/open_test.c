/* Opening models whose LoRA lies in their own files, not merged: run, and refused for training. */
#include "models/open.h"

#include <unistd.h>

#include "base/file.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/pickled.h"

typedef struct heard {
    int notes;
} heard;

static void hear(void *context, const sheaf_event *event)
{
    heard *h = context;
    h->notes += event->kind == SHEAF_EVENT_NOTE && strstr(event->text, "merged") != NULL;
}

static void same_tensors(sheaf_source *a, sheaf_source *b)
{
    assert_int_equal(a->count(a), b->count(b));
    for (int64_t i = 0; i < a->count(a); i++) {
        const sheaf_source_entry *e = a->entry(a, i), *other = b->find(b, e->name);
        assert_non_null(other);
        int64_t rows = 1, cols = 1;
        for (int d = 0; d < e->ndim; d++)
            *(d > 0 && d == e->ndim - 1 ? &cols : &rows) *= e->shape[d];
        const size_t size = (size_t)(rows * cols) * sheaf_dtype_bytes(e->dtype);
        char *one = malloc(size + 1), *two = malloc(size + 1);
        assert_true(one != NULL && two != NULL && other->dtype == e->dtype);
        CHECK_OK(a->read(a, e->name, 0, rows, 0, cols, one));
        CHECK_OK(b->read(b, e->name, 0, rows, 0, cols, two));
        CHECK_BYTES(e->name, one, two, size);
        free(one);
        free(two);
    }
}

/* One SAT save with LoRA in it; `merged` is what SAT's own merge made of it, or NULL. */
static void check_save(const char *save, const char *merged)
{
    heard h = { 0 };
    const sheaf_events events = { hear, &h };
    sheaf__opened opened = { 0 }, plain = { 0 };
    CHECK_OK(sheaf__open_model(
        &opened, &(sheaf__open_options){ .model = save, .slices = 8, .events = &events }));
    assert_int_equal(h.notes, 1);
    if (merged != NULL) {
        CHECK_OK(sheaf__open_model(
            &plain, &(sheaf__open_options){ .model = merged, .slices = 8, .for_training = true }));
        same_tensors(opened.weights, plain.weights);
        sheaf__opened_close(&plain);
    }
    sheaf__opened_close(&opened);
    CHECK_FAILS(
        sheaf__open_model(
            &opened, &(sheaf__open_options){ .model = save, .slices = 8, .for_training = true }),
        SHEAF_E_LAYOUT, "sheaf merge ");
    sheaf__opened_close(&opened);
}

TEST(test_open__lora_of_sat_is_merged_for_running_and_refused_for_training)
{
    static const char *const models[] = { "cogvlm", "cogagent" };
    static const char *const saves[] = { "lora_mp1", "lora_mp2", "lora_mp8" };
    int seen = 0;
    if (!golden_is_full())
        skip(); /* the committed subset has no SAT saves */
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t s = 0; s < ARRAY_LEN(saves); s++) {
            char save[900], merged[920];
            snprintf(save, sizeof save, "%s/%s", models[m], saves[s]);
            snprintf(save, sizeof save, "%s", golden(save));
            if (sheaf__path_kind(save) != SHEAF_PATH_DIR)
                continue;
            snprintf(merged, sizeof merged, "%s_merged", save);
            check_save(save, sheaf__path_kind(merged) == SHEAF_PATH_DIR ? merged : NULL);
            seen++;
        }
    assert_true(seen > 0);
}

/* As train, eval, generate and chat open it with --adapter. */
TEST(test_open__a_pickled_adapter_is_the_same)
{
    char adapter[900];
    snprintf(adapter, sizeof adapter, "%s", golden("llama/tiny_llama/lora/adapter_final"));
    pickle_adapter(at("pickled"), adapter);
    for (int training = 0; training < 2; training++) {
        const sheaf__open_options how = { .model = golden("llama/tiny_llama/hf"),
                                          .slices = 8,
                                          .for_training = training == 1,
                                          .adapter = adapter };
        sheaf__open_options other = how;
        sheaf__opened a = { 0 }, b = { 0 };
        other.adapter = at("pickled");
        CHECK_OK(sheaf__open_model(&a, &how));
        CHECK_OK(sheaf__open_model(&b, &other));
        assert_int_equal(a.lora->nmodules, b.lora->nmodules);
        same_tensors(a.adapter, b.adapter);
        sheaf__opened_close(&a);
        sheaf__opened_close(&b);
    }
}

/* One door: pickled weights are opened as the same ones in safetensors, also with what DataParallel
 * puts before each name; damage is reported as such. */
TEST(test_open__a_pickled_model_is_the_same)
{
    char from[900], *text = NULL;
    size_t size;
    sheaf__open_options how = { .model = golden("llama/tiny_llama/hf"), .slices = 8 };
    sheaf__opened want = { 0 }, got = { 0 };
    snprintf(from, sizeof from, "%s/config.json", golden("llama/tiny_llama/hf"));
    CHECK_OK(sheaf__make_dirs(at("model")));
    CHECK_OK(sheaf__file_read_all(&text, &size, from, 1 << 20));
    CHECK_OK(sheaf__file_write_whole(at("model/config.json"), text, size));
    free(text);
    snprintf(from, sizeof from, "%s/model.safetensors", golden("llama/tiny_llama/hf"));
    CHECK_OK(sheaf__open_model(&want, &how));
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        unlink(at("model/pytorch_model.bin"));
        pickle_file_as(at("model/pytorch_model.bin"), from, wrapped ? "module." : "");
        how.model = at("model");
        CHECK_OK(sheaf__open_model(&got, &how));
        same_tensors(got.weights, want.weights);
        sheaf__opened_close(&got);
    }
    CHECK_OK(sheaf__file_write_whole(at("model/pytorch_model.bin"), "x", 1));
    CHECK_FAILS(sheaf__open_model(&got, &how), SHEAF_E_FORMAT, "pytorch_model.bin: damaged");
    sheaf__opened_close(&got);
    sheaf__opened_close(&want);
}

/* Writes the safetensors file at `from` to `to`, with "module." before each tensor's name. */
static void wrap_names(const char *to, const char *from)
{
    char *text = NULL, *head = NULL;
    size_t size, n = 0;
    int64_t length;
    CHECK_OK(sheaf__file_read_all(&text, &size, from, 1 << 24));
    memcpy(&length, text, 8);
    FILE *out = open_memstream(&head, &n);
    assert_non_null(out);
    for (const char *at = text + 8, *end = at + length; at < end; at++) {
        fputc(*at, out);
        if (*at == '"' && (strncmp(at + 1, "model.", 6) == 0 || strncmp(at + 1, "lm_head", 7) == 0))
            fputs("module.", out);
    }
    while (ftell(out) % 8 != 0)
        fputc(' ', out);
    fclose(out);
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    const int64_t now = (int64_t)n;
    fwrite(&now, 8, 1, file);
    fwrite(head, 1, n, file);
    fwrite(text + 8 + length, 1, size - 8 - (size_t)length, file);
    assert_int_equal(fclose(file), 0);
    free(head);
    free(text);
}

/* Shards that no index names are put together by somebody: they are held against the config, and a
 * wrapper's prefix is taken off. */
TEST(test_open__shards_without_an_index_may_be_wrapped)
{
    char from[900], *text = NULL;
    size_t size;
    sheaf__open_options how = { .model = golden("llama/tiny_llama/hf"), .slices = 8 };
    sheaf__opened want = { 0 }, got = { 0 };
    snprintf(from, sizeof from, "%s/config.json", golden("llama/tiny_llama/hf"));
    CHECK_OK(sheaf__make_dirs(at("shards")));
    CHECK_OK(sheaf__file_read_all(&text, &size, from, 1 << 20));
    CHECK_OK(sheaf__file_write_whole(at("shards/config.json"), text, size));
    free(text);
    snprintf(from, sizeof from, "%s/model.safetensors", golden("llama/tiny_llama/hf"));
    wrap_names(at("shards/model-00001-of-00001.safetensors"), from);
    CHECK_OK(sheaf__open_model(&want, &how));
    how.model = at("shards");
    CHECK_OK(sheaf__open_model(&got, &how));
    same_tensors(got.weights, want.weights);
    sheaf__opened_close(&got);
    sheaf__opened_close(&want);
}

FIXTURE(make_scratch, remove_scratch);
