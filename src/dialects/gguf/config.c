/* config.c - a GGUF file's keys as a config.json; see read.h.
 *
 * Keys are llama.cpp's, ARCHITECTURE.name; what a key does not say, and llama.cpp has in its code,
 * is what the family's class has where its config says nothing. */
#include "dialects/gguf/read.h"

#include <math.h>

#include "base/json_write.h"

typedef struct making {
    const sheaf__gguf *file;
    const char *architecture;
    const sheaf__gguf_form *form;
    sheaf_json_writer json;
    sheaf_status *st;
} making;

static const sheaf__gguf_key *find(const making *m, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "%.40s.%s", m->architecture, name);
    return sheaf__gguf_find(m->file, key);
}

static void refuse(making *m, const char *name, const char *expected)
{
    if (m->st == NULL)
        m->st = sheaf_expected(
            sheaf_fail(SHEAF_E_UNSUPPORTED, "key '%s.%s'", m->architecture, name), "%s", expected);
}

enum { NEEDED = -1 };

/* A whole number, or the same one for every layer. `absent`: where there is no such key. */
static int64_t integer(making *m, const char *name, int64_t absent)
{
    const sheaf__gguf_key *key = find(m, name);
    bool ok = key == NULL || key->count > 0;
    if (key == NULL && absent == NEEDED)
        refuse(m, name, "a whole number; there is no such key");
    if (key == NULL)
        return absent;
    const int64_t value = sheaf__gguf_integer(key, 0, &ok);
    for (int64_t i = 1; ok && i < key->count; i++)
        ok = sheaf__gguf_integer(key, i, &ok) == value;
    if (!ok || value < 0 || value > INT32_MAX)
        refuse(m, name, "a whole number, the same for all layers");
    return value;
}

/* A float32 as the shortest decimal that gives it back, as configs have such numbers: 1e-05. */
static double decimal(double value)
{
    char text[40];
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if ((float)strtod(text, NULL) == (float)value)
            return strtod(text, NULL);
    }
    return value;
}

static double real(making *m, const char *name, double absent)
{
    const sheaf__gguf_key *key = find(m, name);
    bool ok = true;
    const double value = key == NULL ? absent : sheaf__gguf_number(key, 0, &ok);
    if (!ok || !isfinite(value))
        refuse(m, name, "a finite number");
    return key != NULL && key->type == SHEAF__GGUF_F32 ? decimal(value) : value;
}

static bool has(const making *m, const char *tensor)
{
    return sheaf__gguf_tensor_named(m->file, tensor) != NULL;
}

/* ---- which model ---- */

/* Can the family have all tensors of the file? */
static bool fits(const sheaf__family *family, const sheaf__gguf *file, const char *architecture,
                 bool experts)
{
    const sheaf__gguf_form *form = family->gguf;
    char name[SHEAF__SPELLED];
    if (form == NULL || family->form == NULL || strcmp(form->architecture, architecture) != 0 ||
        (form->experts != NULL) != experts)
        return false;
    for (int64_t i = 0; i < file->ntensors; i++) {
        const char *there = file->tensor[i].name;
        if (strncmp(there, "rope_", 5) != 0 && !sheaf__gguf_name_back(name, form, there, -1) &&
            !sheaf__gguf_name_back(name, form, there, 0))
            return false;
    }
    return true;
}

static const sheaf__family *family_of(const sheaf__gguf *file, const char *architecture)
{
    char key[128];
    snprintf(key, sizeof key, "%.40s.expert_count", architecture);
    bool ok = true;
    const bool experts = sheaf__gguf_integer(sheaf__gguf_find(file, key), 0, &ok) > 0 && ok;
    const sheaf__family *family, *first = NULL;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++) {
        if (fits(family, file, architecture, experts))
            return family;
        if (first == NULL && family->gguf != NULL && family->form != NULL &&
            strcmp(family->gguf->architecture, architecture) == 0)
            first = family; /* verify says which tensors it lacks or has too many */
    }
    return first;
}

