/* read_test.c - GGUF files as models: rows, norms and experts in their places, and keys and tensors
 * that are wrong in every way. What llama.cpp computes from its own files: parity/gguf. */
#include "tests/files.h"

#include "dialects/gguf/read.h"
#include "dialects/open.h"
#include "ops/math/round.h"
#include "ops/quant/ggml.h"

/* A file of one layer: hidden 32, 2 heads of 16 (1 for keys and values), MLP 32, vocabulary 32. */
typedef struct change {
    const char *architecture; /* NULL: "llama" */
    const char *key;          /* left out, or written with `value` */
    int64_t value;            /* -1: left out */
    const char *drop;         /* a tensor that is not there */
    const char *add;          /* one of [32] more */
    sheaf__gguf_type added;   /* its type */
    const char *narrow;       /* a tensor with one row less */
    sheaf__gguf_type type;    /* of matrices */
    bool uneven;              /* a norm has a number that is none of 16 bits */
    const char *kind;         /* general.type */
    int64_t experts;          /* keys of a mixture; 0: none */
    sheaf__gguf_spec empty;   /* a tensor more, without numbers */
} change;

static const struct {
    const char *name;
    int64_t rows; /* 0: one axis, a norm */
} tensors[] = {
    { "token_embd.weight", 32 },    { "blk.0.attn_norm.weight", 0 },
    { "blk.0.attn_q.weight", 32 },  { "blk.0.attn_k.weight", 16 },
    { "blk.0.attn_v.weight", 16 },  { "blk.0.attn_output.weight", 32 },
    { "blk.0.ffn_norm.weight", 0 }, { "blk.0.ffn_gate.weight", 32 },
    { "blk.0.ffn_up.weight", 32 },  { "blk.0.ffn_down.weight", 32 },
    { "output_norm.weight", 0 },    { "output.weight", 32 },
};
enum { TENSORS = sizeof tensors / sizeof *tensors, WIDTH = 32 };

static const struct {
    const char *name;
    int64_t value;
} keys[] = {
    { "block_count", 1 },          { "context_length", 64 },      { "embedding_length", WIDTH },
    { "feed_forward_length", 32 }, { "attention.head_count", 2 }, { "attention.head_count_kv", 1 },
};

/* Of row r, column c. */
static float number_at(int64_t r, int64_t c)
{
    return (float)(r * 8 + c % 8) / 16;
}

static void put_keys(sheaf__gguf_keys *to, const change *how)
{
    const char *architecture = how->architecture != NULL ? how->architecture : "llama";
    char name[100];
    sheaf__gguf_put_text(to, "general.architecture", architecture);
    if (how->kind != NULL)
        sheaf__gguf_put_text(to, "general.type", how->kind);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const bool is = how->key != NULL && strcmp(how->key, keys[i].name) == 0;
        snprintf(name, sizeof name, "%s.%s", architecture, keys[i].name);
        if (!is)
            sheaf__gguf_put_u32(to, name, keys[i].value);
        else if (how->value >= 0)
            sheaf__gguf_put_u32(to, name, how->value);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", architecture);
    sheaf__gguf_put_f32(to, name, 1e-5);
    for (int i = 0; i < 2 && how->experts > 0; i++) {
        snprintf(name, sizeof name, "%s.%s", architecture,
                 i == 0 ? "expert_count" : "expert_used_count");
        sheaf__gguf_put_u32(to, name, how->experts);
    }
    if (how->key != NULL && strncmp(how->key, "split", 5) == 0)
        sheaf__gguf_put_u32(to, how->key, how->value);
    snprintf(name, sizeof name, "%s.%s", architecture, how->key != NULL ? how->key : "");
    if (how->key != NULL && strncmp(how->key, "rope", 4) == 0)
        sheaf__gguf_put_text(to, name, "su");
    if (how->key != NULL && strcmp(how->key, "attention.value_length") == 0)
        sheaf__gguf_put_u32(to, name, how->value);
}

