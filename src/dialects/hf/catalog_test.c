/* Hugging Face and PEFT folders that may be wrong: what is found, and that nothing is found in what
 * is right. */
#include "tests/made_llama.h"
#include "tests/opened.h"
#include "tests/put_tensors.h"
#include "tests/same_sources.h"

#include "base/file.h"
#include "base/text.h"
#include "dialects/common/model.h"
#include "dialects/common/vocabulary.h"
#include "dialects/common/dialects.h"

static sheaf_catalog *read_at(const char *path, const char *config)
{
    sheaf_catalog *c = NULL;
    const sheaf_dialect_hints hints = { .config = config };
    CHECK_OK(sheaf__open(&c, path, &hints));
    return c;
}

/* The catalog has the tensors of a source, and no others. Frees `c`. */
static void same_as(sheaf_catalog *c, sheaf_source *want)
{
    sheaf_source *got = all_of(c);
    same_sources(got, want, 0);
    got->close(got);
}

/* Each model and adapter of the collection is the same held against its config as it lies there. */
TEST(test_hf__what_is_right_is_read_as_it_is)
{
    char **models = NULL;
    int64_t n = 0, seen = 0;
    CHECK_OK(sheaf__list_dir(&models, &n, golden("llama")));
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            static const char *const inner[] = { "hf", "hf_sharded", "lora/adapter_final" };
            const char *path = textf("llama/%s/%s", models[i], inner[k]);
            if (sheaf__path_kind(golden(path)) != SHEAF_PATH_DIR)
                continue;
            sheaf_source *want = NULL;
            CHECK_OK(k == 2 ? open_adapter_at(&want, golden(path))
                            : open_stored(&want, golden(path)));
            sheaf_catalog *c = read_at(golden(path), NULL);
            assert_string_equal(c->dialect->name, k == 2 ? "peft" : "hf");
            if (c->nfindings > 0)
                print_findings(c);
            assert_int_equal(c->nfindings, 0);
            same_as(c, want);
            want->close(want);
            seen++;
        }
    sheaf__names_free(models, n);
    assert_true(seen >= 4);
}

/* The same weights in .bin files give the same tensors. */
TEST(test_hf__half_precision_files)
{
    char **names = NULL;
    int64_t n = 0, seen = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, golden("llama/half_precision")));
    for (int64_t i = 0; i < n; i++) {
        const char *path = textf("llama/half_precision/%s", names[i]);
        sheaf_catalog *c = read_at(golden(path), NULL);
        CHECK_SOUND(c);
        assert_true(c->count > 0);
        sheaf_source *got = all_of(c);
        if (sheaf__ends_with(names[i], "_part.bin")) { /* some of the file beside it */
            sheaf_source *all = all_of(
                read_at(golden(textf("%.*s.safetensors", (int)(strlen(path) - 9), path)), NULL));
            check_holds(all, got, 0);
            all->close(all);
        }
        got->close(got);
        seen++;
    }
    sheaf__names_free(names, n);
    assert_true(seen > 0);
}

/* Valid and invalid single files: whatever the official parser rejects is damaged. */
TEST(test_hf__files_that_the_official_parser_rejects)
{
    char **names = NULL;
    int64_t n = 0, bad = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, golden("llama/safetensors_edge")));
    for (int64_t i = 0; i < n; i++) {
        if (strncmp(names[i], "bad_", 4) != 0 || strstr(names[i], "start_char") != NULL)
            continue;
        sheaf_catalog *c = read_at(golden(textf("llama/safetensors_edge/%s", names[i])), NULL);
        if (finding(c, SHEAF_DEFECT, "damaged", names[i]) == NULL)
            fail_msg("%s", names[i]);
        sheaf__catalog_free(c);
        bad++;
    }
    sheaf__names_free(names, n);
    assert_true(bad > 10);
}

/* ---- made here ---- */

/* A file of these tensors, which are zero. */
static void put_named(const char *path, const char *const *names, int count, sheaf_dtype dtype)
{
    sheaf_safetensors_spec spec[8];
    for (int i = 0; i < count; i++)
        spec[i] = (sheaf_safetensors_spec){ names[i], dtype, 1, { 4 } };
    put_tensors(path, spec, count, NULL);
}

static const char *in(const char *dir, const char *name)
{
    return textf("%s/%s", dir, name);
}

