/* merge_test.c - merged weights equal what PEFT computed, bit for bit, and what cannot be
 * merged is refused by name. */
#include "tests/check.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/merge/merge.h"
#include "dialects/hf/hf.h"
#include "formats/safetensors.h"
#include "ops/kernels.h"
#include "tests/opened.h"
#include "tests/pickled.h"
#include "tests/faults/faults.h"

static char scratch[64]; /* a folder of this test's own */

static const char *data_path(char *buffer, const char *tail)
{
    const char *golden = getenv("SHEAF_GOLDEN"), *data = getenv("SHEAF_TEST_DATA"),
               *root = getenv("SHEAF_SOURCE_ROOT");
    if (golden != NULL || data != NULL)
        snprintf(buffer, 1024, "%s/%s", golden != NULL ? golden : data, tail);
    else
        snprintf(buffer, 1024, "%s/tests/data/%s", root != NULL ? root : ".", tail);
    return buffer;
}

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}
static void remove_tree(const char *path)
{
    nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
}

static void copy_file(const char *from, const char *to)
{
    char *bytes;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, from, 1 << 28));
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    assert_true(fwrite(bytes, 1, size, f) == size);
    fclose(f);
    free(bytes);
}

/* A PEFT folder of its own, with text replaced in its config. */
static void make_adapter(const char *dir, const char *from, const char *find, const char *put)
{
    char path[2048], source[2048];
    remove_tree(dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(source, sizeof source, "%s/adapter_model.safetensors", from);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    copy_file(source, path);
    snprintf(source, sizeof source, "%s/adapter_config.json", from);
    char *text;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, source, 1 << 20));
    char *at = strstr(text, find);
    assert_non_null(at);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, put, at + strlen(find));
    fclose(f);
    free(text);
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

static void *tensor_bytes(const sheaf_safetensors *file, const sheaf_safetensors_entry *e)
{
    void *bytes = malloc((size_t)e->bytes + 1);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, bytes, e->bytes));
    return bytes;
}

static void same_tensor(const char *name, const sheaf_safetensors *a,
                        const sheaf_safetensors_entry *x, const sheaf_safetensors *b,
                        const sheaf_safetensors_entry *y)
{
    if (x == NULL || y == NULL)
        fail_msg("%s is missing", name);
    if (x->bytes != y->bytes || x->dtype != y->dtype)
        fail_msg("%s: %s of %lld bytes, wanted %s of %lld", name, sheaf_dtype_name(x->dtype),
                 (long long)x->bytes, sheaf_dtype_name(y->dtype), (long long)y->bytes);
    void *p = tensor_bytes(a, x), *q = tensor_bytes(b, y);
    CHECK_BYTES(name, p, q, x->bytes);
    free(p);
    free(q);
}

/* Every tensor of `out` is that of `changed`, where it has one, and otherwise that of `base`
 * (`partial`: such a one is not compared). Every tensor of `changed` is there. */
