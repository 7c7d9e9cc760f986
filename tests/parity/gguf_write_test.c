/* gguf_write_test.c - converting recorded folders to GGUF gives the recorded files of the gguf
 * package and ggml, byte by byte. A clone without recordings has some of the folders, and hashes.
 */
#include "tests/files.h"
#include "tests/recordings.h"

#include <unistd.h>

#include "base/hash.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/stream.h"
#include "dialects/gguf/model.h"
#include "dialects/open.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

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

/* What a file says of how it was made; names are free()d. */
typedef struct said {
    char *name;
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
    s.name = sheaf__gguf_string(sheaf__gguf_find(file, "general.name"));
    s.adapter = type != NULL && strcmp(type, "adapter") == 0;
    s.dtype = kind == SHEAF__GGUF_FILE_BF16  ? SHEAF_BF16
              : kind == SHEAF__GGUF_FILE_F16 ? SHEAF_F16
              : kind == SHEAF__GGUF_FILE_F32 ? SHEAF_F32
                                             : SHEAF_BOOL;
    s.quantize = kind == SHEAF__GGUF_FILE_Q8_0     ? SHEAF_QUANTIZE_Q8_0
                 : kind == SHEAF__GGUF_FILE_Q4_K_M ? SHEAF_QUANTIZE_Q4_K_M
                                                   : SHEAF_QUANTIZE_NONE;
    assert_non_null(s.name);
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
    char *text[2] = { NULL, NULL };
    size_t head[2], data[2];
    for (int i = 0; i < 2; i++) {
        sheaf__gguf *file = NULL;
        size_t size = 0;
        CHECK_OK(sheaf__gguf_open(&file, paths[i]));
        const size_t begin = file->ntensors > 0 ? (size_t)file->tensor[0].offset : 0;
        sheaf__gguf_close(file);
        CHECK_OK(sheaf__file_read_all(&text[i], &size, paths[i], 1 << 24));
        head[i] = begin;
        data[i] = size - begin;
        char *behind = malloc(data[i] + 1);
        memcpy(behind, text[i] + begin, data[i]);
        without(text[i], &head[i], "tokenizer.ggml.add_bos_token");
        without(text[i], &head[i], "tokenizer.ggml.add_eos_token");
        while (head[i] > 0 && text[i][head[i] - 1] == '\0')
            head[i]--;
        memcpy(text[i] + head[i], behind, data[i]);
        free(behind);
    }
    assert_int_equal(head[0], head[1]);
    assert_int_equal(data[0], data[1]);
    CHECK_BYTES(want_path, text[0], text[1], head[0] + data[0]);
    free(text[0]);
    free(text[1]);
}

/* The file of a recorded folder made again of the folder hf beside it, or peft_adapter. false: what
 * it was made of is not there. */
static bool make_again(const char *folder, const char *file)
{
    char path[2000], from[2000], config[2000], weights[2100];
    snprintf(path, sizeof path, "%s/%s/%s", recording("gguf"), folder, file);
    said s = read_said(path);
    snprintf(from, sizeof from, "%s/%s/%s", recording("gguf"), folder,
             s.adapter ? "peft_adapter" : "hf");
    snprintf(config, sizeof config, "%s/%s/hf/config.json", recording("gguf"), folder);
    snprintf(weights, sizeof weights, "%s/%s", from,
             s.adapter ? "adapter_model.safetensors" : "model.safetensors");
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
    free(s.name);
    return there;
}

TEST(test_files__are_those_of_the_gguf_package)
{
    char **folder = NULL, **file = NULL;
    int64_t folders = 0, files = 0, made = 0;
    CHECK_OK(sheaf__list_dir(&folder, &folders, recording("gguf")));
    for (int64_t i = 0; i < folders; i++) {
        char path[2000];
        snprintf(path, sizeof path, "%s/%s", recording("gguf"), folder[i]);
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
    static char path[2000];
    snprintf(path, sizeof path, "%s/tests/data/gguf/tiny_qwen2/hf", getenv("SHEAF_SOURCE_ROOT"));
    return path;
}

/* Nothing is left of one that fails, and what is there stays. */
TEST(test_targets__that_are_there_stay)
{
    const char *out = at("there.gguf");
    put(out, "mine");
    CHECK_FAILS(convert(out, (sheaf_weights_convert_options){ .src = qwen2() }), SHEAF_E_ARG,
                "there.gguf");
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, out, 100));
    assert_string_equal(text, "mine");
    free(text);
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

