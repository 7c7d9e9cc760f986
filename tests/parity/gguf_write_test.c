/* gguf_write_test.c - converting recorded folders to GGUF gives the recorded files of the gguf
 * package and ggml, byte by byte. A clone without recordings has some of the folders, and hashes.
 */
#include "tests/parity/recorded.h"
#include "tests/recordings.h"
#include "tests/sources.h"

#include "base/hash.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/stream.h"
#include "dialects/gguf/model.h"
#include "dialects/open.h"
#include "formats/gguf.h"

/* SRC is a link of this name, as a folder that somebody made. */
static const char *named(const char *folder, const char *name)
{
    char real[SHEAF_PATH_SIZE];
    const char *link = at(name);
    unlink(link);
    assert_non_null(realpath(folder, real));
    assert_int_equal(symlink(real, link), 0);
    return link;
}

static sheaf_status *convert(const char *dst, sheaf_weights_convert_options o)
{
    sheaf_weights_convert_report report;
    o.dst = dst;
    o.to = o.to != NULL ? o.to : "gguf";
    return sheaf_convert(&report, &o);
}

/* ---- whole files ---- */

/* What a file says of how it was made. */
typedef struct said {
    const char *name;
    bool adapter;
    sheaf_dtype dtype;
    sheaf_quantize quantize;
} said;

static said read_said(const char *path)
{
    bool ok = true;
    sheaf__gguf *file = NULL;
    said s = { .dtype = SHEAF_BOOL };
    CHECK_OK(sheaf__gguf_open(&file, path));
    char *type = sheaf__gguf_string(sheaf__gguf_find(file, "general.type"));
    const sheaf__gguf_key *key = sheaf__gguf_find(file, "general.file_type");
    const int64_t kind = key == NULL ? 0 : sheaf__gguf_integer(key, 0, &ok);
    s.name = kept(sheaf__gguf_string(sheaf__gguf_find(file, "general.name")), free);
    s.adapter = type != NULL && strcmp(type, "adapter") == 0;
    s.dtype = kind == SHEAF__GGUF_FILE_BF16  ? SHEAF_BF16
              : kind == SHEAF__GGUF_FILE_F16 ? SHEAF_F16
              : kind == SHEAF__GGUF_FILE_F32 ? SHEAF_F32
                                             : SHEAF_BOOL;
    s.quantize = kind == SHEAF__GGUF_FILE_Q8_0     ? SHEAF_QUANTIZE_Q8_0
                 : kind == SHEAF__GGUF_FILE_Q4_K_M ? SHEAF_QUANTIZE_Q4_K_M
                                                   : SHEAF_QUANTIZE_NONE;
    free(type);
    sheaf__gguf_close(file);
    return s;
}

/* Takes a key of a truth value out of a file's text. */
static void without(char *text, size_t *size, const char *key)
{
    char *at = memmem(text, *size, key, strlen(key));
    if (at == NULL)
        return;
    char *begin = at - 8, *end = at + strlen(key) + 4 + 1;
    memmove(begin, end, *size - (size_t)(end - text));
    *size -= (size_t)(end - begin);
    text[16]--; /* the number of keys, below 256 */
}

/* The script that wrote the recordings took add_bos_token from the name of the pattern, and wrote
 * add_eos_token of sentencepiece's alone: all else, and the data behind the padding. */
static void check_same(const char *path, const char *want_path)
{
    const char *const paths[] = { path, want_path };
    char *text[2];
    size_t head[2], data[2];
    for (int i = 0; i < 2; i++) {
        sheaf__gguf *file = NULL;
        size_t size = 0;
        CHECK_OK(sheaf__gguf_open(&file, paths[i]));
        const size_t begin = file->ntensors > 0 ? (size_t)file->tensor[0].offset : 0;
        sheaf__gguf_close(file);
        text[i] = file_text(paths[i], &size);
        head[i] = begin;
        data[i] = size - begin;
        const char *behind = memcpy(room(data[i]), text[i] + begin, data[i]);
        without(text[i], &head[i], "tokenizer.ggml.add_bos_token");
        without(text[i], &head[i], "tokenizer.ggml.add_eos_token");
        while (head[i] > 0 && text[i][head[i] - 1] == '\0')
            head[i]--;
        memcpy(text[i] + head[i], behind, data[i]);
    }
    assert_int_equal(head[0], head[1]);
    assert_int_equal(data[0], data[1]);
    CHECK_BYTES(want_path, text[0], text[1], head[0] + data[0]);
}