static void compare(const char *out, const char *changed, const char *base, bool partial)
{
    char path[2048];
    sheaf_safetensors *got, *want, *was;
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    CHECK_OK(sheaf__safetensors_open(&got, path));
    CHECK_OK(sheaf__safetensors_open(&want, changed));
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    CHECK_OK(sheaf__safetensors_open(&was, path));
    for (int64_t i = 0; i < want->header.count; i++) {
        const sheaf_safetensors_entry *e = &want->header.entry[i];
        same_tensor(e->name, got, sheaf__safetensors_find(got, e->name), want, e);
    }
    for (int64_t i = 0; i < got->header.count && !partial; i++) {
        const sheaf_safetensors_entry *e = &got->header.entry[i];
        if (sheaf__safetensors_find(want, e->name) != NULL)
            continue;
        const bool head = strcmp(e->name, "lm_head.weight") == 0;
        const sheaf_safetensors_entry *b = sheaf__safetensors_find(was, e->name);
        same_tensor(e->name, got, e, was,
                    b == NULL && head ? sheaf__safetensors_find(was, "model.embed_tokens.weight")
                                      : b);
    }
    sheaf__safetensors_close(got);
    sheaf__safetensors_close(want);
    sheaf__safetensors_close(was);
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

static void test_merge__llama_family_equals_peft(void **state)
{
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(llama); i++)
        for (int sharded = 0; sharded < 2; sharded++) {
            char base[1024], adapter[1024], changed[1024], tail[512], out[128];
            snprintf(tail, sizeof tail, "llama/%s/hf%s", llama[i].base, sharded ? "_sharded" : "");
            data_path(base, tail);
            snprintf(tail, sizeof tail, "llama/%s", llama[i].adapter);
            data_path(adapter, tail);
            snprintf(tail, sizeof tail, "llama/%s", llama[i].changed);
            data_path(changed, tail);
            if (!there(base) || !there(changed))
                continue;
            snprintf(out, sizeof out, "%s/out", scratch);
            remove_tree(out);
            sheaf_weights_merge_report report;
            CHECK_OK(sheaf_merge(&report, &(sheaf_weights_merge_options){
                                              .base = base,
                                              .adapters = (const char *const[]){ adapter },
                                              .nadapters = 1,
                                              .dst = out,
                                              .threads = 2 }));
            char whole[1024];
            snprintf(tail, sizeof tail, "llama/%s/hf", llama[i].base);
            compare(out, changed, data_path(whole, tail), llama[i].partial);
            assert_true(report.changed == report.adapted + report.replaced &&
                        report.rows_checked >= report.tensors);
            n++;
        }
    print_message("%d merges\n", n);
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 18 : 8));
}

/* Whatever variants lie beside the models of golden/llama, each with the weights it changed. */
static int every_variant(const char *model)
{
    char dir[1024], path[2100], tail[512], base[1024], **names = NULL;
    int64_t count = 0;
    int n = 0;
    snprintf(tail, sizeof tail, "llama/%s/lora_variants", model);
    if (!there(data_path(dir, tail)))
        return 0;
    CHECK_OK(sheaf__list_dir(&names, &count, dir));
    for (int64_t i = 0; i < count; i++) {
        char adapter[2048], changed[2048], out[128];
        snprintf(adapter, sizeof adapter, "%s/%s/adapter", dir, names[i]);
        snprintf(changed, sizeof changed, "%s/%s/merged_changed_weights.safetensors", dir,
                 names[i]);
        snprintf(tail, sizeof tail, "llama/%s/hf", model);
        data_path(base, tail);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
        if (!there(changed) || !there(path) || !there(base))
            continue;
        snprintf(out, sizeof out, "%s/out", scratch);
        remove_tree(out);
        sheaf_weights_merge_report report;
        print_message("%s\n", adapter);
        CHECK_OK(sheaf_merge(
            &report, &(sheaf_weights_merge_options){ .base = base,
                                                     .adapters = (const char *const[]){ adapter },
                                                     .nadapters = 1,
                                                     .dst = out,
                                                     .mode = SHEAF_MERGE_LIKE_PEFT }));
        compare(out, changed, base, true);
        n++;
    }
    sheaf__names_free(names, count);
    return n;
}

static void test_merge__every_variant_of_the_llama_family(void **state)
{
    char **names = NULL, path[1024];
    int64_t count = 0;
    int n = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, data_path(path, "llama")));
    for (int64_t i = 0; i < count; i++)
        n += every_variant(names[i]);
    sheaf__names_free(names, count);
    print_message("%d variants\n", n);
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 8 : 1));
}

/* A model sheaf has no schema for, trained with modules of its own saved whole. PEFT's base in half
 * precision is the cast of the float32 file, as --dtype makes it. */
