/* merge_test.c - merged weights equal what PEFT computed, bit for bit, and what cannot be
 * merged is refused by name. */
#include "tests/stored.h"

#include <sys/stat.h>

#include "base/json.h"
#include "checkpoint/merge/merge.h"
#include "ops/kernels.h"
#include "tests/faults/faults.h"
#include "tests/golden.h"
#include "tests/opened.h"
#include "tests/pickled.h"

/* within - "dir/name". */
static const char *within(const char *dir, const char *name)
{
    return textf("%s/%s", dir, name);
}

static void remove_all(const char *path)
{
    CHECK_OK(sheaf__remove_tree(path));
}

static void fresh_folder(const char *dir)
{
    remove_all(dir);
    assert_int_equal(mkdir(dir, 0755), 0);
}

/* A PEFT folder of its own, with text replaced in its config. */
static void make_adapter(const char *dir, const char *from, const char *find, const char *with)
{
    fresh_folder(dir);
    copy_file(within(dir, "adapter_model.safetensors"), within(from, "adapter_model.safetensors"));
    copy_edited(within(dir, "adapter_config.json"), within(from, "adapter_config.json"), find,
                with);
}

/* Into a folder that is not there yet. */
static sheaf_status *merge(sheaf_weights_merge_report *report, const char *base,
                           const char *adapter, const char *dst, sheaf_weights_merge_mode mode,
                           sheaf_dtype dtype)
{
    return sheaf_merge(report, &(sheaf_weights_merge_options){ .base = base,
                                                               .adapters = &adapter,
                                                               .nadapters = 1,
                                                               .dst = dst,
                                                               .mode = mode,
                                                               .dtype = dtype,
                                                               .threads = 2 });
}

static bool there(const char *path)
{
    return sheaf__path_kind(path) != SHEAF_PATH_NONE;
}

static bool contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ---- comparing ---- */

/* Every tensor of `out` is that of `changed`, where it has one, and otherwise that of `base`
 * (`partial`: such a one is not compared). Every tensor of `changed` is there. */
static void compare(const char *out, const char *changed, const char *base, bool partial)
{
    const size_t mark = keeping.n;
    const sheaf_safetensors *got = record(within(out, "model.safetensors")),
                            *want = record(changed),
                            *was = record(within(base, "model.safetensors"));
    for (int64_t i = 0; i < want->header.count; i++)
        check_same_tensor(got, want->header.entry[i].name, want, want->header.entry[i].name);
    for (int64_t i = 0; i < got->header.count && !partial; i++) {
        const char *name = got->header.entry[i].name;
        const bool head =
            strcmp(name, "lm_head.weight") == 0 && sheaf__safetensors_find(was, name) == NULL;
        if (sheaf__safetensors_find(want, name) == NULL)
            check_same_tensor(got, name, was, head ? "model.embed_tokens.weight" : name);
    }
    release_kept(mark);
}

/* ---- the recorded cases ---- */

static const struct {
    const char *base, *adapter, *changed;
    bool partial;
} llama[] = {
    { "tiny_llama", "tiny_llama/lora/adapter_final", "tiny_llama/lora/merged/model.safetensors",
      false },
    { "tiny_qwen2", "tiny_qwen2/lora/adapter_final", "tiny_qwen2/lora/merged/model.safetensors",
      false },
    { "tiny_qwen2", "tiny_qwen2/lora/adapter_final", "tiny_qwen2/lora/merged_part.safetensors",
      true },
    { "tiny_mistral", "tiny_mistral/lora/adapter_final",
      "tiny_mistral/lora/merged_part.safetensors", true },
    { "tiny_llama3rope", "tiny_llama3rope/lora/adapter_final",
      "tiny_llama3rope/lora/merged_part.safetensors", true },
    { "tiny_llama", "tiny_llama/lora_variants/rslora/adapter",
      "tiny_llama/lora_variants/rslora/merged_changed_weights.safetensors", false },
    { "tiny_llama", "tiny_llama/lora_variants/rank_pattern/adapter",
      "tiny_llama/lora_variants/rank_pattern/merged_changed_weights.safetensors", true },
    { "tiny_llama", "tiny_llama/lora_variants/layers_to_transform/adapter",
      "tiny_llama/lora_variants/layers_to_transform/merged_changed_weights.safetensors", false },
    { "tiny_llama", "tiny_llama/lora_variants/modules_to_save/adapter",
      "tiny_llama/lora_variants/modules_to_save/merged_changed_weights.safetensors", true },
    { "tiny_qwen2", "tiny_qwen2/lora_variants/bias_lora_only/adapter",
      "tiny_qwen2/lora_variants/bias_lora_only/merged_changed_weights.safetensors", false },
    { "tiny_qwen2", "tiny_qwen2/lora_variants/bias_all/adapter",
      "tiny_qwen2/lora_variants/bias_all/merged_changed_weights.safetensors", false },
};