static sheaf_status *unknown(const char *architecture)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "general.architecture");
    sheaf_expected(st, "llama, qwen2, qwen3, qwen3moe, smollm3, olmo2, phi3, gemma, gemma2, "
                       "gemma3, chatglm or glm4");
    if (architecture == NULL)
        sheaf_found(st, "no such key");
    else if (strcmp(architecture, "clip") == 0)
        sheaf_found(st, "'clip', a tower for pictures, which llama.cpp takes beside a model by "
                        "--mmproj");
    else
        sheaf_found(st, "'%.60s'", architecture);
    return sheaf_try_this(st, "the Hugging Face form of this model");
}

/* An adapter, a projector, a vocabulary. */
static sheaf_status *no_model(const char *type)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "general.type");
    sheaf_found(sheaf_expected(st, "model: no others are read"), "%.60s", type);
    return strcmp(type, "adapter") == 0 ? sheaf_try_this(st, "the PEFT folder of this adapter")
                                        : st;
}

/* ---- rotary embedding ---- */

/* The numbers of a tensor of factors; 0: there is none, or it is none of them. */
static int64_t factors_of(making *m, float *out, const char *name)
{
    const sheaf__gguf_tensor *t = sheaf__gguf_tensor_named(m->file, name);
    if (t == NULL || m->st != NULL)
        return 0;
    if (t->type != SHEAF__GGML_F32 || t->ndim != 1 || t->shape[0] > SHEAF_MAX_ROPE_PAIRS) {
        m->st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", name),
                               "at most %d numbers of type f32", SHEAF_MAX_ROPE_PAIRS);
        return 0;
    }
    m->st = sheaf__file_read_at(m->file->fd, out, (size_t)t->bytes, t->offset, m->file->path);
    return t->shape[0];
}

static void put_list(making *m, const char *key, const float *value, int64_t count)
{
    sheaf__json_open(&m->json, key, '[');
    for (int64_t i = 0; i < count; i++)
        sheaf__json_put_real(&m->json, NULL, decimal((double)value[i]));
    sheaf__json_close(&m->json, ']');
}

/* Llama 3's rule gives these factors, within float32's roundings, of a context of which length, by
 * published models' other numbers? 0: it does not. */
static int64_t llama3_length(const float *value, int64_t count, double theta)
{
    float most = 1, made[SHEAF_MAX_ROPE_PAIRS];
    const char *name;
    sheaf_config c = { .head_dim = 2 * count };
    for (int64_t i = 0; i < count; i++)
        most = value[i] > most ? value[i] : most;
    c.rope.type = SHEAF_ROPE_LLAMA3;
    c.rope.theta = theta;
    c.rope.partial = 1;
    c.rope.factor = decimal((double)most);
    c.rope.low_freq_factor = 1;
    c.rope.high_freq_factor = 4;
    for (c.rope.original_length = 16; c.rope.original_length <= 1 << 20;
         c.rope.original_length *= 2) {
        bool same = sheaf__gguf_rope_factors(made, &name, &c, 0) == count;
        for (int64_t i = 0; i < count && same; i++)
            same = fabsf(made[i] - value[i]) <= 1e-5f * value[i];
        if (same)
            return c.rope.original_length;
    }
    return 0;
}

static void put_llama3(making *m, double factor, int64_t length)
{
    sheaf__json_open(&m->json, "rope_scaling", '{');
    sheaf__json_put_text(&m->json, "rope_type", "llama3");
    sheaf__json_put_real(&m->json, "factor", factor);
    sheaf__json_put_real(&m->json, "low_freq_factor", 1);
    sheaf__json_put_real(&m->json, "high_freq_factor", 4);
    sheaf__json_put_int(&m->json, "original_max_position_embeddings", length);
    sheaf__json_close(&m->json, '}');
}