static int vision_model(const char *name, const char *type, sheaf_dtype dtype)
{
    char base[1024], adapter[1024], changed[1024], tail[512], out[128];
    snprintf(tail, sizeof tail, "omnilmm/%s/adapter_end", name);
    data_path(adapter, tail);
    snprintf(tail, sizeof tail, "omnilmm/%s/merged_%s.safetensors", name, type);
    data_path(changed, tail);
    data_path(base, "omnilmm/model.safetensors");
    if (!there(base) || !there(changed) || !there(adapter))
        return 0;
    snprintf(out, sizeof out, "%s/out", scratch);
    remove_tree(out);
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf_merge(
        &report, &(sheaf_weights_merge_options){ .base = base,
                                                 .adapters = (const char *const[]){ adapter },
                                                 .nadapters = 1,
                                                 .dst = out,
                                                 .mode = SHEAF_MERGE_LIKE_PEFT,
                                                 .dtype = dtype }));
    compare(out, changed, out, true);
    return 1;
}

static void test_merge__a_model_without_a_schema(void **state)
{
    char **names = NULL, path[1024];
    int64_t count = 0;
    int n = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, data_path(path, "omnilmm")));
    for (int64_t i = 0; i < count; i++)
        n += vision_model(names[i], "fp32", SHEAF_F32) +
             vision_model(names[i], "bf16", SHEAF_BF16) + vision_model(names[i], "fp16", SHEAF_F16);
    sheaf__names_free(names, count);
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 3 : 0));
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
    char path[2048];
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *object = NULL;
    if (!there(path))
        return false;
    CHECK_OK(sheaf__json_load(&object, path));
    *tied = json_is_true(json_object_get(object, "tie_word_embeddings"));
    json_decref(object);
    return true;
}