TEST(test_merge__llama_family_equals_peft)
{
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(llama); i++)
        for (int sharded = 0; sharded < 2; sharded++) {
            const char *model = golden(within("llama", llama[i].base)),
                       *base = within(model, sharded ? "hf_sharded" : "hf"),
                       *adapter = golden(within("llama", llama[i].adapter)),
                       *changed = golden(within("llama", llama[i].changed));
            if (!there(base) || !there(changed))
                continue;
            remove_all(at("out"));
            sheaf_weights_merge_report report;
            CHECK_OK(merge(&report, base, adapter, at("out"), SHEAF_MERGE_ROUND_ONCE, 0));
            compare(at("out"), changed, within(model, "hf"), llama[i].partial);
            assert_true(report.changed == report.adapted + report.replaced &&
                        report.rows_checked >= report.tensors);
            n++;
        }
    print_message("%d merges\n", n);
    assert_true(n >= (golden_is_full() ? 18 : 8));
}

/* The sum of `check` over the names in a folder of the recordings. */
static int each_name(const char *folder, int (*check)(const char *name))
{
    char **names = NULL;
    int64_t count = 0;
    int n = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, golden(folder)));
    for (int64_t i = 0; i < count; i++)
        n += check(names[i]);
    sheaf__names_free(names, count);
    print_message("%d of %s\n", n, folder);
    return n;
}

/* Whatever variants lie beside the models of golden/llama, each with the weights it changed. */
static int every_variant(const char *model)
{
    const char *dir = within(golden(within("llama", model)), "lora_variants"),
               *base = within(golden(within("llama", model)), "hf");
    char **names = NULL;
    int64_t count = 0;
    int n = 0;
    if (!there(dir))
        return 0;
    CHECK_OK(sheaf__list_dir(&names, &count, dir));
    for (int64_t i = 0; i < count; i++) {
        const char *variant = within(dir, names[i]), *adapter = within(variant, "adapter"),
                   *changed = within(variant, "merged_changed_weights.safetensors");
        if (!there(changed) || !there(within(adapter, "adapter_model.safetensors")) || !there(base))
            continue;
        remove_all(at("out"));
        sheaf_weights_merge_report report;
        print_message("%s\n", adapter);
        CHECK_OK(merge(&report, base, adapter, at("out"), SHEAF_MERGE_LIKE_PEFT, 0));
        compare(at("out"), changed, base, true);
        n++;
    }
    sheaf__names_free(names, count);
    return n;
}

TEST(test_merge__every_variant_of_the_llama_family)
{
    assert_true(each_name("llama", every_variant) >= (golden_is_full() ? 8 : 1));
}

/* A model sheaf has no schema for, trained with modules of its own saved whole. PEFT's base in half
 * precision is the cast of the float32 file, as --dtype makes it. */
