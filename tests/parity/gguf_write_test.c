/* gguf_write_test.c - converting recorded folders to GGUF gives the recorded files of the gguf
 * package and ggml, byte by byte. A clone without recordings has some of the folders, and hashes.
 */
#include "tests/files.h"
#include "tests/recordings.h"

#include <unistd.h>

#include "base/hash.h"
#include "checkpoint/convert/convert.h"
#include "dialects/gguf/model.h"
#include "formats/gguf.h"

typedef struct row {
    const char *from, *name, *file; /* general.name is that of SRC */
    sheaf_dtype dtype;
    sheaf_quantize quantize;
    const char *to, *config;
    bool here;        /* the folder lies in a clone */
    const char *hash; /* of the file */
} row;

static const row rows[] = {
    { "tiny_llama/hf", "tiny llama", "tiny_llama/llama-f32.gguf", SHEAF_F32 },
    { "tiny_llama/hf", "tiny llama", "tiny_llama/llama-bf16.gguf", SHEAF_BOOL },
    { "tiny_llama/hf", "tiny llama", "tiny_llama/llama-q8_0.gguf", SHEAF_BOOL,
      SHEAF_QUANTIZE_Q8_0 },
    { "tiny_llama3rope/hf", "tiny llama", "tiny_llama3rope/llama3rope-bf16.gguf", SHEAF_BF16 },
    { "tiny_qwen2/hf", "tiny qwen2", "tiny_qwen2/qwen2-f16.gguf", SHEAF_F16, .here = true,
      .hash = "34bf4699eb28ec5c7b344ecf92beaf47" },
    { "tiny_qwen2/hf", "tiny qwen2", "tiny_qwen2/qwen2-q8_0.gguf", SHEAF_BOOL, SHEAF_QUANTIZE_Q8_0,
      .here = true, .hash = "120af79227edf647106e94ed4712664d" },
    { "tiny_llama/peft_adapter", "tiny lora", "tiny_llama/lora-f32.gguf", SHEAF_BOOL,
      .to = "gguf-lora", .config = "tiny_llama/hf/config.json", .here = true,
      .hash = "afb79fbd6aed542f527c89128e29ce5d" },
};

static const char *in_gguf(const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "gguf/%s", name);
    return recording(p);
}

/* SRC is a link of this name, as a folder that somebody made. */
static const char *named(const row *r)
{
    char real[SHEAF_PATH_SIZE];
    const char *link = at(r->name);
    unlink(link);
    assert_non_null(realpath(in_gguf(r->from), real));
    assert_int_equal(symlink(real, link), 0);
    return link;
}

static sheaf_status *convert(const char *dst, const row *r, int threads)
{
    sheaf_weights_convert_report report;
    return sheaf_convert(&report, &(sheaf_weights_convert_options){
                                      .src = named(r),
                                      .dst = dst,
                                      .to = r->to != NULL ? r->to : "gguf",
                                      .config = r->config == NULL ? NULL : in_gguf(r->config),
                                      .dtype = r->dtype,
                                      .quantize = r->quantize,
                                      .threads = threads });
}

static void check_whole(const row *r, const char *path)
{
    char *got = NULL, *want = NULL, digits[33];
    size_t size = 0, want_size = 0;
    CHECK_OK(sheaf__file_read_all(&got, &size, path, 1 << 24));
    if (recordings_are_full()) {
        CHECK_OK(sheaf__file_read_all(&want, &want_size, in_gguf(r->file), 1 << 24));
        CHECK_BYTES(r->file, got, want, size < want_size ? size : want_size);
        assert_int_equal(size, want_size);
    }
    if (r->hash != NULL)
        assert_string_equal(sheaf__hash_text(digits, sheaf__hash(got, size)), r->hash);
    free(got);
    free(want);
}

static void test_files__are_those_of_the_gguf_package(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rows[i].here && !recordings_are_full())
            continue;
        for (int threads = 1; threads < 4; threads += 2) {
            const char *out = at("out.gguf");
            CHECK_OK(convert(out, &rows[i], threads));
            check_whole(&rows[i], out);
            unlink(out);
        }
    }
}

/* Nothing is left of one that fails, and what is there stays. */
static void test_targets__that_are_there_stay(void **state)
{
    const char *out = at("there.gguf");
    put(out, "mine");
    CHECK_FAILS(convert(out, &rows[4], 1), SHEAF_E_ARG, "there.gguf");
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, out, 100));
    assert_string_equal(text, "mine");
    free(text);
    unlink(out);
}