static const struct {
    const char *name, *index, *code, *part;
    sheaf_severity severity;
} indices[] = {
    { "not JSON", "{", "damaged", "index.json", SHEAF_DEFECT },
    { "no map", "{\"metadata\": {}}", "damaged", "weight_map", SHEAF_DEFECT },
    { "a path", "{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "damaged", "a", SHEAF_DEFECT },
    { "another path", "{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", "damaged", "a",
      SHEAF_DEFECT },
    { "not weights", "{\"weight_map\": {\"a\": \"config.json\"}}", "damaged", "a", SHEAF_DEFECT },
    { "no string", "{\"weight_map\": {\"a\": 3}}", "damaged", "a", SHEAF_DEFECT },
    { "a promise",
      "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"one.safetensors\", \"q\": \"one.safetensors\"}}",
      "missing", "q", SHEAF_DEFECT },
    { "one too few", "{\"weight_map\": {\"a\": \"one.safetensors\"}}", "foreign", "b",
      SHEAF_DEFECT },
    { "what lies in a file that is not there",
      "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"one.safetensors\", \"gone\": \"two.safetensors\"}}",
      "missing", "gone", SHEAF_DEFECT },
    { "no such file", "{\"weight_map\": {\"a\": \"two.safetensors\"}}", "missing",
      "two.safetensors", SHEAF_DEFECT },
};

TEST(test_hf__an_index_that_is_wrong)
{
    for (size_t i = 0; i < ARRAY_LEN(indices); i++) {
        const char *dir = textf("%s-%zu", at("index"), i);
        CHECK_OK(sheaf__make_dirs(dir));
        put_named(in(dir, "one.safetensors"), (const char *const[]){ "a", "b" }, 2, SHEAF_F32);
        put(in(dir, "model.safetensors.index.json"), indices[i].index);
        check_found(read_at(dir, NULL), indices[i].severity, indices[i].code, indices[i].part);
    }
}

TEST(test_hf__shards_by_their_names)
{
    const char *dir = at("named");
    CHECK_OK(sheaf__make_dirs(dir));
    for (int i = 2; i <= 6; i += 2) {
        const char *name = textf("t%d", i);
        put_named(in(dir, textf("model-%05d-of-00008.safetensors", i)),
                  (const char *const[]){ name }, 1, SHEAF_BF16);
    }
    sheaf_catalog *c = read_at(dir, NULL);
    assert_int_equal(c->count, 3);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "shards 1..1");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "shards 3..3");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "shards 5..5");
    check_found(c, SHEAF_DEFECT, "missing", "shards 7..8");
    put_named(in(dir, "model-00001-of-00002.safetensors"), (const char *const[]){ "t2" }, 1,
              SHEAF_BF16);
    check_found(read_at(dir, NULL), SHEAF_DEFECT, "stale", "model-00001-of-00002");
    put_named(in(dir, "model-999999999-of-999999999.safetensors"), (const char *const[]){ "t9" }, 1,
              SHEAF_BF16);
    sheaf__catalog_free(read_at(dir, NULL)); /* and comes back */
}

/* As HuggingFaceStorageWriter of torch.distributed.checkpoint leaves them. */
TEST(test_hf__parts_of_ranks_are_not_taken_for_whole_tensors)
{
    const char *dir = at("unconsolidated");
    CHECK_OK(sheaf__make_dirs(dir));
    for (int rank = 1; rank <= 2; rank++) {
        const float data[4] = { 0 };
        const char *file = textf("shard-%05d-model-00001-of-00001.safetensors", rank);
        char *offsets = (char *)textf("{\"t\": {\"saved_offsets\": [%d]}}", rank == 1 ? 0 : 4);
        const sheaf_safetensors_spec spec = { "t", SHEAF_F32, 1, { 4 } };
        const sheaf_safetensors_pair pairs[] = { { "DCP_SHARDING_INFO", offsets },
                                                 { "format", "pt" } };
        sheaf_safetensors_writer *w = NULL;
        CHECK_OK(sheaf__safetensors_begin(&w, in(dir, file), &spec, 1, pairs, 2));
        CHECK_OK(sheaf__safetensors_write(w, 0, 0, data, sizeof data));
        CHECK_OK(sheaf__safetensors_finish(w));
        sheaf_catalog *c = read_at(in(dir, file), NULL);
        if (rank == 1) /* a save of one rank looks like it, too */
            check_found(c, SHEAF_WARNING, "inferred", "rank 0's parts");
        else
            check_found(c, SHEAF_DEFECT, "unsupported", "one rank's parts");
    }
    sheaf_catalog *c = read_at(dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "unsupported", "one rank's parts");
    for (int64_t i = 0; i < c->nfindings; i++)
        assert_string_not_equal(c->finding[i].code,
                                "duplicate"); /* "move one away" would be wrong */
    sheaf__catalog_free(c);
}