static int vision_model(const char *name)
{
    static const struct {
        const char *file;
        sheaf_dtype dtype;
    } types[] = { { "merged_fp32.safetensors", SHEAF_F32 },
                  { "merged_bf16.safetensors", SHEAF_BF16 },
                  { "merged_fp16.safetensors", SHEAF_F16 } };
    const char *dir = golden(within("omnilmm", name)), *adapter = within(dir, "adapter_end"),
               *base = golden("omnilmm/model.safetensors");
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const char *changed = within(dir, types[i].file);
        if (!there(base) || !there(changed) || !there(adapter))
            continue;
        remove_all(at("out"));
        sheaf_weights_merge_report report;
        CHECK_OK(merge(&report, base, adapter, at("out"), SHEAF_MERGE_LIKE_PEFT, types[i].dtype));
        compare(at("out"), changed, at("out"), true);
        n++;
    }
    return n;
}

TEST(test_merge__a_model_without_a_schema)
{
    assert_true(each_name("omnilmm", vision_model) >= (golden_is_full() ? 3 : 0));
}

/* ---- golden/omnilmm/lora: every case that merged.json describes ---- */

typedef struct recorded {
    /* "mix_cat", "base_llama", ..., "merged_safe_bf16.safetensors" */
    const char *name, *base, *note, *file;
    char type[8];
    bool safe, tied_after, was_tied;
} recorded;

static bool flag_in_config(const char *dir, bool *tied)
{
    const char *path = within(dir, "config.json");
    json_t *object = NULL;
    if (!there(path))
        return false;
    CHECK_OK(sheaf__json_load(&object, path));
    *tied = json_is_true(json_object_get(object, "tie_word_embeddings"));
    json_decref(object);
    return true;
}

/* Path in the folder of a case. */
static const char *of_case(const char *name, const char *file)
{
    return within(golden(within("omnilmm/lora", name)), file);
}

static const char *weights_of(const recorded *r)
{
    return of_case(r->base, textf("model_%s.safetensors", r->type));
}

static void make_base(const recorded *r)
{
    fresh_folder(at("base"));
    copy_file(at("base/model.safetensors"), weights_of(r));
    if (there(of_case(r->base, "config.json")))
        copy_file(at("base/config.json"), of_case(r->base, "config.json"));
}

