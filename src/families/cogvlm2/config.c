/* config.c - config.json of CogVLM2 (upstream's configuration_cogvlm.py). */
#include "base/base.h"
#include "families/cogvlm2/cogvlm2.h"
#include "families/common/eva_config.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_HEADS = 1 << 16,
    MOST_WIDTH = 1 << 24,
};

/* Those that upstream's class and code read. */
static const char read_keys[] =
    "architectures auto_map bos_token_id dtype eos_token_id hidden_act hidden_size "
    "initializer_range intermediate_size max_position_embeddings model_type num_attention_heads "
    "num_hidden_layers num_multi_query_heads pad_token_id rms_norm_eps sheaf_tokenizer "
    "template_version tie_word_embeddings torch_dtype vocab_size";

bool sheaf__cogvlm2_claims(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    const json_t *classes = json_object_get(object, "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    return (type != NULL && strcmp(type, "cogvlm2") == 0) ||
           (name != NULL && strcmp(name, SHEAF__COGVLM2_CLASS) == 0 &&
            json_object_get(object, "num_multi_query_heads") != NULL);
}

static void divides(sheaf_json_reader *r, const char *key, int64_t number, const char *of,
                    int64_t whole)
{
    if (r->st == NULL && whole % number != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "a number that divides %s, %" PRId64, of, whole);
}

static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    c->vocab = sheaf__json_int(r, "vocab_size", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    c->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->ffn = sheaf__json_int(r, "intermediate_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->layers = sheaf__json_int(r, "num_hidden_layers", 1, SHEAF_MAX_COG_LAYERS, SHEAF_JSON_NEEDED);
    c->heads = sheaf__json_int(r, "num_attention_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    c->kv_heads = sheaf__json_int(r, "num_multi_query_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    c->max_position = sheaf__json_int(r, "max_position_embeddings", 1, INT32_MAX, 8192);
    c->rms_eps = sheaf__json_real(r, "rms_norm_eps", 0, 1, 1e-6);
    c->initializer_range = sheaf__json_real(r, "initializer_range", 0, 1e6, 0.02);
    sheaf__config_want_word(r, "hidden_act", "silu");
    divides(r, "num_attention_heads", c->heads, "hidden_size", c->hidden);
    divides(r, "num_multi_query_heads", c->kv_heads, "num_attention_heads", c->heads);
    if (r->st == NULL && sheaf__json_bool(r, "tie_word_embeddings", false))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "tie_word_embeddings", "false, or no such key");
    if (r->st != NULL)
        return;
    c->head_dim = c->hidden / c->heads;
    if (c->head_dim % 2 != 0)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_attention_heads", "heads of an even width"),
            "%" PRId64, c->head_dim);
    c->experts = c->layers;
    c->rope.theta = 500000; /* a constant of upstream's code */
    c->rope.partial = 1;
}

void sheaf__cogvlm2_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    sheaf__key_lists lists = sheaf__transformers_keys;
    lists.own = "vision_config";
    lists.read = read_keys;
    c->family = SHEAF_COGVLM2;
    sheaf__config_keys(r, &lists, unknown);
    if (r->st == NULL)
        read_sizes(r, c);
    if (r->st == NULL)
        sheaf__eva_config(r, c, &(sheaf__eva_form){ .joined = true }, unknown);
    if (r->st != NULL)
        return;
    c->bos = sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = sheaf__config_read_id(r, "pad_token_id", c->vocab);
    c->padding = c->pad + 1; /* padding_idx of the table: its row never learns */
    sheaf__config_read_eos(r, c);
    sheaf__config_read_tokenizer(r, c);
    sheaf__config_read_dtype(r, c);
}

void sheaf__cogvlm2_text(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_whole(t, "intermediate_size", c->ffn);
    sheaf__config_whole(t, "num_hidden_layers", c->layers);
    sheaf__config_whole(t, "num_multi_query_heads", c->kv_heads);
    sheaf__config_whole(t, "max_position_embeddings", c->max_position);
    sheaf__config_real(t, "rms_norm_eps", c->rms_eps);
    sheaf__eva_text(t, c);
    sheaf__config_rope(t, c);
}
