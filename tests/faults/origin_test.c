/* origin_test.c - a run goes on with the base it began from and with no other: whatever changes in
 * weights, config, tokenizer or the adapter it started with is refused, and told by its name. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/faults/random_state.h"
#include "tests/tensors.h"

#include "base/json.h"
#include "checkpoint/tools/init.h"
#include "checkpoint/store/manifest.h"
#include "formats/safetensors.h"
#include "monitor/provenance.h"
#include "train/train.h"

enum { ROWS = 5, LENGTH = 6 };

static uint64_t dice = 11;

/* ---- a run, as the command makes it ---- */

typedef struct session {
    char *base;
} session;

static sheaf_status *take_base(void *self, const char *json)
{
    ((session *)self)->base = strdup(json);
    return NULL;
}

static sheaf_status *begin(void *self, int64_t keep_steps, int64_t keep_evaluations)
{
    return sheaf_provenance_add(at("out/run.json"),
                                &(sheaf_provenance){ .step = keep_steps,
                                                     .ranks = 1,
                                                     .threads = 1,
                                                     .transport = "threads",
                                                     .base = ((session *)self)->base },
                                NULL);
}

static sheaf_status *train(const char *data, const char *adapter, int64_t steps, int tp,
                           bool resume)
{
    sheaf_train_options o;
    sheaf_train_result result = { 0 };
    session s = { 0 };
    const sheaf_train_hooks hooks = { .begin = begin, .base = take_base, .self = &s };
    sheaf_train_options_default(&o);
    o.model = at("model");
    o.data = data;
    o.out = at("out");
    o.adapter = adapter;
    o.threads = 2;
    o.tp = tp;
    o.micro_batch = 1;
    o.lora_rank = 2;
    o.steps = steps;
    o.lr = 0.01;
    o.resume = resume;
    sheaf_status *st = sheaf_train(&result, &o, "settings: none\n", "steps: 4\n", &hooks);
    sheaf_train_result_release(&result);
    free(s.base);
    return st;
}

static void make_data(const char *path, int vocab)
{
    int64_t tokens[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++)
        tokens[i] = random_below(&dice, vocab);
    write_rows(path, ROWS, LENGTH, tokens, tokens);
}

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": false, "
    "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": null, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
    "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}, "
    "\"dtype\": \"float32\", \"head_dim\": 4, \"hidden_size\": 8, \"intermediate_size\": 11, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"num_hidden_layers\": 2, \"vocab_size\": 13, \"tie_word_embeddings\": false}\n";

/* A model and a run of one step that began from it. */
static void make_run(void)
{
    sheaf_weights_init_report report;
    const char *const gone[] = { "model", "out", "spec.json", "data.safetensors" };
    for (size_t i = 0; i < ARRAY_LEN(gone); i++)
        CHECK_OK(sheaf__remove_tree(at(gone[i])));
    put(at("spec.json"), config);
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){
                                     .spec = at("spec.json"), .dst = at("model"), .seed = 5 }));
    make_data(at("data.safetensors"), 13);
    CHECK_OK(train(at("data.safetensors"), NULL, 1, 2, false));
}

static sheaf_status *go_on(int tp)
{
    return train(at("data.safetensors"), NULL, 2, tp, true);
}

/* ---- changes in place ---- */

/* Bytes of a file at `offset` are swapped for `bytes`, which then holds what was there. */
static void swap_bytes(const char *path, int64_t offset, void *bytes, size_t size)
{
    char *was = malloc(size + 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && was != NULL && pread(fd, was, size, offset) == (ssize_t)size &&
                pwrite(fd, bytes, size, offset) == (ssize_t)size);
    memcpy(bytes, was, size);
    free(was);
    close(fd);
}

/* All rows but the first and the last become zero; a second call brings them back. Of a vector all
 * becomes 2. */