/* Factors of each pair: by Llama 3's rule, or as they are. */
static void put_factors(making *m, double theta, int64_t length)
{
    float one[SHEAF_MAX_ROPE_PAIRS], other[SHEAF_MAX_ROPE_PAIRS];
    int64_t count = factors_of(m, one, "rope_freqs.weight");
    if (count > 0) {
        const int64_t original = llama3_length(one, count, theta);
        double most = 1;
        for (int64_t i = 0; i < count; i++)
            most = (double)one[i] > most ? (double)one[i] : most;
        if (original > 0 && most > 1)
            put_llama3(m, decimal(most), original);
        if (original > 0 || most == 1)
            return;
        memcpy(other, one, sizeof one);
    } else {
        count = factors_of(m, one, "rope_factors_long.weight");
        if (count == 0 || factors_of(m, other, "rope_factors_short.weight") != count)
            return;
    }
    const double attention = real(m, "rope.scaling.attn_factor", 1);
    sheaf__json_put_int(&m->json, "original_max_position_embeddings",
                        integer(m, "rope.scaling.original_context_length", length));
    sheaf__json_open(&m->json, "rope_scaling", '{');
    sheaf__json_put_text(&m->json, "rope_type", "longrope");
    sheaf__json_put_real(&m->json, "attention_factor", attention);
    put_list(m, "long_factor", one, count);
    put_list(m, "short_factor", other, count);
    sheaf__json_close(&m->json, '}');
}

static void put_rope(making *m, int64_t head_dim, int64_t length)
{
    const double theta = real(m, "rope.freq_base", 10000);
    const int64_t turned = integer(m, "rope.dimension_count", head_dim);
    char *type = sheaf__gguf_string(find(m, "rope.scaling.type"));
    sheaf__json_put_real(&m->json, "rope_theta", theta);
    if (find(m, "rope.freq_base_swa") != NULL)
        sheaf__json_put_real(&m->json, "rope_local_base_freq", real(m, "rope.freq_base_swa", 0));
    if (turned != head_dim && head_dim > 0)
        sheaf__json_put_real(&m->json, "partial_rotary_factor", (double)turned / (double)head_dim);
    const bool yarn = type != NULL && strcmp(type, "yarn") == 0;
    if (yarn || (type != NULL && strcmp(type, "linear") == 0)) {
        sheaf__json_open(&m->json, "rope_scaling", '{');
        sheaf__json_put_text(&m->json, "rope_type", type);
        sheaf__json_put_real(&m->json, "factor", real(m, "rope.scaling.factor", 1));
        if (yarn)
            sheaf__json_put_int(&m->json, "original_max_position_embeddings",
                                integer(m, "rope.scaling.original_context_length", length));
        if (yarn && find(m, "rope.scaling.yarn_attn_factor") != NULL)
            sheaf__json_put_real(&m->json, "attention_factor",
                                 real(m, "rope.scaling.yarn_attn_factor", 1));
        if (yarn && find(m, "rope.scaling.yarn_beta_fast") != NULL)
            sheaf__json_put_real(&m->json, "beta_fast", real(m, "rope.scaling.yarn_beta_fast", 32));
        if (yarn && find(m, "rope.scaling.yarn_beta_slow") != NULL)
            sheaf__json_put_real(&m->json, "beta_slow", real(m, "rope.scaling.yarn_beta_slow", 1));
        sheaf__json_close(&m->json, '}');
    } else if (type != NULL && strcmp(type, "none") != 0 && strcmp(type, "longrope") != 0)
        refuse(m, "rope.scaling.type", "none, linear, yarn or longrope");
    else
        put_factors(m, theta, length);
    free(type);
}

/* ---- all keys ---- */

static void put_id(making *m, const char *to, const char *key)
{
    bool ok = true;
    const int64_t id = sheaf__gguf_integer(sheaf__gguf_find(m->file, key), 0, &ok);
    if (!ok)
        sheaf__json_put_text(&m->json, to, NULL);
    else
        sheaf__json_put_int(&m->json, to, id);
}

/* Tokens that end an answer: eos, and the end of a turn. */
static void put_ends(making *m)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id" };
    int64_t id[2];
    int n = 0;
    for (int i = 0; i < 2; i++) {
        bool ok = true;
        id[n] = sheaf__gguf_integer(sheaf__gguf_find(m->file, keys[i]), 0, &ok);
        n += ok && (n == 0 || id[0] != id[n]);
    }
    if (n < 2) {
        if (n == 1)
            sheaf__json_put_int(&m->json, "eos_token_id", id[0]);
        else
            sheaf__json_put_text(&m->json, "eos_token_id", NULL);
        return;
    }
    sheaf__json_open(&m->json, "eos_token_id", '[');
    for (int i = 0; i < n; i++)
        sheaf__json_put_int(&m->json, NULL, id[i]);
    sheaf__json_close(&m->json, ']');
}