static void read_weights(double weights[2], const char *note)
{
    const char *at = strstr(note, "weights ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "weights %lf and %lf", &weights[0], &weights[1]), 2);
}

static void run_recorded(const recorded *r, sheaf_weights_merge_mode mode,
                         sheaf_weights_merge_report *report)
{
    const char *both[] = { golden(within("omnilmm/lora", r->name)), of_case(r->name, "second") };
    double weights[2] = { 0 };
    const bool mixed = contains(r->name, "mix_");
    make_base(r);
    remove_all(at("out"));
    if (mixed)
        read_weights(weights, r->note);
    CHECK_OK(
        sheaf_merge(report, &(sheaf_weights_merge_options){ .base = at("base"),
                                                            .adapters = both,
                                                            .nadapters = there(both[1]) ? 2 : 1,
                                                            .dst = at("out"),
                                                            .mode = mode,
                                                            .combine = mixed ? r->name + 4 : NULL,
                                                            .weights = weights,
                                                            .threads = 2 }));
    bool tied;
    if (flag_in_config(at("out"), &tied) && r->was_tied)
        assert_int_equal(tied, r->tied_after);
}

/* PEFT changes the head of a tied model together with its table, or adds one change twice: its
 * recordings tell what the table must be (W + D), and that is all they are good for. */
static void check_tied_lora(const recorded *r)
{
    static const char table[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    const size_t mark = keeping.n;
    const sheaf_safetensors *got = record(at("out/model.safetensors")),
                            *was = record(at("base/model.safetensors")),
                            *want = record(of_case(r->name, r->file));
    const bool keep = contains(r->name, "keep_tie");
    assert_int_equal(sheaf__safetensors_find(got, head) == NULL, keep);
    const sheaf_safetensors_entry *x;
    const float *g = raw_of(got, table, &x), *w = raw_of(want, table, NULL),
                *o = raw_of(was, table, NULL);
    if (!keep) {
        check_same_tensor(got, table, want, table); /* W + D, once */
        check_same_tensor(got, head, was, table);
    } else if (x->dtype == SHEAF_F32) { /* W + 2 D: halfway from the base to PEFT's */
        for (int64_t i = 0; i < x->bytes / 4; i++)
            CHECK_NEAR(table, g[i], 0.5 * ((double)w[i] + (double)o[i]), 1e-6);
    }
    for (int64_t i = 0; i < want->header.count; i++) {
        const char *name = want->header.entry[i].name;
        if (strcmp(name, table) != 0 && strcmp(name, head) != 0)
            check_same_tensor(got, name, want, name);
    }
    release_kept(mark);
}

static void check_recorded(const recorded *r, sheaf_weights_merge_mode mode)
{
    sheaf_weights_merge_report report;
    print_message("%s %s mode %d\n", r->name, r->file, (int)mode);
    run_recorded(r, mode, &report);
    assert_true(report.rows_checked >= report.tensors && report.worst_product <= 8);
    assert_true((report.products_checked > 0) == (report.worst_tensor[0] != '\0'));
    if (contains(r->name, "tied_embedding_lora")) {
        check_tied_lora(r);
        return;
    }
    compare(at("out"), of_case(r->name, r->file), at("base"), false);
}

/* Without tables, several adapters and ranks above 192 the best merge is PEFT's. */
static bool best_is_peft(const recorded *r)
{
    return !r->safe && !contains(r->name, "embedding") && !contains(r->name, "no_autocast") &&
           !contains(r->name, "in_turn");
}

static bool can_run(const recorded *r)
{
    return !contains(r->name, "mix_") || strcmp(r->name, "mix_linear") == 0 ||
           strcmp(r->name, "mix_cat") == 0;
}

static int one_case(const char *name)
{
    json_t *about = NULL, *facts;
    const char *file;
    int n = 0;
    if (!there(of_case(name, "merged.json")))
        return 0;
    CHECK_OK(sheaf__json_load(&about, of_case(name, "merged.json")));
    recorded r = { .name = name,
                   .base = json_string_value(json_object_get(about, "base")),
                   .note = json_string_value(json_object_get(about, "note")) };
    if (!flag_in_config(golden(within("omnilmm/lora", r.base)), &r.was_tied))
        r.was_tied = false;
    json_object_foreach(json_object_get(about, "merged"), file, facts)
    {
        r.file = file;
        r.safe = contains(file, "_safe_");
        r.tied_after = json_is_true(json_object_get(facts, "tie_word_embeddings_after"));
        if (strcmp(name, "tied_embedding_lora") == 0)
            r.tied_after = false; /* the right model has two tensors */
        snprintf(r.type, sizeof r.type, "%.4s", strrchr(file, '_') + 1);
        if (!can_run(&r) || !there(of_case(name, file)) || !there(weights_of(&r)))
            continue;
        check_recorded(&r, r.safe || contains(name, "no_autocast") ? SHEAF_MERGE_LIKE_PEFT_SAFE
                                                                   : SHEAF_MERGE_LIKE_PEFT);
        n++;
        if (best_is_peft(&r)) {
            check_recorded(&r, SHEAF_MERGE_ROUND_ONCE);
            n++;
        }
    }
    json_decref(about);
    return n;
}

TEST(test_merge__every_recorded_case_equals_peft)
{
    assert_true(each_name("omnilmm/lora", one_case) >= (golden_is_full() ? 130 : 57));
}

/* ---- combined adapters ---- */

static int64_t rank_of(const char *adapter)
{
    const sheaf_safetensors *file = record(adapter);
    int64_t rank = 0;
    for (int64_t i = 0; i < file->header.count; i++)
        if (contains(file->header.entry[i].name, "lora_A"))
            rank = file->header.entry[i].shape[0];
    return rank;
}

/* `file` with a config as add_weighted_adapter() leaves it: r is the rank found, alpha = r. */
static void adapter_of_file(const char *dir, const char *file, const char *config)
{
    const int rank = (int)rank_of(file);
    json_t *object = NULL;
    fresh_folder(dir);
    copy_file(within(dir, "adapter_model.safetensors"), file);
    CHECK_OK(sheaf__json_load(&object, config));
    json_t *made = json_pack("{s:s, s:i, s:i, s:O}", "peft_type", "LORA", "r", rank, "lora_alpha",
                             rank, "target_modules", json_object_get(object, "target_modules"));
    assert_int_equal(json_dump_file(made, within(dir, "adapter_config.json"), 0), 0);
    json_decref(made);
    json_decref(object);
}

/* PEFT's combined adapter, whatever way it was made, merges as PEFT merged it. */
static int mixed_file(const char *name)
{
    const char *path = of_case(name, "mix_adapter.safetensors");
    if (!there(path))
        return 0;
    adapter_of_file(at("adapter"), path, of_case(name, "adapter_config.json"));
    make_base(&(recorded){ .name = name, .base = "base_llama", .type = "fp32" });
    remove_all(at("out"));
    sheaf_weights_merge_report report;
    CHECK_OK(merge(&report, at("base"), at("adapter"), at("out"), SHEAF_MERGE_LIKE_PEFT, 0));
    compare(at("out"), of_case(name, "merged_fp32.safetensors"), at("base"), false);
    return 1;
}

/* --adapter-only writes PEFT's file, tensor by tensor, and reads back as an adapter. */
static int written_mix(const char *name, const char *how)
{
    const char *both[] = { golden(within("omnilmm/lora", name)), of_case(name, "second") };
    json_t *about = NULL;
    double weights[2];
    if (!there(both[1]))
        return 0;
    CHECK_OK(sheaf__json_load(&about, of_case(name, "merged.json")));
    read_weights(weights, json_string_value(json_object_get(about, "note")));
    json_decref(about);
    remove_all(at("mixed"));
    CHECK_OK(sheaf_merge_adapters(&(sheaf_weights_merge_options){ .adapters = both,
                                                                  .nadapters = 2,
                                                                  .dst = at("mixed"),
                                                                  .combine = how,
                                                                  .weights = weights }));
    check_same_tensors(at("mixed/adapter_model.safetensors"),
                       of_case(name, "mix_adapter.safetensors"), 0);
    const int64_t rank = rank_of(at("mixed/adapter_model.safetensors"));
    sheaf_lora_options options;
    CHECK_OK(sheaf_lora_options_read(&options, at("mixed/adapter_config.json"), NULL));
    assert_true(options.alpha == (double)options.rank && options.rank == rank);
    sheaf_lora_options_release(&options);
    return 1;
}

TEST(test_combine__files_are_peft_s)
{
    const int n = written_mix("mix_linear", "linear") + written_mix("mix_cat", "cat") +
                  each_name("omnilmm/lora", mixed_file);
    assert_true(n >= (golden_is_full() ? 8 : 0));
}

/* ---- what is refused ---- */

static const struct {
    const char *base, *adapter;
    sheaf_code code;
    const char *part;
} refused[] = {
    { "llama/tiny_llama/hf", "omnilmm/lora/gpt2_conv1d", SHEAF_E_LAYOUT,
      "none of its tensors has a place" },
    { "llama/tiny_llama/hf", "omnilmm/lora/conv2d", SHEAF_E_LAYOUT,
      "base_model.model.head.lora_A.weight" },
    { "omnilmm/lora/base_llama/model_fp32.safetensors", "omnilmm/lora/lora_bias", SHEAF_E_LAYOUT,
      "a layer without bias" },
    { "llama/tiny_qwen2/hf", "llama/tiny_qwen2/hf", SHEAF_E_IO,
      "no adapter here | adapter_model.safetensors | a whole model" },
    { "llama/tiny_llama/hf", "llama/tiny_qwen2/lora/adapter_final", SHEAF_E_LAYOUT,
      "the base model this adapter was made for: its adapter_config.json names" },
    { "llama/tiny_qwen2/hf", "llama/tiny_llama/lora/adapter_final", SHEAF_E_LAYOUT,
      "the base model this adapter was made for: its adapter_config.json names" },
    { "llama/tiny_llama/lora/adapter_final", "llama/tiny_llama/lora/adapter_final",
      SHEAF_E_UNSUPPORTED, "a PEFT adapter" },
};

TEST(test_merge__what_does_not_fit_is_refused_and_leaves_nothing)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const char *base = golden(refused[i].base), *adapter = golden(refused[i].adapter);
        if (!there(base) || !there(adapter))
            continue;
        sheaf_weights_merge_report report;
        CHECK_FAILS(merge(&report, base, adapter, at("refused"), SHEAF_MERGE_ROUND_ONCE, 0),
                    refused[i].code, refused[i].part);
        assert_false(there(at("refused")));
    }
}