static bool change_tensor(char **held, const char *path, const sheaf_safetensors_entry *e)
{
    const int64_t row = e->ndim > 1 ? e->shape[e->ndim - 1] * 4 : 4, begin = e->ndim > 1 ? row : 0,
                  size = e->bytes - 2 * begin;
    if (size <= 0)
        return false;
    if (*held == NULL) {
        *held = calloc(1, (size_t)size);
        for (int64_t i = 0; e->ndim == 1 && i < size / 4; i++)
            ((float *)*held)[i] = 2;
    }
    swap_bytes(path, e->offset + begin, *held, (size_t)size);
    return true;
}

TEST(test_origin__no_other_weights)
{
    sheaf_safetensors *file = NULL;
    int changed = 0;
    make_run();
    CHECK_OK(sheaf__safetensors_open(&file, at("model/model.safetensors")));
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        char *held = NULL, name[200];
        if (!change_tensor(&held, at("model/model.safetensors"), e))
            continue;
        snprintf(name, sizeof name, "`resume`: the base model: weights, tensor '%s' |", e->name);
        CHECK_FAILS(go_on(1 + (int)(i % 8)), SHEAF_E_ARG, name);
        change_tensor(&held, at("model/model.safetensors"), e);
        free(held);
        changed++;
    }
    assert_int_equal(changed, 29); /* two tables, a norm and 13 of each layer */
    sheaf__safetensors_close(file);
    CHECK_OK(go_on(3));
}

TEST(test_origin__no_other_config)
{
    static const struct {
        const char *was, *is, *told;
    } rows[] = {
        { "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-06",
          "config, rms_norm_eps | 1e-05, with which this run began | 1e-06 |" },
        { "\"rope_theta\": 10000.0", "\"rope_theta\": 10000.5",
          "config, rope_theta | 10000, with which this run began | 10000.5 |" },
        { "\"factor\": 2.0", "\"factor\": 2.5",
          "config, rope_scaling.factor | 2, with which this run began | 2.5 |" },
        { "\"rope_type\": \"linear\"", "\"rope_type\": \"default\"",
          "config, rope_scaling.rope_type, and 1 more | linear," },
        { "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 96",
          "config, max_position_embeddings | 64" },
        { "\"bos_token_id\": 1", "\"bos_token_id\": 3", "config, bos_token_id | 1" },
        { "\"tie_word_embeddings\"", "\"text_processor_version\": \"vqa\", \"tie_word_embeddings\"",
          "config, text_processor_version | none, with which this run began | \"vqa\" |" },
    };
    make_run();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[2000];
        const char *at_key = strstr(config, rows[i].was);
        assert_non_null(at_key);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at_key - config), config, rows[i].is,
                 at_key + strlen(rows[i].was));
        put(at("model/config.json"), text);
        CHECK_FAILS(go_on(1), SHEAF_E_ARG, rows[i].told);
    }
    put(at("model/config.json"), config);
    CHECK_OK(go_on(1));
}

TEST(test_origin__no_other_tokenizer)
{
    make_run();
    put(at("model/tokenizer.model"), "one"); /* came later: these data need none */
    CHECK_OK(go_on(1));
    put(at("model/tokenizer.model"), "two");
    CHECK_FAILS(train(at("data.safetensors"), NULL, 3, 1, true), SHEAF_E_ARG,
                "`resume`: the base model: tokenizer |");
}

TEST(test_origin__no_other_adapter)
{
    static const struct {
        const char *was, *is;
    } alpha = { "\"lora_alpha\": 8", "\"lora_alpha\": 9" };
    sheaf_safetensors *file = NULL;
    char *json = NULL;
    size_t size;
    make_run();
    CHECK_OK(sheaf__remove_tree(at("first")));
    assert_int_equal(rename(at("out"), at("first")), 0);
    CHECK_OK(train(at("data.safetensors"), at("first/adapter"), 1, 2, false));
    CHECK_OK(sheaf__safetensors_open(&file, at("first/adapter/adapter_model.safetensors")));
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        char name[300];
        float changed = 0.25f;
        snprintf(name, sizeof name, "the adapter it starts from, tensor '%s' |", e->name);
        swap_bytes(file->path, e->offset + e->bytes / 2, &changed, 4);
        CHECK_FAILS(train(at("data.safetensors"), at("first/adapter"), 2, 1, true), SHEAF_E_ARG,
                    name);
        swap_bytes(file->path, e->offset + e->bytes / 2, &changed, 4);
    }
    sheaf__safetensors_close(file);
    CHECK_OK(sheaf__file_read_all(&json, &size, at("first/adapter/adapter_config.json"), 1 << 20));
    char *place = strstr(json, alpha.was);
    assert_non_null(place);
    memcpy(place, alpha.is, strlen(alpha.is));
    put(at("first/adapter/adapter_config.json"), json);
    CHECK_FAILS(train(at("data.safetensors"), at("first/adapter"), 2, 1, true), SHEAF_E_ARG,
                "adapter_config.json of the adapter it starts from");
    memcpy(place, alpha.was, strlen(alpha.was));
    put(at("first/adapter/adapter_config.json"), json);
    free(json);
    CHECK_OK(train(at("data.safetensors"), at("first/adapter"), 2, 3, true));
}

