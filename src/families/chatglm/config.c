/* config.c - ChatGLM's keys of config.json, as configuration_chatglm.py of GLM-4 has them; defaults
 * are those of its class. With "vision_config" it is GLM-4V-9B or CogAgent-9B. */
#include "base/base.h"
#include "families/chatglm/chatglm.h"
#include "families/common/eva_config.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_HEADS = 1 << 16,
    MOST_WIDTH = 1 << 24,
    MOST_VOCAB = INT32_MAX,
};

/* ---- the lists ---- */

static const char own_keys[] =
    "add_bias_linear add_qkv_bias apply_query_key_layer_scaling "
    "apply_residual_connection_post_layernorm attention_softmax_in_fp32 bias_dropout_fusion "
    "boi_token_id classifier_dropout eoi_token_id ffn_hidden_size fp32_residual_connection "
    "interleaved_qkv kv_channels layernorm_epsilon multi_query_attention multi_query_group_num "
    "num_layers original_rope padded_vocab_size post_layer_norm pre_seq_len prefix_projection "
    "quantization_bit rmsnorm rope_ratio seq_length vision_config";

/* Switches of the class, and what this program computes. */
static const struct {
    const char *key;
    bool absent, wanted;
} switches[] = {
    { "add_bias_linear", false, false },
    { "apply_residual_connection_post_layernorm", false, false },
    { "fp32_residual_connection", false, false },
    { "interleaved_qkv", false, false },
    { "original_rope", true, true },
    { "post_layer_norm", true, true },
    { "prefix_projection", false, false },
    { "rmsnorm", true, true },
    { "tie_word_embeddings", false, false },
};

/* ---- the text model ---- */

bool sheaf__chatglm_claims(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    const char *name =
        json_string_value(json_array_get(json_object_get(object, "architectures"), 0));
    return type != NULL ? strcmp(type, SHEAF__CHATGLM_NAME) == 0
                        : name != NULL && strncmp(name, "ChatGLM", 7) == 0;
}

static void check_switches(sheaf_json_reader *r)
{
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (sheaf__json_bool(r, switches[i].key, switches[i].absent) != switches[i].wanted)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, switches[i].key, "%s",
                             switches[i].wanted ? "true" : "false, or no such key");
    if (sheaf__json_int(r, "pre_seq_len", 0, INT32_MAX, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "pre_seq_len", "0 or null: it adds a prefix");
    if (sheaf__json_int(r, "quantization_bit", 0, INT32_MAX, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "quantization_bit", "0, or no such key");
}

static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    c->vocab = sheaf__json_int(r, "padded_vocab_size", 1, MOST_VOCAB, SHEAF_JSON_NEEDED);
    c->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->ffn = sheaf__json_int(r, "ffn_hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->layers = sheaf__json_int(r, "num_layers", 1, SHEAF_MAX_LAYERS, SHEAF_JSON_NEEDED);
    c->heads = sheaf__json_int(r, "num_attention_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    c->head_dim = sheaf__json_int(r, "kv_channels", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    const bool groups = sheaf__json_bool(r, "multi_query_attention", false);
    c->kv_heads = groups ? sheaf__json_int(r, "multi_query_group_num", 1, MOST_HEADS, 1) : c->heads;
    c->max_position = sheaf__json_int(r, "seq_length", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    c->rms_eps = sheaf__json_real(r, "layernorm_epsilon", 0, 1, 1e-5);
    c->qkv_bias = sheaf__json_bool(r, "add_qkv_bias", false);
    c->initializer_range = sheaf__json_real(r, "initializer_range", 0, 1e6, 0.02);
    c->rope.theta = 10000 * sheaf__json_real(r, "rope_ratio", 1e-6, 1e12, 1);
    c->rope.partial = 0.5;
    const int64_t again = sheaf__json_int(r, "num_hidden_layers", 1, SHEAF_MAX_LAYERS, c->layers),
                  rows = sheaf__json_int(r, "vocab_size", 1, MOST_VOCAB, c->vocab);
    if (r->st != NULL)
        return;
    if (again != c->layers)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_hidden_layers",
                         "%" PRId64 ", as num_layers has it", c->layers);
    else if (rows > c->vocab)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "vocab_size", "at most padded_vocab_size, %" PRId64,
                         c->vocab);
    else if (c->heads % c->kv_heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "multi_query_group_num",
                         "a number that divides num_attention_heads, %" PRId64, c->heads);
    else if (c->head_dim % 4 != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "kv_channels",
                         "a multiple of 4: half of each head turns, in pairs");
}

/* ---- the tower ---- */

static void read_vision(sheaf_json_reader *all, sheaf_config *c, sheaf_text *unknown)
{
    static const sheaf__eva_form form = { .joined = true, .own = "scaling_factor" };
    sheaf__eva_config(all, c, &form, unknown);
    sheaf_json_reader r = { sheaf__json_object(all, "vision_config"), "vision_config.", NULL };
    c->image_divisor = sheaf__json_real(&r, "scaling_factor", 1e-6, 1e6, SHEAF_JSON_NEEDED_REAL);
    sheaf__config_leave(all, &r);
}

/* ---- all keys ---- */

static int64_t read_mark(sheaf_json_reader *r, const sheaf_config *c, const char *key)
{
    const int64_t id = sheaf__config_read_id(r, key, c->vocab);
    if (r->st == NULL && id < 0)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_FORMAT, key,
                                     "the id of a token, as vision_config describes a tower"),
                    "none");
    return id;
}

void sheaf__chatglm_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    sheaf__key_lists lists = sheaf__transformers_keys;
    lists.own = own_keys;
    c->family = SHEAF_CHATGLM;
    sheaf__config_keys(r, &lists, unknown);
    if (r->st == NULL)
        check_switches(r);
    if (r->st == NULL)
        read_sizes(r, c);
    const json_t *vision = r->st == NULL ? sheaf__json_object(r, "vision_config") : NULL;
    c->image_mark.begin = c->image_mark.patch = c->image_mark.end = -1;
    if (r->st != NULL)
        return;
    c->bos = sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = sheaf__config_read_id(r, "pad_token_id", c->vocab);
    sheaf__config_read_eos(r, c);
    sheaf__config_read_tokenizer(r, c);
    sheaf__config_read_dtype(r, c);
    if (vision != NULL) {
        read_vision(r, c, unknown);
        c->image_mark.begin = read_mark(r, c, "boi_token_id");
        c->image_mark.end = read_mark(r, c, "eoi_token_id");
    }
}

void sheaf__chatglm_text(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_whole(t, "ffn_hidden_size", c->ffn);
    sheaf__config_whole(t, "num_layers", c->layers);
    sheaf__config_whole(t, "multi_query_group_num", c->kv_heads);
    sheaf__config_whole(t, "kv_channels", c->head_dim);
    sheaf__config_whole(t, "seq_length", c->max_position);
    sheaf__config_real(t, "layernorm_epsilon", c->rms_eps);
    sheaf__config_yes_no(t, "add_qkv_bias", c->qkv_bias);
    sheaf__config_rope(t, c);
    if (c->vit.layers == 0)
        return;
    sheaf__config_whole(t, "boi_token_id", c->image_mark.begin);
    sheaf__config_whole(t, "eoi_token_id", c->image_mark.end);
    sheaf__eva_text(t, c);
    sheaf__config_real(t, "vision_config.scaling_factor", c->image_divisor);
}