/* Of `sizes` hidden, layers, heads and head_dim count. */
static void put_gemma(making *m, const sheaf_config *sizes)
{
    sheaf__json_put_text(&m->json, "hidden_activation", "gelu_pytorch_tanh");
    if (m->form->every_full == 0) /* the first one */
        return;
    sheaf__json_put_real(&m->json, "query_pre_attn_scalar", sheaf__gguf_query_scalar(sizes));
    static const char *const caps[] = { "attn_logit_softcapping", "final_logit_softcapping" };
    for (int i = 0; i < 2; i++)
        if (find(m, caps[i]) != NULL)
            sheaf__json_put_real(&m->json, caps[i], real(m, caps[i], 0));
        else
            sheaf__json_put_text(&m->json, caps[i], NULL);
}

static void put_experts(making *m)
{
    const bool sized = find(m, "expert_feed_forward_length") != NULL;
    sheaf__json_put_int(&m->json, "num_local_experts", integer(m, "expert_count", NEEDED));
    sheaf__json_put_int(&m->json, "num_experts_per_tok", integer(m, "expert_used_count", NEEDED));
    if (strcmp(m->architecture, "llama") == 0)
        return;
    sheaf__json_put_int(
        &m->json, "moe_intermediate_size",
        integer(m, sized ? "expert_feed_forward_length" : "feed_forward_length", NEEDED));
    sheaf__json_put_bool(&m->json, "norm_topk_prob", true);
}

static void put_window(making *m)
{
    const unsigned any = SHEAF__GGUF_WINDOW | SHEAF__GGUF_WINDOW_OR_0;
    const int64_t window =
        (m->form->keys & any) != 0 ? integer(m, "attention.sliding_window", 0) : 0;
    if (window > 0)
        sheaf__json_put_int(&m->json, "sliding_window", window);
    else /* none, whatever a class has */
        sheaf__json_put_text(&m->json, "sliding_window", NULL);
}

/* Of the rotary embedding ChatGLM's config can say its base alone. */
static void refuse_other_angles(making *m, int64_t head_dim)
{
    char *type = sheaf__gguf_string(find(m, "rope.scaling.type"));
    if (integer(m, "rope.dimension_count", head_dim / 2) != head_dim / 2)
        refuse(m, "rope.dimension_count", "half the width of a head");
    if (type != NULL && strcmp(type, "none") != 0)
        refuse(m, "rope.scaling.type", "none");
    for (int64_t i = 0; i < m->file->ntensors && m->st == NULL; i++)
        if (strncmp(m->file->tensor[i].name, "rope_", 5) == 0)
            m->st = sheaf_expected(
                sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%.80s'", m->file->tensor[i].name),
                "no factors of the rotary embedding in a %s", m->architecture);
    free(type);
}

/* The keys that put_all() leaves to the family: those of ChatGLM. c: what it has read. */
static void put_chatglm(making *m, const sheaf_config *c, int64_t rows, int64_t length)
{
    sheaf__json_put(&m->json,
                    "padded_vocab_size:d num_attention_heads:d kv_channels:d seq_length:d", rows,
                    c->heads, c->head_dim, length);
    sheaf__json_put_int(&m->json, "ffn_hidden_size", integer(m, "feed_forward_length", NEEDED));
    sheaf__json_put_int(&m->json, "num_layers", c->layers);
    sheaf__json_put_bool(&m->json, "multi_query_attention", true);
    sheaf__json_put_int(&m->json, "multi_query_group_num",
                        integer(m, "attention.head_count_kv", NEEDED));
    sheaf__json_put_real(&m->json, "layernorm_epsilon",
                         real(m, "attention.layer_norm_rms_epsilon", 1e-5));
    sheaf__json_put_bool(&m->json, "add_qkv_bias", has(m, "blk.0.attn_qkv.bias"));
    sheaf__json_put_real(&m->json, "rope_ratio", real(m, "rope.freq_base", 10000) / 10000);
    refuse_other_angles(m, c->head_dim);
}