TEST(test_hf__the_same_tensor_twice)
{
    const char *dir = at("twice");
    CHECK_OK(sheaf__make_dirs(dir));
    put_named(in(dir, "model-00001-of-00002.safetensors"), (const char *const[]){ "a", "b" }, 2,
              SHEAF_F32);
    put_named(in(dir, "model-00002-of-00002.safetensors"), (const char *const[]){ "b", "c" }, 2,
              SHEAF_F32);
    check_found(read_at(dir, NULL), SHEAF_DEFECT, "duplicate", "b");
    put_named(in(dir, "model.safetensors"), (const char *const[]){ "a" }, 1, SHEAF_F32);
    put(in(dir, "model.safetensors.index.json"), "{}");
    check_found(read_at(dir, NULL), SHEAF_DEFECT, "duplicate", "left from another save");
}

/* All experts of a layer in one tensor are taken apart; one beside its own parts is no tensor of
 * the model, and that is said. */
TEST(test_hf__a_stack_of_experts_beside_its_parts)
{
#define EXPERTS(layer) "model.layers." layer ".block_sparse_moe.experts."
#define HELD(layer) "model.layers." layer ".mlp.experts.gate_up_proj"
    static const sheaf_safetensors_spec spec[] = {
        { HELD("0"), SHEAF_U8, 3, { 2, 16, 8 } },
        { HELD("1"), SHEAF_U8, 3, { 2, 16, 8 } },
        { EXPERTS("1") "0.w1.weight", SHEAF_U8, 2, { 8, 8 } },
        { EXPERTS("1") "0.w3.weight", SHEAF_U8, 2, { 8, 8 } },
        { EXPERTS("1") "1.w1.weight", SHEAF_U8, 2, { 8, 8 } },
        { EXPERTS("1") "1.w3.weight", SHEAF_U8, 2, { 8, 8 } },
    };
    const char *dir = at("stacks");
    CHECK_OK(sheaf__make_dirs(dir));
    put_tensors(in(dir, "model.safetensors"), spec, ARRAY_LEN(spec), NULL);
    put(in(dir, "config.json"),
        "{\"model_type\":\"mixtral\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":8,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"num_local_experts\":2}");
    sheaf_catalog *c = read_at(dir, NULL);
    assert_non_null(sheaf__catalog_find(c, EXPERTS("0") "1.w3.weight"));
    assert_null(sheaf__catalog_find(c, HELD("0")));
    check_found(c, SHEAF_DEFECT, "foreign", HELD("1"));
    put(in(dir, "config.json"),
        "{\"model_type\":\"mixtral\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":8,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"num_local_experts\":3}");
    c = read_at(dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "shape", HELD("0"));
    assert_null(sheaf__catalog_finding(c, "missing")); /* they lie in it */
    sheaf__catalog_free(c);
#undef HELD
#undef EXPERTS
}

TEST(test_hf__variants_and_bare_files)
{
    const char *dir = at("variant");
    CHECK_OK(sheaf__make_dirs(dir));
    put_named(in(dir, "model.fp16.safetensors"), (const char *const[]){ "a" }, 1, SHEAF_F16);
    sheaf_catalog *c = read_at(dir, NULL);
    assert_int_equal(c->count, 1);
    want_found(c, 0, NULL, NULL);
    put_named(in(dir, "model.bf16.safetensors"), (const char *const[]){ "a" }, 1, SHEAF_BF16);
    check_found(read_at(dir, NULL), SHEAF_DEFECT, "conflict", "could be it");
    c = read_at(in(dir, "model.bf16.safetensors"), NULL);
    CHECK_SOUND(c);
    assert_int_equal(c->tensor[0].entry.dtype, SHEAF_BF16);
    sheaf__catalog_free(c);
}