/* The tensors of `from` in `dst`; those whose names have `part` in them in float32. */
static void copy_mixed(const char *dst, sheaf_source *from, const char *part)
{
    const int64_t n = from->count(from);
    sheaf_safetensors_spec *spec = calloc((size_t)n, sizeof *spec);
    sheaf_safetensors_writer *file = NULL;
    assert_non_null(spec);
    for (int64_t i = 0; i < n; i++) {
        spec[i] = *from->entry(from, i);
        if (strstr(spec[i].name, part) != NULL)
            spec[i].dtype = SHEAF_F32;
    }
    CHECK_OK(sheaf__safetensors_begin(&file, dst, spec, n, NULL, 0));
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = from->entry(from, i);
        int64_t rows, cols;
        sheaf__entry_view(&rows, &cols, e);
        const int64_t bytes = rows * cols * (int64_t)sheaf_dtype_bytes(spec[i].dtype);
        char *raw = malloc((size_t)sheaf__entry_bytes(e)), *out = malloc((size_t)bytes);
        assert_true(raw != NULL && out != NULL);
        CHECK_OK(from->read(from, e->name, 0, rows, 0, cols, raw));
        assert_true(sheaf__dtype_convert(out, spec[i].dtype, raw, e->dtype, rows * cols));
        CHECK_OK(sheaf__safetensors_write(file, i, 0, out, bytes));
        free(raw);
        free(out);
    }
    CHECK_OK(sheaf__safetensors_finish(file));
    free(spec);
}

/* A source's tensor in float32 (free()). */
static float *numbers_of(sheaf_source *source, const char *name, int64_t *count)
{
    const sheaf_source_entry *e = source->find(source, name);
    int64_t rows, cols;
    assert_non_null(e);
    sheaf__entry_view(&rows, &cols, e);
    *count = rows * cols;
    char *raw = malloc((size_t)sheaf__entry_bytes(e));
    float *x = malloc((size_t)*count * sizeof *x);
    assert_true(raw != NULL && x != NULL);
    CHECK_OK(source->read(source, name, 0, rows, 0, cols, raw));
    assert_true(sheaf__dtype_convert(x, SHEAF_F32, raw, e->dtype, *count));
    free(raw);
    return x;
}

/* Experts are one tensor in GGUF, and may be stored in different dtypes: the first is wider than
 * the others, or narrower than the next. */
TEST(test_experts__may_be_stored_in_different_dtypes)
{
    static const char *const wide[] = { ".experts.0.", ".experts.1." };
    char folder[2000], path[2100];
    char *config = NULL;
    size_t size = 0;
    snprintf(folder, sizeof folder, "%s/tests/data/families/mixtral/hf",
             getenv("SHEAF_SOURCE_ROOT"));
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECK_OK(sheaf__file_read_all(&config, &size, path, 1 << 20));
    for (size_t k = 0; k < ARRAY_LEN(wide); k++) {
        sheaf_source *from = NULL, *mixed = NULL, *made = NULL;
        CHECK_OK(sheaf__remove_tree(at("mixed")));
        CHECK_OK(sheaf__make_dir(at("mixed")));
        put(at("mixed/config.json"), config);
        CHECK_OK(sheaf__open_source(&from, folder, NULL));
        copy_mixed(at("mixed/model.safetensors"), from, wide[k]);
        assert_int_equal(from->entry(from, 0)->dtype, SHEAF_BF16);
        from->close(from);
        CHECK_OK(convert(at("mixed.gguf"), (sheaf_weights_convert_options){ .src = at("mixed"),
                                                                            .dtype = SHEAF_F32 }));
        CHECK_OK(sheaf__open_source(&mixed, at("mixed"), NULL));
        CHECK_OK(sheaf__open_source(&made, at("mixed.gguf"), NULL));
        for (int64_t i = 0; i < mixed->count(mixed); i++) {
            const char *name = mixed->entry(mixed, i)->name;
            int64_t n = 0, m = 0;
            float *want = numbers_of(mixed, name, &n), *got = numbers_of(made, name, &m);
            assert_int_equal(n, m);
            CHECK_BYTES(name, got, want, (size_t)n * sizeof *want);
            free(want);
            free(got);
        }
        mixed->close(mixed);
        made->close(made);
        unlink(at("mixed.gguf"));
    }
    free(config);
}

/* ---- keys ---- */

/* The whole file is recorded, but not in a clone. */
TEST(test_keys__of_a_sentencepiece_tokenizer_are_the_recorded_ones)
{
    char folder[2000], config[2100], digits[33];
    sheaf_config c;
    sheaf__gguf_keys keys = { 0 };
    snprintf(folder, sizeof folder, "%s/tests/data/gguf/tiny_llama3rope/hf",
             getenv("SHEAF_SOURCE_ROOT"));
    snprintf(config, sizeof config, "%s/config.json", folder);
    CHECK_OK(sheaf_config_read(&c, config));
    sheaf__gguf_model_keys(&keys, &c, "tiny llama", SHEAF__GGUF_FILE_BF16);
    CHECK_OK(sheaf__gguf_tokenizer_keys(&keys, &c, folder, NULL));
    assert_int_equal(keys.count, 26);
    assert_string_equal(sheaf__hash_text(digits, sheaf__hash(keys.text.at, keys.text.size)),
                        "fa81687ea3beda5117fda5a877b9a050");
    sheaf__gguf_keys_release(&keys);
    sheaf_config_release(&c);
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