/* And those of all other families. */
static void put_others(making *m, const sheaf_config *c, int64_t length)
{
    sheaf_json_writer *j = &m->json;
    sheaf__json_put_int(j, "intermediate_size", integer(m, "feed_forward_length", NEEDED));
    sheaf__json_put_int(j, "num_hidden_layers", c->layers);
    sheaf__json_put_int(j, "num_attention_heads", c->heads);
    sheaf__json_put_int(j, "num_key_value_heads", integer(m, "attention.head_count_kv", c->heads));
    sheaf__json_put_int(j, "head_dim", c->head_dim);
    sheaf__json_put_int(j, "max_position_embeddings", length);
    sheaf__json_put_real(j, "rms_norm_eps", real(m, "attention.layer_norm_rms_epsilon", 1e-6));
    sheaf__json_put_bool(j, "attention_bias",
                         has(m, "blk.0.attn_q.bias") || has(m, "blk.0.attn_qkv.bias"));
    if (has(m, "blk.0.ffn_up.bias"))
        sheaf__json_put_bool(j, "mlp_bias", true);
    sheaf__json_put_bool(j, "tie_word_embeddings", !has(m, "output.weight"));
    put_rope(m, c->head_dim, length);
    put_window(m);
    if (m->form->norms_plus_one)
        put_gemma(m, c);
    else
        sheaf__json_put_text(j, "hidden_act", "silu");
    if (m->form->experts != NULL)
        put_experts(m);
}

static void put_all(making *m, const sheaf__family *family, sheaf_dtype dtype)
{
    const sheaf__gguf_tensor *table = sheaf__gguf_tensor_named(m->file, "token_embd.weight");
    const bool chatglm = (m->form->keys & SHEAF__GGUF_CHATGLM) != 0;
    const int64_t rows = table != NULL && table->ndim == 2 ? table->shape[0] : NEEDED;
    sheaf_config c = { .hidden = integer(m, "embedding_length", NEEDED) };
    c.layers = integer(m, "block_count", NEEDED);
    c.heads = integer(m, "attention.head_count", NEEDED);
    const int64_t length = integer(m, "context_length", NEEDED);
    c.head_dim = integer(m, "attention.key_length", c.heads > 0 ? c.hidden / c.heads : 0);
    sheaf_json_writer *j = &m->json;
    if (integer(m, "attention.value_length", c.head_dim) != c.head_dim)
        refuse(m, "attention.value_length", "the width of a key");
    sheaf__json_begin(j);
    sheaf__json_open(j, "architectures", '[');
    sheaf__json_put_text(j, NULL, chatglm ? "ChatGLMModel" : family->architecture);
    sheaf__json_close(j, ']');
    sheaf__json_put_text(j, "model_type", family->name);
    sheaf__json_put_text(j, "dtype", sheaf_dtype_torch_name(dtype));
    sheaf__json_put_int(j, "vocab_size", integer(m, "vocab_size", rows));
    sheaf__json_put_int(j, "hidden_size", c.hidden);
    if (chatglm)
        put_chatglm(m, &c, rows, length);
    else
        put_others(m, &c, length);
    put_id(m, "bos_token_id", "tokenizer.ggml.bos_token_id");
    put_ends(m);
    put_id(m, "pad_token_id", "tokenizer.ggml.padding_token_id");
    sheaf__json_end(j);
}

sheaf_status *sheaf__gguf_config(char **out, const sheaf__family **family, const sheaf__gguf *file,
                                 sheaf_dtype dtype)
{
    making m = { .file = file };
    char *architecture = sheaf__gguf_string(sheaf__gguf_find(file, "general.architecture")),
         *type = sheaf__gguf_string(sheaf__gguf_find(file, "general.type"));
    const bool model = type == NULL || strcmp(type, "model") == 0;
    *family = architecture != NULL && model ? family_of(file, architecture) : NULL;
    if (*family == NULL) {
        m.st = model ? unknown(architecture) : no_model(type);
    } else {
        m.architecture = architecture;
        m.form = (*family)->gguf;
        put_all(&m, *family, dtype);
    }
    if (m.st == NULL)
        m.st = sheaf__text_take(out, &m.json.text);
    sheaf__text_release(&m.json.text);
    free(architecture);
    free(type);
    return m.st;
}