static void make_base(const char *dir, const recorded *r)
{
    char config[1024], weights[1024], tail[512], path[2048];
    snprintf(tail, sizeof tail, "omnilmm/lora/%s/model_%s.safetensors", r->base, r->type);
    data_path(weights, tail);
    snprintf(tail, sizeof tail, "omnilmm/lora/%s/config.json", r->base);
    data_path(config, tail);
    remove_tree(dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    copy_file(weights, path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (there(config))
        copy_file(config, path);
}

static void read_weights(double weights[2], const char *note)
{
    const char *at = strstr(note, "weights ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "weights %lf and %lf", &weights[0], &weights[1]), 2);
}

static int64_t run_recorded(const recorded *r, sheaf_weights_merge_mode mode,
                            sheaf_weights_merge_report *report)
{
    char adapter[1024], second[1100], tail[512], out[128], base[128];
    snprintf(tail, sizeof tail, "omnilmm/lora/%s", r->name);
    data_path(adapter, tail);
    snprintf(second, sizeof second, "%s/second", adapter);
    snprintf(base, sizeof base, "%s/base", scratch);
    snprintf(out, sizeof out, "%s/out", scratch);
    make_base(base, r);
    remove_tree(out);
    double weights[2] = { 0 };
    const char *combine = NULL;
    if (contains(r->name, "mix_")) {
        read_weights(weights, r->note);
        combine = r->name + 4;
    }
    CHECK_OK(sheaf_merge(report, &(sheaf_weights_merge_options){
                                     .base = base,
                                     .adapters = (const char *const[]){ adapter, second },
                                     .nadapters = there(second) ? 2 : 1,
                                     .dst = out,
                                     .mode = mode,
                                     .combine = combine,
                                     .weights = weights,
                                     .threads = 2 }));
    bool tied;
    if (flag_in_config(out, &tied) && r->was_tied)
        assert_int_equal(tied, r->tied_after);
    return 1;
}

/* PEFT changes the head of a tied model together with its table, or adds one change twice: its
 * recordings tell what the table must be (W + D), and that is all they are good for. */
static void check_tied_lora(const recorded *r)
{
    char path[1024], tail[512];
    sheaf_safetensors *got, *want, *was;
    snprintf(path, sizeof path, "%s/out/model.safetensors", scratch);
    CHECK_OK(sheaf__safetensors_open(&got, path));
    snprintf(path, sizeof path, "%s/base/model.safetensors", scratch);
    CHECK_OK(sheaf__safetensors_open(&was, path));
    snprintf(tail, sizeof tail, "omnilmm/lora/%s/%s", r->name, r->file);
    CHECK_OK(sheaf__safetensors_open(&want, data_path(path, tail)));
    static const char table[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    const bool keep = contains(r->name, "keep_tie");
    assert_int_equal(sheaf__safetensors_find(got, head) == NULL, keep);
    const sheaf_safetensors_entry *x = sheaf__safetensors_find(got, table),
                                  *y = sheaf__safetensors_find(want, table);
    const sheaf_safetensors_entry *b = sheaf__safetensors_find(was, table);
    if (!keep) {
        same_tensor(table, got, x, want, y); /* W + D, once */
        same_tensor(head, got, sheaf__safetensors_find(got, head), was, b);
    } else if (x->dtype == SHEAF_F32) { /* W + 2 D: halfway from the base to PEFT's */
        float *g = tensor_bytes(got, x), *w = tensor_bytes(want, y), *o = tensor_bytes(was, b);
        for (int64_t i = 0; i < x->bytes / 4; i++)
            CHECK_NEAR(table, g[i], 0.5 * ((double)w[i] + (double)o[i]), 1e-6);
        free(g), free(w), free(o);
    }
    for (int64_t i = 0; i < want->header.count; i++) {
        const sheaf_safetensors_entry *e = &want->header.entry[i];
        if (strcmp(e->name, table) != 0 && strcmp(e->name, head) != 0)
            same_tensor(e->name, got, sheaf__safetensors_find(got, e->name), want, e);
    }
    sheaf__safetensors_close(got);
    sheaf__safetensors_close(want);
    sheaf__safetensors_close(was);
}

static void check_recorded(const recorded *r, sheaf_weights_merge_mode mode)
{
    char base[128], out[128], changed[1024], tail[512];
    sheaf_weights_merge_report report;
    print_message("%s %s mode %d\n", r->name, r->file, (int)mode);
    run_recorded(r, mode, &report);
    assert_true(report.rows_checked >= report.tensors && report.worst_product <= 8);
    assert_true((report.products_checked > 0) == (report.worst_tensor[0] != '\0'));
    if (contains(r->name, "tied_embedding_lora")) {
        check_tied_lora(r);
        return;
    }
    snprintf(base, sizeof base, "%s/base", scratch);
    snprintf(out, sizeof out, "%s/out", scratch);
    snprintf(tail, sizeof tail, "omnilmm/lora/%s/%s", r->name, r->file);
    compare(out, data_path(changed, tail), base, false);
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
    char path[1024], tail[512], base[1024];
    json_t *about = NULL, *facts;
    const char *file;
    int n = 0;
    snprintf(tail, sizeof tail, "omnilmm/lora/%s/merged.json", name);
    if (!there(data_path(path, tail)))
        return 0;
    CHECK_OK(sheaf__json_load(&about, path));
    recorded r = { .name = name,
                   .base = json_string_value(json_object_get(about, "base")),
                   .note = json_string_value(json_object_get(about, "note")) };
    snprintf(tail, sizeof tail, "omnilmm/lora/%s", r.base);
    data_path(base, tail);
    if (!flag_in_config(base, &r.was_tied))
        r.was_tied = false;
    json_object_foreach(json_object_get(about, "merged"), file, facts)
    {
        r.file = file;
        r.safe = contains(file, "_safe_");
        r.tied_after = json_is_true(json_object_get(facts, "tie_word_embeddings_after"));
        if (strcmp(name, "tied_embedding_lora") == 0)
            r.tied_after = false; /* the right model has two tensors */
        snprintf(r.type, sizeof r.type, "%.4s", strrchr(file, '_') + 1);
        snprintf(tail, sizeof tail, "omnilmm/lora/%s/%s", name, file);
        snprintf(base, sizeof base, "omnilmm/lora/%s/model_%s.safetensors", r.base, r.type);
        char weights[1024];
        if (!can_run(&r) || !there(data_path(path, tail)) || !there(data_path(weights, base)))
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

static void test_merge__every_recorded_case_equals_peft(void **state)
{
    char **names = NULL, path[1024];
    int64_t count = 0;
    int n = 0;
    CHECK_OK(sheaf__list_dir(&names, &count, data_path(path, "omnilmm/lora")));
    for (int64_t i = 0; i < count; i++)
        n += one_case(names[i]);
    sheaf__names_free(names, count);
    print_message("%d merges\n", n);
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 130 : 57));
}

/* ---- combined adapters ---- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* `file` with a config as add_weighted_adapter() leaves it: r is the rank found, alpha = r. */
static void adapter_of_file(const char *dir, const char *file, const char *config)
{
    char path[2048], text[4096], *old;
    size_t size;
    json_t *object = NULL;
    sheaf_safetensors *tensors;
    remove_tree(dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    copy_file(file, path);
    CHECK_OK(sheaf__safetensors_open(&tensors, file));
    int64_t rank = 0;
    for (int64_t i = 0; i < tensors->header.count; i++)
        if (contains(tensors->header.entry[i].name, "lora_A"))
            rank = tensors->header.entry[i].shape[0];
    sheaf__safetensors_close(tensors);
    CHECK_OK(sheaf__file_read_all(&old, &size, config, 1 << 20));
    CHECK_OK(sheaf__json_parse(&object, old, size));
    char *targets = json_dumps(json_object_get(object, "target_modules"), JSON_ENCODE_ANY);
    snprintf(text, sizeof text,
             "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %d, \"target_modules\": %s}",
             (int)rank, (int)rank, targets);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    write_text(path, text);
    free(targets);
    free(old);
    json_decref(object);
}

/* PEFT's combined adapter, whatever way it was made, merges as PEFT merged it. */
static int mixed_file(const char *name)
{
    char dir[1024], path[2048], config[2048], mine[128], base[128], out[128];
    char tail[512];
    snprintf(tail, sizeof tail, "omnilmm/lora/%s", name);
    data_path(dir, tail);
    snprintf(path, sizeof path, "%s/mix_adapter.safetensors", dir);
    snprintf(config, sizeof config, "%s/adapter_config.json", dir);
    if (!there(path))
        return 0;
    snprintf(mine, sizeof mine, "%s/adapter", scratch);
    adapter_of_file(mine, path, config);
    recorded r = { .name = name, .base = "base_llama", .type = "fp32" };
    snprintf(base, sizeof base, "%s/base", scratch);
    snprintf(out, sizeof out, "%s/out", scratch);
    make_base(base, &r);
    remove_tree(out);
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf_merge(&report,
                         &(sheaf_weights_merge_options){ .base = base,
                                                         .adapters = (const char *const[]){ mine },
                                                         .nadapters = 1,
                                                         .dst = out,
                                                         .mode = SHEAF_MERGE_LIKE_PEFT }));
    snprintf(path, sizeof path, "%s/merged_fp32.safetensors", dir);
    compare(out, path, base, false);
    return 1;
}

/* What --adapter-only writes is PEFT's file, tensor by tensor, and reads back as an adapter. */
static int written_mix(const char *name, const char *how)
{
    char first[1024], second[1100], path[2048], tail[512], out[128];
    snprintf(tail, sizeof tail, "omnilmm/lora/%s", name);
    data_path(first, tail);
    snprintf(second, sizeof second, "%s/second", first);
    if (!there(second))
        return 0;
    json_t *about = NULL;
    double weights[2];
    snprintf(path, sizeof path, "%s/merged.json", first);
    CHECK_OK(sheaf__json_load(&about, path));
    read_weights(weights, json_string_value(json_object_get(about, "note")));
    json_decref(about);
    snprintf(out, sizeof out, "%s/mixed", scratch);
    remove_tree(out);
    CHECK_OK(sheaf_merge_adapters(
        &(sheaf_weights_merge_options){ .adapters = (const char *const[]){ first, second },
                                        .nadapters = 2,
                                        .dst = out,
                                        .combine = how,
                                        .weights = weights }));
    sheaf_safetensors *got, *want;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", out);
    CHECK_OK(sheaf__safetensors_open(&got, path));
    snprintf(path, sizeof path, "%s/mix_adapter.safetensors", first);
    CHECK_OK(sheaf__safetensors_open(&want, path));
    assert_int_equal(got->header.count, want->header.count);
    int64_t rank = 0;
    for (int64_t i = 0; i < want->header.count; i++) {
        const sheaf_safetensors_entry *e = &want->header.entry[i];
        same_tensor(e->name, got, sheaf__safetensors_find(got, e->name), want, e);
        rank = contains(e->name, "lora_A") ? e->shape[0] : rank;
    }
    sheaf_lora_options options;
    snprintf(path, sizeof path, "%s/adapter_config.json", out);
    CHECK_OK(sheaf_lora_options_read(&options, path, NULL));
    assert_true(options.alpha == (double)options.rank && options.rank == rank);
    sheaf_lora_options_release(&options);
    sheaf__safetensors_close(got);
    sheaf__safetensors_close(want);
    return 1;
}

static void test_combine__files_are_peft_s(void **state)
{
    char **names = NULL, path[1024];
    int64_t count = 0;
    int n = written_mix("mix_linear", "linear") + written_mix("mix_cat", "cat");
    CHECK_OK(sheaf__list_dir(&names, &count, data_path(path, "omnilmm/lora")));
    for (int64_t i = 0; i < count; i++)
        n += mixed_file(names[i]);
    sheaf__names_free(names, count);
    print_message("%d combined adapters\n", n);
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 8 : 0));
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

static void test_merge__what_does_not_fit_is_refused_and_leaves_nothing(void **state)
{
    char out[128];
    snprintf(out, sizeof out, "%s/refused", scratch);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        char base[1024], adapter[1024];
        data_path(base, refused[i].base);
        data_path(adapter, refused[i].adapter);
        if (!there(base) || !there(adapter))
            continue;
        sheaf_weights_merge_report report;
        CHECK_FAILS(sheaf_merge(&report,
                                &(sheaf_weights_merge_options){
                                    .base = base,
                                    .adapters = (const char *const[]){ adapter },
                                    .nadapters = 1,
                                    .dst = out }),
                    refused[i].code, refused[i].part);
        assert_false(there(out));
    }
}

static void test_merge__existing_output_is_never_touched(void **state)
{
    char base[1024], adapter[1024], out[128], path[256];
    data_path(base, "llama/tiny_qwen2/hf");
    data_path(adapter, "llama/tiny_qwen2/lora/adapter_final");
    snprintf(out, sizeof out, "%s/mine", scratch);
    snprintf(path, sizeof path, "%s/note", out);
    assert_int_equal(mkdir(out, 0755), 0);
    FILE *f = fopen(path, "w");
    fclose(f);
    sheaf_weights_merge_report report;
    CHECK_FAILS(
        sheaf_merge(&report,
                    &(sheaf_weights_merge_options){ .base = base,
                                                    .adapters = (const char *const[]){ adapter },
                                                    .nadapters = 1,
                                                    .dst = out }),
        SHEAF_E_ARG, out);
    assert_true(there(path));
    remove_tree(out);
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

static void test_merge__config_and_tensors_must_agree(void **state)
{
    char base[1024], adapter[1024], mine[128], out[128];
    data_path(base, "llama/tiny_llama/hf");
    data_path(adapter, "llama/tiny_llama/lora/adapter_final");
    snprintf(mine, sizeof mine, "%s/adapter", scratch);
    snprintf(out, sizeof out, "%s/refused", scratch);
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        make_adapter(mine, adapter, edits[i].find, edits[i].put);
        sheaf_weights_merge_report report;
        CHECK_FAILS(
            sheaf_merge(&report,
                        &(sheaf_weights_merge_options){ .base = base,
                                                        .adapters = (const char *const[]){ mine },
                                                        .nadapters = 1,
                                                        .dst = out }),
            edits[i].code, edits[i].part);
        assert_false(there(out));
    }
}

/* Every call that writes is once the one that fails: no half model stands at dst, and what
 * began is cleared away. */
static void test_merge__a_failing_disk_leaves_nothing(void **state)
{
    static const sheaf_fault_action actions[] = { SHEAF_FAULT_FAIL, SHEAF_FAULT_ENOSPC };
    char base[1024], adapter[1024], dir[128], out[256];
    data_path(base, "llama/tiny_qwen2/hf");
    data_path(adapter, "llama/tiny_qwen2/lora/adapter_final");
    snprintf(dir, sizeof dir, "%s/disk", scratch);
    snprintf(out, sizeof out, "%s/out", dir);
    for (size_t a = 0; a < ARRAY_LEN(actions); a++)
        for (int64_t n = 1;; n++) {
            sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = actions[a], .n = n };
            sheaf_weights_merge_report report;
            remove_tree(dir);
            assert_int_equal(mkdir(dir, 0755), 0);
            sheaf_status *st = UNDER(
                &faults, sheaf_merge(&report, &(sheaf_weights_merge_options){
                                                  .base = base,
                                                  .adapters = (const char *const[]){ adapter },
                                                  .nadapters = 1,
                                                  .dst = out }));
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

static void test_merge__float16_overflow_is_an_error_not_infinity(void **state)
{
    char base[1024], adapter[1024], mine[128], out[128];
    data_path(base, "llama/tiny_llama/hf");
    data_path(adapter, "llama/tiny_llama/lora/adapter_final");
    snprintf(mine, sizeof mine, "%s/adapter", scratch);
    snprintf(out, sizeof out, "%s/big", scratch);
    make_adapter(mine, adapter, "\"lora_alpha\": 8", "\"lora_alpha\": 80000000");
    const sheaf_dtype half = SHEAF_F16, full = SHEAF_F32;
    sheaf_weights_merge_report report;
    CHECK_FAILS(
        sheaf_merge(&report,
                    &(sheaf_weights_merge_options){ .base = base,
                                                    .adapters = (const char *const[]){ mine },
                                                    .nadapters = 1,
                                                    .dst = out,
                                                    .dtype = half }),
        SHEAF_E_NUMBER, "a finite float16 after the merge");
    assert_false(there(out));
    CHECK_OK(sheaf_merge(&report,
                         &(sheaf_weights_merge_options){ .base = base,
                                                         .adapters = (const char *const[]){ mine },
                                                         .nadapters = 1,
                                                         .dst = out,
                                                         .dtype = full }));
    remove_tree(out);
}

/* One rounding from the float32 sum: merging a float32 base into bfloat16 is rounding the
 * float32 merge. The config says so, and threads change nothing. */
static void test_merge__other_dtype_is_one_rounding(void **state)
{
    char base[1024], adapter[1024], wide[128], narrow[128], path[256];
    data_path(base, "llama/tiny_llama/hf");
    data_path(adapter, "llama/tiny_llama/lora/adapter_final");
    snprintf(wide, sizeof wide, "%s/wide", scratch);
    snprintf(narrow, sizeof narrow, "%s/narrow", scratch);
    const sheaf_dtype bf16 = SHEAF_BF16;
    sheaf_weights_merge_report report, again;
    CHECK_OK(sheaf_merge(
        &report, &(sheaf_weights_merge_options){ .base = base,
                                                 .adapters = (const char *const[]){ adapter },
                                                 .nadapters = 1,
                                                 .dst = wide,
                                                 .threads = 3 }));
    CHECK_OK(sheaf_merge(
        &again, &(sheaf_weights_merge_options){ .base = base,
                                                .adapters = (const char *const[]){ adapter },
                                                .nadapters = 1,
                                                .dst = narrow,
                                                .dtype = bf16 }));
    sheaf_source *a, *b;
    CHECK_OK(open_stored(&a, wide));
    CHECK_OK(open_stored(&b, narrow));
    for (int64_t i = 0; i < a->count(a); i++) {
        const sheaf_source_entry *e = a->entry(a, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, n = e->shape[0] * cols;
        float *x = malloc((size_t)n * 4);
        uint16_t *y = malloc((size_t)n * 2), *z = malloc((size_t)n * 2);
        CHECK_OK(a->read(a, e->name, 0, e->shape[0], 0, cols, x));
        CHECK_OK(b->read(b, e->name, 0, e->shape[0], 0, cols, y));
        sheaf__kernels_for("ref")->convert(z, SHEAF_BF16, x, SHEAF_F32, n);
        CHECK_BYTES(e->name, y, z, n * 2);
        free(x), free(y), free(z);
    }
    a->close(a);
    b->close(b);
    snprintf(path, sizeof path, "%s/config.json", narrow);
    sheaf_config config;
    CHECK_OK(sheaf_config_read(&config, path));
    assert_int_equal(config.dtype, SHEAF_BF16);
    sheaf_config_release(&config);
}

/* adapter_model.bin instead of adapter_model.safetensors: the same model, also combined. */
static void test_merge__a_pickled_adapter_is_the_same(void **state)
{
    static const char *const kinds[] = { "lora/adapter_final",
                                         "lora_variants/modules_to_save/adapter",
                                         "lora_variants/dora/adapter" };
    int n = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char base[1024], adapter[1024], tail[128], pickled[128], one[128], two[128], path[256];
        sheaf_weights_merge_report report;
        snprintf(tail, sizeof tail, "llama/tiny_llama/%s", kinds[i]);
        data_path(base, "llama/tiny_llama/hf");
        if (!there(data_path(adapter, tail)))
            continue;
        snprintf(pickled, sizeof pickled, "%s/pickled", scratch);
        snprintf(one, sizeof one, "%s/one", scratch);
        snprintf(two, sizeof two, "%s/two", scratch);
        remove_tree(pickled);
        pickle_adapter(pickled, adapter);
        CHECK_OK(sheaf_merge(
            &report, &(sheaf_weights_merge_options){ .base = base,
                                                     .adapters = (const char *const[]){ adapter },
                                                     .nadapters = 1,
                                                     .dst = one }));
        CHECK_OK(sheaf_merge(
            &report, &(sheaf_weights_merge_options){ .base = base,
                                                     .adapters = (const char *const[]){ pickled },
                                                     .nadapters = 1,
                                                     .dst = two }));
        snprintf(path, sizeof path, "%s/model.safetensors", one);
        compare(two, path, one, false);
        remove_tree(one);
        remove_tree(two);
        if (n++ > 0)
            continue;
        const double weights[] = { 1, 0.5 };
        const char *const both[] = { pickled, adapter };
        CHECK_OK(sheaf_merge_adapters(&(sheaf_weights_merge_options){
            .adapters = both, .nadapters = 2, .combine = "cat", .weights = weights, .dst = one }));
        remove_tree(one);
    }
    assert_true(n >= (getenv("SHEAF_GOLDEN") != NULL ? 2 : 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge__a_pickled_adapter_is_the_same),
        cmocka_unit_test(test_merge__llama_family_equals_peft),
        cmocka_unit_test(test_merge__every_variant_of_the_llama_family),
        cmocka_unit_test(test_merge__a_model_without_a_schema),
        cmocka_unit_test(test_merge__every_recorded_case_equals_peft),
        cmocka_unit_test(test_combine__files_are_peft_s),
        cmocka_unit_test(test_merge__what_does_not_fit_is_refused_and_leaves_nothing),
        cmocka_unit_test(test_merge__existing_output_is_never_touched),
        cmocka_unit_test(test_merge__config_and_tensors_must_agree),
        cmocka_unit_test(test_merge__a_failing_disk_leaves_nothing),
        cmocka_unit_test(test_merge__float16_overflow_is_an_error_not_infinity),
        cmocka_unit_test(test_merge__other_dtype_is_one_rounding),
    };
    snprintf(scratch, sizeof scratch, "/tmp/sheaf-merge-XXXXXX");
    if (mkdtemp(scratch) == NULL)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(scratch);
    return failed;
}