TEST(test_hf__words_of_wrappers_are_left_out)
{
    static const struct {
        const char *before, *inside; /* the latter of each layer */
        const char *told;
    } words[] = {
        { "module.", "", "module." },
        { "_orig_mod.", "", "_orig_mod." },
        { "model.", "", "model." }, /* the dict that held it */
        { "", "_orig_mod.", "_orig_mod." },
        { "", "_checkpoint_wrapped_module.", "_checkpoint_wrapped_module." },
        { "_fsdp_wrapped_module.", "_fsdp_wrapped_module._checkpoint_wrapped_module.",
          "_fsdp_wrapped_module." },
        { "module._orig_mod.", "_fpw_module.", "module." },
        { "_orig_mod.module.", "", "_orig_mod." },
        { "_forward_module.", "", "_forward_module." },
        { NULL, "", "without 'model.'" }, /* the model inside, as models that embed texts are */
    };
    for (size_t p = 0; p < ARRAY_LEN(words); p++) {
        sheaf_source *source = NULL;
        sheaf_safetensors_spec spec[64];
        char names[64][200];
        sheaf_safetensors_writer *w = NULL;
        CHECK_OK(open_stored(&source, golden("llama/tiny_qwen2/hf")));
        const int64_t n = source->count(source);
        assert_true(n < 64);
        const char *dir = textf("%s-%zu", at("prefix"), p);
        CHECK_OK(sheaf__make_dirs(dir));
        for (int64_t i = 0; i < n; i++) {
            const sheaf_source_entry *e = source->entry(source, i);
            const char *before = words[p].before, *name = e->name;
            int layer = 0;
            if (before == NULL && strncmp(name, "model.", 6) == 0)
                name += 6;
            sscanf(name, "model.layers.%*d.%n", &layer);
            snprintf(names[i], sizeof names[i], "%s%.*s%s%s", before != NULL ? before : "", layer,
                     name, layer > 0 ? words[p].inside : "", name + layer);
            spec[i] = (sheaf_safetensors_spec){
                names[i], e->dtype, e->ndim, { e->shape[0], e->shape[1] }
            };
        }
        CHECK_OK(sheaf__safetensors_begin(&w, in(dir, "model.safetensors"), spec, n, NULL, 0));
        for (int64_t i = 0; i < n; i++) {
            const sheaf_source_entry *e = source->entry(source, i);
            const int64_t rows = e->shape[0], cols = e->ndim == 2 ? e->shape[1] : 1;
            float *data = malloc((size_t)(rows * cols) * 4);
            CHECK_OK(source->read(source, e->name, 0, rows, 0, cols, data));
            CHECK_OK(sheaf__safetensors_write(w, i, 0, data, rows * cols * 4));
            free(data);
        }
        CHECK_OK(sheaf__safetensors_finish(w));
        sheaf_catalog *c = read_at(dir, golden("llama/tiny_qwen2/hf/config.json"));
        CHECK_SOUND(c);
        CHECK_FINDING(c, SHEAF_NOTE, "inferred", words[p].told);
        same_as(c, source);
        sheaf_source *stored = NULL; /* as generate and merge open it */
        if (words[p].before != NULL && strcmp(words[p].before, "model.") != 0) {
            CHECK_OK(open_stored(&stored, dir));
            for (int64_t i = 0; i < n; i++)
                assert_non_null(stored->find(stored, source->entry(source, i)->name));
            stored->close(stored);
        }
        source->close(source);
    }
}

/* DataParallel's word is the name of a module where other names do not begin with it; a second
 * tensor of a name is told. */
TEST(test_hf__words_that_are_none_stay)
{
    static const char *const names[][2] = { { "module.a", "b" },
                                            { "_orig_mod.b", "b" },
                                            { "_orig_mod.b", "module.b" } };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *path = textf("%s%zu.safetensors", at("honest"), i);
        put_named(path, names[i], 2, SHEAF_F32);
        sheaf_catalog *c = read_at(path, NULL);
        if (i < 2) {
            assert_non_null(sheaf__catalog_find(c, names[i][0]));
            sheaf__catalog_free(c);
        } else {
            check_found(c, SHEAF_DEFECT, "duplicate", "under another name");
        }
    }
}