/* The file of a recorded folder made again of the folder hf beside it, or peft_adapter. false: what
 * it was made of is not there. */
static bool make_again(const char *folder, const char *file)
{
    const char *path = textf("%s/%s/%s", recording("gguf"), folder, file);
    said s = read_said(path);
    const char *from =
        textf("%s/%s/%s", recording("gguf"), folder, s.adapter ? "peft_adapter" : "hf");
    const char *config = textf("%s/%s/hf/config.json", recording("gguf"), folder);
    const char *weights =
        textf("%s/%s", from, s.adapter ? "adapter_model.safetensors" : "model.safetensors");
    const bool there = sheaf__path_kind(weights) == SHEAF_PATH_FILE;
    for (int threads = 1; threads < 4 && there; threads += 2) {
        const char *out = at("out.gguf");
        CHECK_OK(
            convert(out, (sheaf_weights_convert_options){ .src = named(from, s.name),
                                                          .to = s.adapter ? "gguf-lora" : NULL,
                                                          .config = s.adapter ? config : NULL,
                                                          .dtype = s.adapter ? SHEAF_BOOL : s.dtype,
                                                          .quantize = s.quantize,
                                                          .threads = threads }));
        check_same(out, path);
        unlink(out);
    }
    return there;
}

TEST(test_files__are_those_of_the_gguf_package)
{
    char **folder = NULL, **file = NULL;
    int64_t folders = 0, files = 0, made = 0;
    CHECK_OK(sheaf__list_dir(&folder, &folders, recording("gguf")));
    for (int64_t i = 0; i < folders; i++) {
        const char *path = textf("%s/%s", recording("gguf"), folder[i]);
        if (sheaf__path_kind(path) != SHEAF_PATH_DIR || strcmp(folder[i], "edge") == 0)
            continue;
        CHECK_OK(sheaf__list_dir(&file, &files, path));
        for (int64_t k = 0; k < files; k++)
            if (strstr(file[k], ".gguf") != NULL)
                made += make_again(folder[i], file[k]);
        sheaf__names_free(file, files);
    }
    sheaf__names_free(folder, folders);
    assert_true(made >= (recordings_are_full() ? 7 : 2));
}

static const char *qwen2(void)
{
    return in_sources("tests/data/gguf/tiny_qwen2/hf");
}

/* Nothing is left of one that fails, and what is there stays. */
TEST(test_targets__that_are_there_stay)
{
    const char *out = at("there.gguf");
    put(out, "mine");
    CHECK_FAILS(convert(out, (sheaf_weights_convert_options){ .src = qwen2() }), SHEAF_E_ARG,
                "there.gguf");
    assert_string_equal(file_text(out, NULL), "mine");
    unlink(out);
}

TEST(test_requests__that_have_no_meaning_are_refused)
{
    sheaf_weights_convert_options o = { .src = qwen2() };
    const char *out = at("none.gguf");
    o.to = "hf";
    o.quantize = SHEAF_QUANTIZE_Q8_0;
    CHECK_FAILS(convert(out, o), SHEAF_E_ARG, "gguf");
    o.to = "gguf";
    o.quantize = SHEAF_QUANTIZE_NF4;
    CHECK_FAILS(convert(out, o), SHEAF_E_ARG, "`quantize`");
    o.quantize = SHEAF_QUANTIZE_NONE;
    o.to = "gguf-lora";
    CHECK_FAILS(convert(out, o), SHEAF_E_ARG, "adapter");
    assert_int_equal(sheaf__path_kind(out), SHEAF_PATH_NONE);
}

/* ---- experts ---- */

/* A source's tensor in another dtype. */
static void *read_as(sheaf_source *source, const sheaf_source_entry *e, sheaf_dtype dtype,
                     int64_t *n)
{
    int64_t rows, cols;
    assert_non_null(e);
    sheaf__entry_view(&rows, &cols, e);
    *n = rows * cols;
    void *raw = room((size_t)sheaf__entry_bytes(e)),
         *out = room((size_t)*n * sheaf_dtype_bytes(dtype));
    CHECK_OK(source->read(source, e->name, 0, rows, 0, cols, raw));
    assert_true(sheaf__dtype_convert(out, dtype, raw, e->dtype, *n));
    return out;
}

/* The tensors of `from` in `dst`; those whose names have `part` in them in float32. */
static void copy_mixed(const char *dst, sheaf_source *from, const char *part)
{
    made_tensors made = { .count = 0 };
    for (int64_t i = 0, n; i < from->count(from); i++) {
        const sheaf_source_entry *e = from->entry(from, i);
        const sheaf_dtype dtype = strstr(e->name, part) != NULL ? SHEAF_F32 : e->dtype;
        made_add(&made, e->name, dtype, e->ndim, e->shape, read_as(from, e, dtype, &n));
    }
    made_write(&made, dst);
}