static void test_requests__that_have_no_meaning_are_refused(void **state)
{
    row r = rows[4];
    const char *out = at("none.gguf");
    r.to = "hf";
    r.quantize = SHEAF_QUANTIZE_Q8_0;
    CHECK_FAILS(convert(out, &r, 1), SHEAF_E_ARG, "gguf");
    r.to = "gguf";
    r.quantize = SHEAF_QUANTIZE_NF4;
    CHECK_FAILS(convert(out, &r, 1), SHEAF_E_ARG, "--quantize");
    r.quantize = SHEAF_QUANTIZE_NONE;
    r.to = "gguf-lora";
    CHECK_FAILS(convert(out, &r, 1), SHEAF_E_ARG, "adapter");
    r = rows[6];
    r.config = NULL; /* and the base that it names is not there */
    CHECK_FAILS(convert(out, &r, 1), SHEAF_E_ARG, "--base");
    assert_int_equal(sheaf__path_kind(out), SHEAF_PATH_NONE);
}

/* ---- keys ---- */

/* Where keys begin and end in a file's first bytes. */
static void test_keys__of_a_sentencepiece_tokenizer_are_the_recorded_ones(void **state)
{
    sheaf_config c;
    sheaf__gguf_keys keys = { 0 };
    char digits[33];
    CHECK_OK(sheaf_config_read(&c, in_gguf("tiny_llama3rope/hf/config.json")));
    sheaf__gguf_model_keys(&keys, &c, "tiny llama", SHEAF__GGUF_FILE_BF16);
    CHECK_OK(sheaf__gguf_tokenizer_keys(&keys, &c, in_gguf("tiny_llama3rope/hf"), NULL));
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

static void test_names__go_there_and_back(void **state)
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

static const struct {
    const char *name;
    int64_t columns, layers, experts;
    sheaf__gguf_type want;
} types[] = {
    { "output.weight", 256, 32, 0, SHEAF__GGML_Q6_K },
    { "output.weight", 96, 32, 0, SHEAF__GGML_Q8_0 },
    { "token_embd.weight", 256, 32, 0, SHEAF__GGML_Q4_K },
    { "blk.0.attn_v.weight", 256, 32, 0, SHEAF__GGML_Q6_K }, /* the first eighth */
    { "blk.4.attn_v.weight", 256, 32, 0, SHEAF__GGML_Q4_K },
    { "blk.6.ffn_down.weight", 256, 32, 0, SHEAF__GGML_Q6_K },  /* every third */
    { "blk.28.ffn_down.weight", 256, 32, 0, SHEAF__GGML_Q6_K }, /* the last eighth */
    { "blk.4.attn_v.weight", 256, 32, 8, SHEAF__GGML_Q8_0 },
    { "blk.4.attn_k.weight", 256, 32, 8, SHEAF__GGML_Q8_0 },
    { "blk.4.attn_output.weight", 256, 32, 8, SHEAF__GGML_Q5_K },
    { "blk.6.ffn_down_exps.weight", 256, 32, 8, SHEAF__GGML_Q6_K },
    { "blk.4.attn_qkv.weight", 256, 32, 0, SHEAF__GGML_Q5_K },
    { "blk.4.ffn_gate.weight", 896, 32, 0, SHEAF__GGML_Q5_0 },
    { "blk.6.ffn_down.weight", 4864, 32, 0, SHEAF__GGML_Q6_K },
    { "blk.6.ffn_down.weight", 4896, 32, 0, SHEAF__GGML_Q8_0 },
    { "blk.6.ffn_down.weight", 100, 32, 0, SHEAF__GGML_F16 },
    { "blk.4.attn_norm.weight", 256, 32, 0, SHEAF__GGML_F32 },
    { "blk.4.ffn_gate_inp.weight", 256, 32, 8, SHEAF__GGML_F32 },
    { "blk.4.attn_q.bias", 256, 32, 0, SHEAF__GGML_F32 },
};

static void test_types__of_q4_k_m_follow_layers_and_columns(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const sheaf_config c = { .family = SHEAF_LLAMA,
                                 .layers = types[i].layers,
                                 .heads = 8,
                                 .kv_heads = 8,
                                 .num_experts = types[i].experts };
        const sheaf__gguf_type got = sheaf__gguf_type_for(SHEAF__GGUF_FILE_Q4_K_M, types[i].name, 2,
                                                          types[i].columns, &c, true);
        if (got != types[i].want)
            fail_msg("%s, %d columns: %s", types[i].name, (int)types[i].columns,
                     sheaf__gguf_type_at(got)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files__are_those_of_the_gguf_package),
        cmocka_unit_test(test_targets__that_are_there_stay),
        cmocka_unit_test(test_requests__that_have_no_meaning_are_refused),
        cmocka_unit_test(test_keys__of_a_sentencepiece_tokenizer_are_the_recorded_ones),
        cmocka_unit_test(test_names__go_there_and_back),
        cmocka_unit_test(test_types__of_q4_k_m_follow_layers_and_columns),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