/* tensors[i] as the file has it, q, k and v in one by ChatGLM's names; NULL: it does not. */
static const char *name_of(const change *how, int i)
{
    const char *name = tensors[i].name;
    if (how->drop != NULL && strcmp(how->drop, name) == 0)
        return NULL;
    if (how->architecture == NULL || strcmp(how->architecture, "chatglm") != 0)
        return name;
    if (sheaf__ends_with(name, "_q.weight"))
        return "blk.0.attn_qkv.weight";
    return sheaf__ends_with(name, "_k.weight") || sheaf__ends_with(name, "_v.weight") ||
                   sheaf__ends_with(name, "_gate.weight")
               ? NULL
               : name;
}

static const char *make(const change *how)
{
    sheaf__gguf_keys to = { 0 };
    sheaf__gguf_spec specs[TENSORS + 2];
    sheaf__fill_file w;
    const char *path = at("model.gguf");
    float x[33 * WIDTH];
    char bytes[sizeof x];
    int n = 0;
    remove(path);
    put_keys(&to, how);
    for (int i = 0; i < TENSORS; i++) {
        const bool is = how->narrow != NULL && strcmp(how->narrow, tensors[i].name) == 0;
        const char *name = name_of(how, i);
        if (name == NULL)
            continue;
        specs[n++] =
            tensors[i].rows == 0
                ? (sheaf__gguf_spec){ name, SHEAF__GGML_F32, 1, { WIDTH - is } }
                : (sheaf__gguf_spec){ name, how->type, 2, { tensors[i].rows - is, WIDTH } };
    }
    if (how->add != NULL)
        specs[n++] = (sheaf__gguf_spec){ how->add, how->added, 1, { WIDTH } };
    if (how->empty.name != NULL)
        specs[n++] = how->empty;
    CHECK_OK(sheaf__gguf_begin(&w, path, &to, specs, n));
    for (int i = 0; i < n; i++) {
        const bool one = specs[i].ndim == 1;
        const int64_t count = specs[i].name == how->empty.name ? 0
                              : one                            ? specs[i].shape[0]
                                                               : specs[i].shape[0] * WIDTH;
        const int64_t block = sheaf__gguf_type_block(specs[i].type);
        for (int64_t k = 0; k < count; k++)
            x[k] = one ? 1 + (float)k / 64 : number_at(k / WIDTH, k);
        if (one && how->uneven)
            x[3] = 1.0001f;
        sheaf__ggml_blocks(bytes, x, specs[i].type, count);
        CHECK_OK(sheaf__fill_write(&w, i, 0, bytes,
                                   count / block * sheaf__gguf_type_bytes(specs[i].type)));
    }
    CHECK_OK(sheaf__fill_finish(&w, NULL));
    sheaf__gguf_keys_release(&to);
    return path;
}

/* ---- values ---- */

static sheaf_source *source_of(const change *how)
{
    sheaf_source *source = NULL;
    CHECK_OK(sheaf__open_source(&source, make(how), NULL));
    return source;
}

/* Row 2 i + j of a head is row i + 8 j of 16, whatever the type; a box in the middle too. */
TEST(test_read__rows_of_q_and_k_are_turned_back)
{
    static const sheaf__gguf_type types[] = { SHEAF__GGML_F32, SHEAF__GGML_BF16, SHEAF__GGML_F16 };
    static const char *const names[] = { "model.layers.0.self_attn.q_proj.weight",
                                         "model.layers.0.self_attn.k_proj.weight",
                                         "model.layers.0.self_attn.v_proj.weight" };
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        sheaf_source *source = source_of(&(change){ .type = types[k] });
        for (int which = 0; which < 3; which++) {
            const sheaf_source_entry *e = source->find(source, names[which]);
            char raw[4 * WIDTH * WIDTH];
            assert_non_null(e);
            assert_int_equal(e->dtype, sheaf__gguf_type_at(types[k])->dtype);
            for (int64_t r = 0; r < e->shape[0]; r++) {
                const int64_t head = r / 16, in = r % 16,
                              from = which == 2 ? r : head * 16 + in % 8 * 2 + in / 8;
                CHECK_OK(source->read(source, names[which], r, 1, 5, 20, raw));
                for (int64_t c = 0; c < 20; c++)
                    assert_true(sheaf__load(raw, c, e->dtype) == number_at(from, c + 5));
            }
        }
        source->close(source);
    }
}