TEST(test_merge__existing_output_is_never_touched)
{
    sheaf_weights_merge_report report;
    fresh_folder(at("mine"));
    put(at("mine/note"), "");
    CHECK_FAILS(merge(&report, golden("llama/tiny_qwen2/hf"),
                      golden("llama/tiny_qwen2/lora/adapter_final"), at("mine"),
                      SHEAF_MERGE_ROUND_ONCE, 0),
                SHEAF_E_ARG, at("mine"));
    assert_true(there(at("mine/note")));
}

/* A config that says other things than the file holds. */
static const struct {
    const char *find, *put;
    sheaf_code code;
    const char *part;
} edits[] = {
    { "\"r\": 4", "\"r\": 5", SHEAF_E_LAYOUT, "the rank differs" },
    { "\"q_proj\",\n", "", SHEAF_E_LAYOUT, "q_proj.lora_A.weight" },
    { "\"q_proj\",\n", "\"q_proj\", \"lm_head\",\n", SHEAF_E_LAYOUT,
      "'base_model.model.lm_head.lora_A.weight'" },
    { "\"modules_to_save\": null", "\"modules_to_save\": [\"embed_tokens\"]", SHEAF_E_LAYOUT,
      "embed_tokens.weight" },
    { "\"rank_pattern\": {}", "\"rank_pattern\": {\"(\": 3}", SHEAF_E_ARG, "regular expression" },
};

