/* inside_test.c - a model that PEFT wrapped, saved whole: its base and its adapter come out as they
 * went in. */
#include "tests/golden.h"
#include "tests/pickled.h"
#include "tests/stored.h"

#include <unistd.h>

#include "checkpoint/convert/convert.h"
#include "checkpoint/tools/verify.h"

enum { MOST = 128 };

/* PEFT's place for a tensor of the base or of the adapter. */
typedef struct way {
    const char *name, *before; /* of all names */
    bool pickled;
    bool saved; /* the head lies in modules_to_save too, with the base's values */
} way;

typedef struct all {
    sheaf_safetensors *file[2]; /* the base's and the adapter's */
    int n;
    char name[MOST][240];
    const sheaf_safetensors_entry *entry[MOST];
    int from[MOST];
} all;

static void add(all *a, int from, const sheaf_safetensors_entry *e, const char *fmt, const char *x,
                int length, const char *y)
{
    assert_true(a->n < MOST);
    snprintf(a->name[a->n], sizeof a->name[0], fmt, x, length, y);
    a->entry[a->n] = e;
    a->from[a->n++] = from;
}

static void gather(all *a, const way *w)
{
    static const char before[] = "base_model.model.";
    a->file[0] = record(golden("llama/tiny_llama/hf/model.safetensors"));
    a->file[1] = record(golden("llama/tiny_llama/lora/adapter_final/adapter_model.safetensors"));
    for (int64_t i = 0; i < a->file[0]->header.count; i++) {
        const sheaf_safetensors_entry *e = &a->file[0]->header.entry[i];
        const int layer = (int)(strlen(e->name) - strlen(".weight"));
        const bool adapted = strstr(e->name, "_proj.") != NULL, head = strstr(e->name, "lm_head");
        if (w->saved && head) {
            add(a, 0, e, "%s%.*s.original_module.weight", w->before, layer, e->name);
            add(a, 0, e, "%s%.*s.modules_to_save.default.weight", w->before, layer, e->name);
        } else {
            add(a, 0, e, adapted ? "%s%.*s.base_layer.weight" : "%s%.*s.weight", w->before, layer,
                e->name);
        }
    }
    for (int64_t i = 0; i < a->file[1]->header.count; i++) {
        const sheaf_safetensors_entry *e = &a->file[1]->header.entry[i];
        const char *name = e->name + strlen(before);
        add(a, 1, e, "%s%.*s.default.weight", w->before, (int)(strlen(name) - strlen(".weight")),
            name);
    }
}

static void write_all(const char *path, const all *a, const way *w)
{
    made_tensors made = { .count = 0 };
    for (int i = 0; i < a->n; i++)
        made_copy(&made, a->name[i], a->file[a->from[i]], a->entry[i]->name);
    const char *plain = made_write(&made, textf("%s/model.safetensors", path));
    if (w->pickled) {
        pickle_file(textf("%s/pytorch_model.bin", path), plain);
        assert_int_equal(unlink(plain), 0);
    }
}

static void check_unmerged(const char *path, bool config)
{
    sheaf_verify_report r;
    CHECK_OK(sheaf_verify(&r, path, &(sheaf_weights_verify_options){ 0 }));
    const sheaf_finding *f = sheaf__catalog_finding(r.catalog, "unmerged");
    assert_true(sheaf_verify_sound(&r) && f != NULL && f->severity == SHEAF_WARNING);
    assert_true((strstr(f->cure, "--to peft && sheaf") != NULL) == config &&
                (strstr(f->cure, "--to peft --lora-alpha") != NULL) != config);
    sheaf_verify_release(&r);
}

static void check_config(const char *path, int64_t rank, const char *more)
{
    const char *text = file_text(path, NULL),
               *want = textf("\"r\": %d,\n  \"lora_alpha\": 7.5,", (int)rank);
    if (strstr(text, want) == NULL || strstr(text, more) == NULL)
        fail_msg("%s", text);
}

static const way ways[] = {
    { "of a PeftModel", "base_model.model.", false, false },
    { "of an injected adapter, pickled", "", true, false },
    { "compiled, with a head that is saved", "_orig_mod.base_model.model.", false, true },
    { "wrapped by FSDP inside and DataParallel outside",
      "module.base_model.model._fsdp_wrapped_module.", true, true },
};