/* ---- older runs ---- */

/* The newest checkpoint as a sheaf saved it that knew less. */
static void forget_origin(void)
{
    sheaf_manifest *m = NULL;
    char *text = NULL;
    size_t size;
    json_t *progress = NULL;
    CHECK_OK(sheaf__file_read_all(&text, &size, at("out/checkpoints/step-00000001/manifest.json"),
                                  1 << 24));
    CHECK_OK(sheaf__manifest_read(&m, text, size));
    free(text);
    CHECK_OK(sheaf__json_parse(&progress, m->progress, strlen(m->progress)));
    json_object_del(progress, "origin");
    free(m->progress);
    m->progress = json_dumps(progress, JSON_SORT_KEYS);
    CHECK_OK(sheaf__manifest_write(&text, &size, m));
    CHECK_OK(
        sheaf__file_write_whole(at("out/checkpoints/step-00000001/manifest.json"), text, size));
    free(text);
    json_decref(progress);
    sheaf__manifest_free(m);
    assert_int_equal(unlink(at("out/run.json")), 0);
}

TEST(test_origin__a_run_without_an_origin_is_refused)
{
    make_run();
    forget_origin();
    CHECK_FAILS(go_on(2), SHEAF_E_UNSUPPORTED,
                "another version of sheaf | format 1, which this one reads | format 0");
}

/* ---- what is known is not read again ---- */

static void set_known(const char *weights)
{
    json_t *root = NULL;
    CHECK_OK(sheaf__json_load(&root, at("out/run.json")));
    json_object_set_new(json_object_get(root, "base"), "weights", json_string(weights));
    char *text = json_dumps(root, 0);
    put(at("out/run.json"), text);
    free(text);
    json_decref(root);
}

TEST(test_origin__the_same_files_are_not_hashed_again)
{
    static const char other[] = "0123456789abcdef0123456789abcdef";
    make_run();
    CHECK_OK(sheaf__remove_tree(at("out")));
    usleep(2200000); /* files that are newer may yet change within the tick of a clock */
    CHECK_OK(train(at("data.safetensors"), NULL, 1, 1, false));
    set_known(other);
    CHECK_FAILS(go_on(1), SHEAF_E_ARG, other); /* what is known was taken */
    char byte[1];
    const int fd = open(at("model/model.safetensors"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && pread(fd, byte, 1, 900) == 1 &&
                pwrite(fd, byte, 1, 900) == 1); /* the same bytes, a later time */
    close(fd);
    CHECK_OK(go_on(1)); /* so they were hashed */
}

/* Nothing was saved, but what the run began with is known. */
TEST(test_origin__before_the_first_checkpoint)
{
    float changed = 0.25f;
    make_run();
    CHECK_OK(sheaf__remove_tree(at("out/checkpoints/step-00000001")));
    swap_bytes(at("model/model.safetensors"), 4000, &changed, 4);
    CHECK_FAILS(go_on(1), SHEAF_E_ARG, "`resume`: the base model: weights, tensor");
    swap_bytes(at("model/model.safetensors"), 4000, &changed, 4);
    CHECK_OK(go_on(1));
}

FIXTURE(make_scratch, remove_scratch);