static const char *llama_base(void)
{
    return golden("llama/tiny_llama/hf");
}

static const char *llama_adapter(void)
{
    return golden("llama/tiny_llama/lora/adapter_final");
}

TEST(test_merge__config_and_tensors_must_agree)
{
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        sheaf_weights_merge_report report;
        make_adapter(at("adapter"), llama_adapter(), edits[i].find, edits[i].put);
        CHECK_FAILS(
            merge(&report, llama_base(), at("adapter"), at("refused"), SHEAF_MERGE_ROUND_ONCE, 0),
            edits[i].code, edits[i].part);
        assert_false(there(at("refused")));
    }
}

/* Every call that writes is once the one that fails: no half model stands at dst, and what
 * began is cleared away. */
TEST(test_merge__a_failing_disk_leaves_nothing)
{
    static const sheaf_fault_action actions[] = { SHEAF_FAULT_FAIL, SHEAF_FAULT_ENOSPC };
    for (size_t a = 0; a < ARRAY_LEN(actions); a++)
        for (int64_t n = 1;; n++) {
            sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = actions[a], .n = n };
            sheaf_weights_merge_report report;
            fresh_folder(at("disk"));
            const char *base = golden("llama/tiny_qwen2/hf"),
                       *adapter = golden("llama/tiny_qwen2/lora/adapter_final"),
                       *out = at("disk/out");
            sheaf_status *st =
                UNDER(&faults, merge(&report, base, adapter, out, SHEAF_MERGE_ROUND_ONCE, 0));
            if (faults.seen < n) {
                CHECK_OK(st);
                assert_true(n > 20);
                break;
            }
            /* a failed removal or a last fsync may leave a whole output, never a half one */
            if (there(out)) {
                sheaf_source *source;
                CHECK_OK(open_stored(&source, out));
                assert_int_equal(source->count(source), 26);
                source->close(source);
            } else {
                assert_non_null(st);
            }
            sheaf_status_free(st);
        }
}