TEST(test_convert__base_and_adapter_come_out_of_a_whole_save)
{
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        all a = { .n = 0 };
        sheaf_weights_convert_report r;
        CHECK_OK(sheaf__make_dirs(at("whole")));
        copy_file(at("whole/config.json"), golden("llama/tiny_llama/hf/config.json"));
        gather(&a, &ways[i]);
        write_all(at("whole"), &a, &ways[i]);
        check_unmerged(at("whole"), false);
        sheaf_weights_convert_options how = { .src = at("whole"), .dst = at("base"), .to = "hf" };
        CHECK_OK(sheaf_convert(&r, &how));
        check_same_tensors(at("base/model.safetensors"),
                           golden("llama/tiny_llama/hf/model.safetensors"), 0);
        how.to = "peft";
        how.dst = at("adapter");
        CHECK_FAILS(sheaf_convert(&r, &how), SHEAF_E_ARG, "`lora-alpha`");
        how.lora_alpha = 7.5;
        CHECK_OK(sheaf_convert(&r, &how));
        check_same_tensors(at("adapter/adapter_model.safetensors"),
                           golden("llama/tiny_llama/lora/adapter_final/adapter_model.safetensors"),
                           ways[i].saved);
        check_config(at("adapter/adapter_config.json"), 4,
                     ways[i].saved ? "\"modules_to_save\": [\"lm_head\"]"
                                   : "\"modules_to_save\": null");
        how.dst = at("again"); /* the config beside it says the scale */
        put(at(i % 2 == 0 ? "adapter_config.json" : "whole/adapter_config.json"),
            "{\"peft_type\": \"LORA\", \"r\": 4}");
        check_unmerged(at("whole"), true);
        CHECK_FAILS(sheaf_convert(&r, &how), SHEAF_E_ARG, "both");
        how.lora_alpha = 0;
        CHECK_OK(sheaf_convert(&r, &how));
        CHECK_OK(sheaf__remove_tree(at("adapter_config.json")));
        static const char *const made[] = { "whole", "base", "adapter", "again" };
        for (size_t k = 0; k < ARRAY_LEN(made); k++)
            CHECK_OK(sheaf__remove_tree(at(made[k])));
    }
}

/* "two": a model of up to four numbers a tensor. */
static void write_floats(const sheaf_safetensors_spec *spec, int n)
{
    static const float x[4] = { 1, 2, 3, 4 };
    made_tensors made = { .count = 0 };
    for (int i = 0; i < n; i++)
        made_add(&made, spec[i].name, SHEAF_F32, spec[i].ndim, spec[i].shape, x);
    made_write(&made, at("two/model.safetensors"));
}

/* Factors of two adapters, and those of another kind, cannot be one of LoRA. */
TEST(test_convert__what_is_no_single_adapter_is_refused)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        { "model.layers.0.self_attn.q_proj.lora_A.second.weight", "it in several adapters" },
        { "model.layers.0.self_attn.q_proj.ia3_l.default", "another kind of adapter" },
        { "base_model.vera_A.default", "another kind of adapter" },
        { "model.embed_tokens.token_adapter.trainable_tokens_delta.default", "rows of tokens" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const sheaf_safetensors_spec spec[] = {
            { "model.layers.0.self_attn.q_proj.base_layer.weight", SHEAF_F32, 2, { 2, 2 } },
            { "model.layers.0.self_attn.q_proj.lora_A.default.weight", SHEAF_F32, 2, { 1, 2 } },
            { "model.layers.0.self_attn.q_proj.lora_B.default.weight", SHEAF_F32, 2, { 2, 1 } },
            { cases[i].name, SHEAF_F32, 2, { 1, 2 } },
        };
        sheaf_weights_convert_report r;
        CHECK_OK(sheaf__make_dirs(at("two")));
        write_floats(spec, ARRAY_LEN(spec));
        sheaf_verify_report v;
        CHECK_OK(sheaf_verify(&v, at("two"), &(sheaf_weights_verify_options){ 0 }));
        const sheaf_finding *f = sheaf__catalog_finding(v.catalog, "unmerged");
        assert_true(f != NULL && strstr(f->cure, "merge_and_unload") != NULL);
        sheaf_verify_release(&v);
        const sheaf_weights_convert_options how = {
            .src = at("two"), .dst = at("never"), .to = "peft", .lora_alpha = 8
        };
        CHECK_FAILS(sheaf_convert(&r, &how), SHEAF_E_UNSUPPORTED, cases[i].says);
        assert_int_equal(sheaf__path_kind(at("never")), SHEAF_PATH_NONE);
        CHECK_OK(sheaf__remove_tree(at("two")));
    }
}

/* Factors of two ranks, with a bias and magnitudes: the config that is made says so. */
TEST(test_convert__the_made_config_says_what_the_tensors_are)
{
    static const sheaf_safetensors_spec spec[] = {
        { "a.k.base_layer.weight", SHEAF_F32, 2, { 2, 2 } },
        { "a.k.lora_A.default.weight", SHEAF_F32, 2, { 1, 2 } },
        { "a.k.lora_B.default.weight", SHEAF_F32, 2, { 2, 1 } },
        { "a.v.base_layer.weight", SHEAF_F32, 2, { 2, 2 } },
        { "a.v.lora_A.default.weight", SHEAF_F32, 2, { 2, 2 } },
        { "a.v.lora_B.default.bias", SHEAF_F32, 1, { 2 } },
        { "a.v.lora_B.default.weight", SHEAF_F32, 2, { 2, 2 } },
        { "a.v.lora_magnitude_vector.default.weight", SHEAF_F32, 1, { 2 } },
    };
    static const char *const says[] = { "\"target_modules\": [\"a.k\", \"a.v\"]",
                                        "\"rank_pattern\": {\"a.v\": 2}", "\"use_dora\": true",
                                        "\"lora_bias\": true" };
    sheaf_weights_convert_report r;
    CHECK_OK(sheaf__make_dirs(at("two")));
    write_floats(spec, ARRAY_LEN(spec));
    const sheaf_weights_convert_options how = {
        .src = at("two"), .dst = at("made"), .to = "peft", .lora_alpha = 7.5
    };
    CHECK_OK(sheaf_convert(&r, &how));
    for (size_t i = 0; i < ARRAY_LEN(says); i++)
        check_config(at("made/adapter_config.json"), 1, says[i]);
}

FIXTURE(make_scratch, remove_scratch);