TEST(test_read__blocks_are_dequantised_and_turned_back)
{
    sheaf_source *source = source_of(&(change){ .type = SHEAF__GGML_Q8_0 });
    char blocks[34 * WIDTH];
    float x[WIDTH * WIDTH], want[WIDTH * WIDTH], got[WIDTH * WIDTH];
    for (int64_t k = 0; k < WIDTH * WIDTH; k++)
        x[k] = number_at(k / WIDTH, k);
    sheaf__ggml_blocks(blocks, x, SHEAF__GGML_Q8_0, WIDTH * WIDTH);
    sheaf__ggml_values(want, blocks, SHEAF__GGML_Q8_0, WIDTH * WIDTH);
    CHECK_OK(
        source->read(source, "model.layers.0.self_attn.q_proj.weight", 0, WIDTH, 0, WIDTH, got));
    for (int64_t r = 0; r < WIDTH; r++)
        CHECK_BYTES("a row", got + r * WIDTH, want + (r / 16 * 16 + r % 8 * 2 + r % 16 / 8) * WIDTH,
                    WIDTH * sizeof *got);
    CHECK_OK(source->read(source, "model.layers.0.mlp.down_proj.weight", 7, 3, 9, 11, got));
    for (int64_t r = 0; r < 3; r++)
        CHECK_BYTES("a box", got + r * 11, want + (7 + r) * WIDTH + 9, 11 * sizeof *got);
    source->close(source);
}