/* ---- numbers ---- */

TEST(test_merge__float16_overflow_is_an_error_not_infinity)
{
    sheaf_weights_merge_report report;
    make_adapter(at("adapter"), llama_adapter(), "\"lora_alpha\": 8", "\"lora_alpha\": 80000000");
    CHECK_FAILS(
        merge(&report, llama_base(), at("adapter"), at("big"), SHEAF_MERGE_ROUND_ONCE, SHEAF_F16),
        SHEAF_E_NUMBER, "a finite float16 after the merge");
    assert_false(there(at("big")));
    CHECK_OK(
        merge(&report, llama_base(), at("adapter"), at("big"), SHEAF_MERGE_ROUND_ONCE, SHEAF_F32));
}

/* One rounding from the float32 sum: merging a float32 base into bfloat16 is rounding the
 * float32 merge. The config says so, and threads change nothing. */
TEST(test_merge__other_dtype_is_one_rounding)
{
    sheaf_weights_merge_report report;
    const char *adapter = llama_adapter();
    CHECK_OK(
        merge(&report, llama_base(), adapter, at("narrow"), SHEAF_MERGE_ROUND_ONCE, SHEAF_BF16));
    CHECK_OK(sheaf_merge(&report, &(sheaf_weights_merge_options){ .base = llama_base(),
                                                                  .adapters = &adapter,
                                                                  .nadapters = 1,
                                                                  .dst = at("wide"),
                                                                  .threads = 3 }));
    sheaf_source *a, *b;
    CHECK_OK(open_stored(&a, at("wide")));
    CHECK_OK(open_stored(&b, at("narrow")));
    for (int64_t i = 0; i < a->count(a); i++) {
        const sheaf_source_entry *e = a->entry(a, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, n = e->shape[0] * cols;
        float *x = room((size_t)n * 4);
        uint16_t *y = room((size_t)n * 2), *z = room((size_t)n * 2);
        CHECK_OK(a->read(a, e->name, 0, e->shape[0], 0, cols, x));
        CHECK_OK(b->read(b, e->name, 0, e->shape[0], 0, cols, y));
        sheaf__kernels_for("ref")->convert(z, SHEAF_BF16, x, SHEAF_F32, n);
        CHECK_BYTES(e->name, y, z, n * 2);
    }
    a->close(a);
    b->close(b);
    sheaf_config config;
    CHECK_OK(sheaf_config_read(&config, at("narrow/config.json")));
    assert_int_equal(config.dtype, SHEAF_BF16);
    sheaf_config_release(&config);
}

/* adapter_model.bin instead of adapter_model.safetensors: the same model, also combined. */
TEST(test_merge__a_pickled_adapter_is_the_same)
{
    static const char *const kinds[] = { "lora/adapter_final",
                                         "lora_variants/modules_to_save/adapter",
                                         "lora_variants/dora/adapter" };
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const char *adapter = golden(within("llama/tiny_llama", kinds[i]));
        sheaf_weights_merge_report report;
        if (!there(adapter))
            continue;
        remove_all(at("pickled")), remove_all(at("one")), remove_all(at("two"));
        pickle_adapter(at("pickled"), adapter);
        CHECK_OK(merge(&report, llama_base(), adapter, at("one"), SHEAF_MERGE_ROUND_ONCE, 0));
        CHECK_OK(merge(&report, llama_base(), at("pickled"), at("two"), SHEAF_MERGE_ROUND_ONCE, 0));
        compare(at("two"), at("one/model.safetensors"), at("one"), false);
        if (n++ > 0)
            continue;
        const char *const both[] = { at("pickled"), adapter };
        CHECK_OK(sheaf_merge_adapters(
            &(sheaf_weights_merge_options){ .adapters = both,
                                            .nadapters = 2,
                                            .combine = "cat",
                                            .weights = (const double[]){ 1, 0.5 },
                                            .dst = at("combined") }));
    }
    assert_true(n >= (golden_is_full() ? 2 : 1));
}

FIXTURE(make_scratch, remove_scratch);