/* The config must still be true. */
TEST(test_hf__tensors_of_images_under_a_config_without)
{
    static const struct {
        const char *family, *names[3];
    } models[] = {
        { "minicpmv",
          { "llm.model.layers.0.self_attn.q_proj.weight", "resampler.query",
            "vpm.embeddings.patch_embedding.weight" } },
        { "omnilmm",
          { "model.layers.0.self_attn.q_proj.weight", "model.resampler.query",
            "model.vision_tower.blocks.0.attn.q_bias" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const char *dir = textf("%s-%zu", at("images"), i);
        CHECK_OK(sheaf__make_dirs(dir));
        put_named(in(dir, "model.safetensors"), models[i].names, 3, SHEAF_F32);
        sheaf_catalog *c = read_at(dir, NULL);
        assert_string_equal(c->model, models[i].family);
        sheaf__catalog_free(c);
        check_found(read_at(dir, golden("llama/tiny_llama/hf/config.json")), SHEAF_DEFECT, "class",
                    "would be lost");
    }
}

TEST(test_hf__a_config_that_names_no_model)
{
    const char *dir = at("nameless");
    CHECK_OK(sheaf__make_dirs(dir));
    put_named(in(dir, "model.safetensors"), (const char *const[]){ "a", "b" }, 2, SHEAF_F32);
    put(in(dir, "config.json"), "{\"hidden_size\": 8}");
    want_found(read_at(dir, NULL), 0, NULL, NULL);
    sheaf_catalog *c = read_at(dir, in(dir, "config.json"));
    CHECK_SOUND(c);
    check_found(c, SHEAF_WARNING, "unsupported", "not supported yet");
    put(in(dir, "config.json"), "{\"model_type\": 8}");
    want_found(read_at(dir, in(dir, "config.json")), -1, NULL, NULL);
}

/* ---- tensors that are not read ---- */

/* A legacy file of torch without storages: magic number, protocol, system info, the value, keys. */
#define LEGACY(value)                                                                              \
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."                                    \
    "\x80\x02M\xe9\x03."                                                                           \
    "\x80\x02}X\x0d\0\0\0little_endian\x88s."                                                      \
    "\x80\x02" value "."                                                                           \
    "\x80\x02]."
#define V(value) LEGACY(value), sizeof LEGACY(value) - 1
#define KEY(value) "}X\1\0\0\0w" value "s"
#define BY(name) "ctorch._utils\n" name "\n(K\1K\2tR"
#define NUMPY                                                                                      \
    "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(X\2\0\0\0f4\x89\x88tR(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbC\4\0\0\x80?tR"

TEST(test_torch__tensors_that_are_not_read_are_named_and_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *name, *is;
    } rows[] = {
        { V(KEY(BY("_rebuild_qtensor"))), "w", "a quantized tensor" },
        { V(KEY(BY("_rebuild_sparse_tensor"))), "w", "a sparse tensor" },
        { V(KEY(BY("_rebuild_sparse_csr_tensor"))), "w", "a sparse tensor" },
        { V(KEY(BY("_rebuild_nested_tensor"))), "w", "a nested tensor" },
        { V(KEY(BY("_rebuild_meta_tensor_no_storage"))), "w", "a meta tensor" },
        { V(KEY(BY("_rebuild_wrapper_subclass"))), "w", "a tensor by _rebuild_wrapper_subclass" },
        { V(KEY(NUMPY)), "w", "a number of numpy's" },
        { V(KEY("]" NUMPY "a")), "w", "a number of numpy's" },      /* in a list */
        { V(KEY("}K\7" NUMPY "s")), "w.7", "a number of numpy's" }, /* under a number */
        { V(KEY("}X\1\0\0\0v" BY("_rebuild_qtensor") "s")), "w.v", "a quantized tensor" },
        { V(KEY("cmy.own\nHolder\n(" NUMPY "tR")), "w", "a number of numpy's" },
        { V(BY("_rebuild_qtensor")), "tensor", "a quantized tensor" }, /* the whole value */
    };
    static const struct {
        const char *bytes;
        size_t size;
    } fine[] = {
        { V(KEY("K\1")) },
        { V(KEY("X\2\0\0\0hi")) },
        { V(KEY("](K\1N\x88"
                "e")) },
        { V(KEY("}X\1\0\0\0vK\1s")) },
        { V(KEY("cmy.own\nHolder\n)R")) },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(sheaf__file_write_whole(at("one.pt"), rows[i].bytes, rows[i].size));
        sheaf_catalog *c = read_at(at("one.pt"), NULL);
        const sheaf_finding *f = sheaf__catalog_finding(c, "unread");
        if (f == NULL || f->severity != SHEAF_DEFECT || strcmp(f->tensor, rows[i].name) != 0 ||
            strstr(f->found, rows[i].is) == NULL) {
            print_findings(c);
            fail_msg("row %zu", i);
        }
        check_no_source(c);
        CHECK_OK(
            sheaf__open(&c, at("one.pt"),
                        &(sheaf_dialect_hints){ .drop_unread = true })); /* with --drop-unread */
        assert_int_equal(sheaf__catalog_finding(c, "unread")->severity, SHEAF_WARNING);
        want_found(c, 1, "missing", "tensors"); /* nothing is left */
    }
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) { /* values of which nothing is lost */
        CHECK_OK(sheaf__file_write_whole(at("one.pt"), fine[i].bytes, fine[i].size));
        want_found(read_at(at("one.pt"), NULL), 1, "missing", "tensors");
    }
}