/* Norms are of 16 bits beside such matrices, all of them or none. */
TEST(test_read__norms_have_the_models_type_where_they_fit)
{
    static const char name[] = "model.norm.weight";
    const struct {
        sheaf__gguf_type type;
        bool uneven;
        sheaf_dtype want;
    } rows[] = { { SHEAF__GGML_BF16, false, SHEAF_BF16 }, { SHEAF__GGML_BF16, true, SHEAF_F32 },
                 { SHEAF__GGML_F16, false, SHEAF_F16 },   { SHEAF__GGML_F16, true, SHEAF_F32 },
                 { SHEAF__GGML_F32, false, SHEAF_F32 },   { SHEAF__GGML_Q8_0, false, SHEAF_F32 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_source *source =
            source_of(&(change){ .type = rows[i].type, .uneven = rows[i].uneven });
        char raw[4 * WIDTH];
        assert_int_equal(source->find(source, name)->dtype, rows[i].want);
        CHECK_OK(source->read(source, name, 0, WIDTH, 0, 1, raw));
        for (int64_t c = 0; c < WIDTH; c++)
            assert_true(sheaf__load(raw, c, rows[i].want) ==
                        (c == 3 && rows[i].uneven ? 1.0001f : 1 + (float)c / 64));
        source->close(source);
    }
}

/* Gemma's norms are one more in the file. */
TEST(test_read__one_is_taken_from_gemmas_norms)
{
    sheaf_source *source = source_of(
        &(change){ .architecture = "gemma", .type = SHEAF__GGML_BF16, .drop = "output.weight" });
    char raw[4 * WIDTH];
    const sheaf_source_entry *e = source->find(source, "model.norm.weight");
    CHECK_OK(source->read(source, e->name, 0, WIDTH, 0, 1, raw));
    assert_int_equal(e->dtype, SHEAF_BF16);
    for (int64_t c = 0; c < WIDTH; c++)
        assert_true(sheaf__load(raw, c, e->dtype) == (float)c / 64);
    source->close(source);
}

/* ---- what is wrong ---- */

TEST(test_read__what_is_wrong_is_said)
{
    static const struct {
        change how;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { { .architecture = "rwkv7" }, SHEAF_E_UNSUPPORTED, "llama, qwen2, qwen3" },
        { { .kind = "adapter" }, SHEAF_E_UNSUPPORTED, "the PEFT folder of this adapter" },
        { { .kind = "mmproj" },
          SHEAF_E_UNSUPPORTED,
          "model: no others are read | general.type: mmproj" },
        { { .key = "embedding_length", .value = -1 }, SHEAF_E_UNSUPPORTED, "embedding_length" },
        { { .key = "embedding_length", .value = 48 }, SHEAF_E_LAYOUT, "shape" },
        { { .key = "block_count", .value = 0 }, SHEAF_E_FORMAT, "num_hidden_layers" },
        { { .key = "block_count", .value = 2 },
          SHEAF_E_LAYOUT,
          "model.layers.1.input_layernorm.weight" },
        { { .key = "attention.head_count", .value = 0 }, SHEAF_E_FORMAT, "num_attention_heads" },
        { { .key = "attention.head_count_kv", .value = 3 }, SHEAF_E_LAYOUT, "num_key_value_heads" },
        { { .key = "rope.scaling.type" }, SHEAF_E_UNSUPPORTED, "none, linear, yarn or longrope" },
        { { .key = "attention.value_length", .value = 8 },
          SHEAF_E_UNSUPPORTED,
          "the width of a key" },
        { { .architecture = "chatglm", .key = "attention.value_length", .value = 8 },
          SHEAF_E_UNSUPPORTED,
          "the width of a key" },
        { { .architecture = "chatglm", .key = "rope.scaling.type" },
          SHEAF_E_UNSUPPORTED,
          "none | key 'chatglm.rope.scaling.type'" },
        { { .architecture = "chatglm", .add = "rope_freqs.weight" },
          SHEAF_E_UNSUPPORTED,
          "no factors of the rotary embedding" },
        { { .architecture = "chatglm", .add = "rope_factors_long.weight" },
          SHEAF_E_UNSUPPORTED,
          "no factors of the rotary embedding" },
        { { .key = "split.count", .value = 3 }, SHEAF_E_UNSUPPORTED, "one of 3" },
        { { .drop = "blk.0.ffn_up.weight" }, SHEAF_E_LAYOUT, "mlp.up_proj.weight" },
        { { .add = "blk.0.unknown.weight" }, SHEAF_E_LAYOUT, "blk.0.unknown.weight" },
        { { .add = "blk.1.attn_norm.weight" },
          SHEAF_E_LAYOUT,
          "model.layers.1.input_layernorm.weight" },
        /* rows of q are in another order, and a block holds 32 of this one */
        { { .add = "blk.0.attn_q.bias", .added = SHEAF__GGML_Q8_0 },
          SHEAF_E_UNSUPPORTED,
          "no biases in blocks" },
        { { .narrow = "blk.0.attn_q.weight" }, SHEAF_E_LAYOUT, "self_attn.q_proj.weight" },
        { { .narrow = "blk.0.ffn_norm.weight" }, SHEAF_E_LAYOUT, "post_attention_layernorm" },
        /* without numbers a tensor may claim any number of them */
        { { .experts = 4,
            .empty = { "blk.0.ffn_gate_exps.weight", SHEAF__GGML_F32, 3, { INT64_C(1) << 62 } } },
          SHEAF_E_LAYOUT,
          "tensor 'blk.0.ffn_gate_exps.weight': 4611686018427387904" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_source *source = NULL;
        sheaf_status *st = sheaf__open_source(&source, make(&rows[i].how), NULL);
        if (st == NULL)
            fail_msg("row %zu was read: %s", i, rows[i].part);
        CHECK_FAILS(st, rows[i].code, rows[i].part);
    }
}

/* With --config another says what the model is; names still go by the file's architecture. */
TEST(test_read__a_config_that_is_given_counts)
{
    sheaf_catalog *c = NULL;
    const char *path = make(&(change){ .type = SHEAF__GGML_BF16 });
    put(at("config.json"), "{\"model_type\": \"rwkv\"}");
    CHECK_OK(sheaf__open(&c, path, &(sheaf_dialect_hints){ .config = at("config.json") }));
    assert_non_null(sheaf__catalog_find(c, "model.layers.0.self_attn.q_proj.weight"));
    assert_non_null(strstr(c->config, "rwkv"));
    sheaf__catalog_free(c);
}

FIXTURE(make_scratch, remove_scratch);