/* Experts are one tensor in GGUF, and may be stored in different dtypes: the first is wider than
 * the others, or narrower than the next. */
TEST(test_experts__may_be_stored_in_different_dtypes)
{
    static const char *const wide[] = { ".experts.0.", ".experts.1." };
    const char *folder = in_sources("tests/data/families/mixtral/hf");
    for (size_t k = 0; k < ARRAY_LEN(wide); k++) {
        sheaf_source *from = NULL, *mixed = NULL, *made = NULL;
        CHECK_OK(sheaf__remove_tree(at("mixed")));
        CHECK_OK(sheaf__make_dir(at("mixed")));
        copy_file(at("mixed/config.json"), in_dir(folder, "config.json"));
        CHECK_OK(sheaf__open_source(&from, folder, NULL));
        copy_mixed(at("mixed/model.safetensors"), from, wide[k]);
        assert_int_equal(from->entry(from, 0)->dtype, SHEAF_BF16);
        from->close(from);
        CHECK_OK(convert(at("mixed.gguf"), (sheaf_weights_convert_options){ .src = at("mixed"),
                                                                            .dtype = SHEAF_F32 }));
        CHECK_OK(sheaf__open_source(&mixed, at("mixed"), NULL));
        CHECK_OK(sheaf__open_source(&made, at("mixed.gguf"), NULL));
        for (int64_t i = 0; i < mixed->count(mixed); i++) {
            const sheaf_source_entry *e = mixed->entry(mixed, i);
            int64_t n, m;
            const float *want = read_as(mixed, e, SHEAF_F32, &n),
                        *got = read_as(made, made->find(made, e->name), SHEAF_F32, &m);
            assert_int_equal(n, m);
            CHECK_BYTES(e->name, got, want, (size_t)n * sizeof *want);
        }
        mixed->close(mixed);
        made->close(made);
        unlink(at("mixed.gguf"));
    }
}

/* ---- keys ---- */

/* The whole file is recorded, but not in a clone. */
TEST(test_keys__of_a_sentencepiece_tokenizer_are_the_recorded_ones)
{
    char digits[33];
    sheaf__gguf_keys keys = { 0 };
    const char *folder = in_sources("tests/data/gguf/tiny_llama3rope/hf");
    const sheaf_config *c = config_of(folder, "config.json");
    sheaf__gguf_model_keys(&keys, c, "tiny llama", SHEAF__GGUF_FILE_BF16);
    CHECK_OK(sheaf__gguf_tokenizer_keys(&keys, c, folder, NULL));
    assert_int_equal(keys.count, 26);
    assert_string_equal(sheaf__hash_text(digits, sheaf__hash(keys.text.at, keys.text.size)),
                        "fa81687ea3beda5117fda5a877b9a050");
    sheaf__gguf_keys_release(&keys);
}

/* ---- names ---- */

static const struct {
    const char *config, *here, *there;
    int64_t expert;
} names[] = {
    { "llama", "model.layers.7.self_attn.q_proj.bias", "blk.7.attn_q.bias", -1 },
    { "mistral", "lm_head.weight", "output.weight", -1 },
    { "gemma2", "model.layers.0.post_attention_layernorm.weight",
      "blk.0.post_attention_norm.weight", -1 },
    { "gemma3_text", "model.layers.1.pre_feedforward_layernorm.weight", "blk.1.ffn_norm.weight",
      -1 },
    { "olmo2", "model.layers.2.post_feedforward_layernorm.weight", "blk.2.post_ffw_norm.weight",
      -1 },
    { "phi3", "model.layers.3.mlp.gate_up_proj.weight", "blk.3.ffn_up.weight", -1 },
    { "glm4", "model.layers.3.post_mlp_layernorm.weight", "blk.3.post_ffw_norm.weight", -1 },
    { "mixtral", "model.layers.12.block_sparse_moe.experts.5.w2.weight",
      "blk.12.ffn_down_exps.weight", 5 },
    { "mixtral", "model.layers.12.block_sparse_moe.gate.weight", "blk.12.ffn_gate_inp.weight", -1 },
    { "qwen3_moe", "model.layers.0.mlp.experts.127.up_proj.weight", "blk.0.ffn_up_exps.weight",
      127 },
    { "qwen3_moe", "model.layers.0.mlp.gate.weight", "blk.0.ffn_gate_inp.weight", -1 },
    { "chatglm", "transformer.encoder.layers.1.self_attention.query_key_value.bias",
      "blk.1.attn_qkv.bias", -1 },
};