/* PEFT's layers of several parameters lie in one another: base_layer tells whose factors are which.
 */
TEST(test_peft__parameters_of_one_layer_stay_apart)
{
    static const struct {
        const char *stored, *name;
        sheaf_kind kind;
    } rows[] = {
        { "base_model.model.x.experts.base_layer.base_layer.up", "x.experts.up", SHEAF_WEIGHT },
        { "base_model.model.x.experts.base_layer.lora_A.default.weight",
          "x.experts.base_layer.lora_A.default.weight", SHEAF_LORA },
        { "base_model.model.x.experts.lora_A.default.weight", "x.experts.lora_A.default.weight",
          SHEAF_LORA },
        { "base_model.model.x.gate.base_layer.weight", "x.gate.weight", SHEAF_WEIGHT },
        { "base_model.model.x.gate.lora_A.default.weight", "x.gate.lora_A.default.weight",
          SHEAF_LORA },
    };
    const char *stored[ARRAY_LEN(rows)], *dir = at("nested");
    CHECK_OK(sheaf__make_dirs(dir));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        stored[i] = rows[i].stored;
    put_named(in(dir, "model.safetensors"), stored, ARRAY_LEN(rows), SHEAF_F32);
    sheaf_catalog *c = read_at(dir, NULL);
    CHECK_SOUND(c);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf_logical *t = sheaf__catalog_find(c, rows[i].name);
        if (t == NULL || t->kind != rows[i].kind)
            fail_msg("%s: %s", rows[i].stored, t == NULL ? "not there" : "of another kind");
    }
    sheaf__catalog_free(c);
}

TEST(test_peft__factors_have_the_names_that_peft_saves)
{
    const char *dir = at("peft");
    CHECK_OK(sheaf__make_dirs(dir));
    put(in(dir, "adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 4}");
    put_named(in(dir, "adapter_model.safetensors"),
              (const char *const[]){ "base_model.model.x.lora_A.default.weight" }, 1, SHEAF_F32);
    sheaf_catalog *c = read_at(dir, NULL);
    assert_int_equal(c->tensor[0].kind, SHEAF_LORA);
    assert_string_equal(c->tensor[0].entry.name, "base_model.model.x.lora_A.weight");
    sheaf__catalog_free(c);
    CHECK_OK(sheaf__remove_tree(in(dir, "adapter_config.json")));
    check_found(read_at(dir, NULL), SHEAF_DEFECT, "missing", "adapter_config.json");
}

TEST(test_vocabulary__rows_that_padding_gives)
{
    static const struct {
        int64_t rows, vocab;
        int ways;
        bool padded;
    } cases[] = {
        { 256, 511, 2, false },      { 32768, 65535, 2, false }, { 16064, 128256, 8, false },
        { 511, 511, 0, false },      { 512, 511, 0, true },      { 50304, 50257, 0, true },
        { 32256, 32000, 0, true },   { 513, 511, 0, false },     { 32001, 32000, 0, false },
        { 128512, 128256, 0, true }, { 255, 511, 0, false },     { 0, 511, 0, false },
        { 16128, 32001, 2, false },  { 32256, 32001, 0, true }, /* by 128 for each of two */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t padded = 0;
        if (sheaf__vocabulary_ways(cases[i].rows, cases[i].vocab, &padded) != cases[i].ways ||
            sheaf__vocabulary_padded(cases[i].rows, cases[i].vocab) != cases[i].padded)
            fail_msg("%" PRId64 " of %" PRId64, cases[i].rows, cases[i].vocab);
    }
}

FIXTURE(make_scratch, remove_scratch);