TEST(test_names__go_there_and_back)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char out[SHEAF__SPELLED];
        int64_t expert = 0;
        const sheaf__gguf_form *form = sheaf__family_named(names[i].config)->gguf;
        assert_true(sheaf__gguf_name(out, &expert, form, names[i].here));
        assert_string_equal(out, names[i].there);
        assert_int_equal(expert, names[i].expert);
        assert_true(sheaf__gguf_name_back(out, form, names[i].there, expert));
        assert_string_equal(out, names[i].here);
    }
}

/* ---- types ---- */

#define THREE(a, b, c)                                                                             \
    {                                                                                              \
        SHEAF__GGML_##a, SHEAF__GGML_##b, SHEAF__GGML_##c                                          \
    }
#define ALL(a) THREE(a, a, a)

static const struct {
    const char *name;
    int64_t columns, layers, experts, kv_heads;
    sheaf__gguf_type want[3]; /* in Q4_K_M, Q5_K_M, Q6_K */
} types[] = {
    { "output.weight", 256, 32, 0, 8, ALL(Q6_K) },
    { "output.weight", 96, 32, 0, 8, ALL(Q8_0) },
    { "token_embd.weight", 256, 32, 0, 8, THREE(Q4_K, Q5_K, Q6_K) },
    { "blk.0.attn_v.weight", 256, 32, 0, 8, ALL(Q6_K) }, /* the first eighth */
    { "blk.4.attn_v.weight", 256, 32, 0, 8, THREE(Q4_K, Q5_K, Q6_K) },
    { "blk.11.attn_v.weight", 256, 80, 0, 1, THREE(Q5_K, Q5_K, Q6_K) }, /* Llama 70B */
    { "blk.6.ffn_down.weight", 256, 32, 0, 8, ALL(Q6_K) },              /* every third */
    { "blk.28.ffn_down.weight", 256, 32, 0, 8, ALL(Q6_K) },             /* the last eighth */
    { "blk.4.attn_v.weight", 256, 32, 8, 8, ALL(Q8_0) },
    { "blk.4.attn_k.weight", 256, 32, 8, 8, ALL(Q8_0) },
    { "blk.4.attn_output.weight", 256, 32, 8, 8, THREE(Q5_K, Q5_K, Q6_K) },
    { "blk.6.ffn_down_exps.weight", 256, 32, 8, 8, ALL(Q6_K) },
    { "blk.4.attn_qkv.weight", 256, 32, 0, 8, THREE(Q5_K, Q6_K, Q6_K) },
    { "blk.4.ffn_gate.weight", 896, 32, 0, 8, THREE(Q5_0, Q5_1, Q8_0) },
    { "blk.6.ffn_down.weight", 4864, 32, 0, 8, ALL(Q6_K) },
    { "blk.6.ffn_down.weight", 4896, 32, 0, 8, ALL(Q8_0) },
    { "blk.6.ffn_down.weight", 100, 32, 0, 8, ALL(F16) },
    { "blk.4.attn_norm.weight", 256, 32, 0, 8, ALL(F32) },
    { "blk.4.ffn_gate_inp.weight", 256, 32, 8, 8, ALL(F32) },
    { "blk.4.attn_q.bias", 256, 32, 0, 8, ALL(F32) },
};

TEST(test_types__follow_layers_and_columns)
{
    static const sheaf__gguf_file files[] = { SHEAF__GGUF_FILE_Q4_K_M, SHEAF__GGUF_FILE_Q5_K_M,
                                              SHEAF__GGUF_FILE_Q6_K };
    for (size_t i = 0; i < 3 * ARRAY_LEN(types); i++) {
        const size_t k = i / 3;
        const sheaf_config c = { .family = SHEAF_LLAMA,
                                 .layers = types[k].layers,
                                 .heads = 8,
                                 .kv_heads = types[k].kv_heads,
                                 .num_experts = types[k].experts };
        const sheaf__gguf_type got =
            sheaf__gguf_type_for(files[i % 3], types[k].name, 2, types[k].columns, &c, true);
        if (got != types[k].want[i % 3])
            fail_msg("%s, %d columns, in %d: %s", types[k].name, (int)types[k].columns,
                     (int)files[i % 3], sheaf__gguf_type_at(got)->name);
    }
}

FIXTURE(make_scratch, remove_scratch);
