/* config_hub.c - config.json of CogVLM's and CogAgent's folders on the hub, as their own
 * configuration_cogvlm.py and configuration_cogagent.py read it; defaults are those of these
 * classes. The class of CogVLM2 has the same name: its config has num_multi_query_heads. */
#include "base/base.h"
#include "families/cog/cog.h"
#include "families/common/eva_config.h"

/* As in config.c. */
enum {
    MOST_HEADS = 1 << 16,
    MOST_WIDTH = 1 << 24,
    MOST_VOCAB = INT32_MAX,
};

static const char vlm_class[] = "CogVLMForCausalLM", agent_class[] = "CogAgentForCausalLM";

static const char read_keys[] =
    "architectures bos_token_id cross_compute_hidden_size cross_hidden_size cross_image_size dtype "
    "encoder_override eos_token_id hidden_act hidden_size initializer_range intermediate_size "
    "max_position_embeddings num_attention_heads num_hidden_layers pad_token_id rms_norm_eps "
    "sheaf_tokenizer template_version tie_word_embeddings torch_dtype vision_config vocab_size";

static const char harmless_keys[] =
    "_name_or_path auto_map model_type sat_config text_processor_version transformers_version "
    "use_cache";

static const sheaf_unsupported_key unsupported_keys[] = {
    { "num_multi_query_heads", SHEAF_NEUTRAL_ZERO, "is CogVLM2's: keys and values are shared" },
    { NULL },
};

static const sheaf__key_lists model_keys = { NULL, read_keys, harmless_keys, unsupported_keys };

static bool names_class(const json_t *object, const char *name)
{
    const json_t *list = json_object_get(object, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one != NULL && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

bool sheaf__cog_hub_claims(const json_t *object)
{
    return (names_class(object, vlm_class) &&
            json_object_get(object, "num_multi_query_heads") == NULL) ||
           names_class(object, agent_class);
}

static void want_parts(sheaf_json_reader *r, const char *key, int64_t of, int64_t parts)
{
    if (r->st == NULL && of % parts != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "a multiple of the %" PRId64 " heads", parts);
}

static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    c->vocab = sheaf__json_int(r, "vocab_size", 1, MOST_VOCAB, 32000);
    c->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_WIDTH, 4096);
    c->ffn = sheaf__json_int(r, "intermediate_size", 1, MOST_WIDTH, 11008);
    c->layers = sheaf__json_int(r, "num_hidden_layers", 1, SHEAF_MAX_COG_LAYERS, 32);
    c->heads = c->kv_heads = sheaf__json_int(r, "num_attention_heads", 1, MOST_HEADS, 32);
    c->max_position = sheaf__json_int(r, "max_position_embeddings", 1, INT32_MAX, 2048);
    c->rms_eps = sheaf__json_real(r, "rms_norm_eps", 0, 1, 1e-6);
    c->initializer_range = sheaf__json_real(r, "initializer_range", 0, 1e6, 0.02);
    sheaf__config_want_word(r, "hidden_act", "silu");
    if (r->st == NULL && sheaf__json_bool(r, "tie_word_embeddings", false))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "tie_word_embeddings", "false");
    want_parts(r, "hidden_size", c->hidden, c->heads);
    if (r->st != NULL)
        return;
    c->head_dim = c->hidden / c->heads;
    if (c->head_dim % 2 != 0)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_attention_heads", "heads of an even width"),
            "%" PRId64, c->head_dim);
    c->experts = c->layers;
    c->rope.theta = 10000;
    c->rope.partial = 1;
}

/* Every layer of CogAgent looks at the other tower. */
static void read_cross(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    const sheaf_encoder *standard = &sheaf__cog_standard_encoder;
    const int64_t computed = sheaf__json_int(r, "cross_compute_hidden_size", 1, MOST_WIDTH, 1024);
    c->cross_width = sheaf__json_int(r, "cross_hidden_size", 1, MOST_WIDTH, standard->width);
    want_parts(r, "cross_compute_hidden_size", computed, c->heads);
    if (r->st != NULL)
        return;
    c->cross_head_dim = computed / c->heads;
    for (int64_t i = 0; i < c->layers; i++)
        sheaf__layer_add(c->cross_layers, i);
    sheaf__cog_read_encoder(r, c, "cross_image_size", unknown);
}

void sheaf__cog_hub_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    c->family = names_class(r->object, agent_class) ? SHEAF_COGAGENT_HF : SHEAF_COGVLM_HF;
    sheaf__config_keys(r, &model_keys, unknown);
    if (r->st == NULL)
        read_sizes(r, c);
    if (r->st == NULL)
        sheaf__eva_config(r, c, &(sheaf__eva_form){ 0 }, unknown);
    if (r->st == NULL && c->family == SHEAF_COGAGENT_HF)
        read_cross(r, c, unknown);
    if (r->st != NULL)
        return;
    c->bos = json_object_get(r->object, "bos_token_id") == NULL
                 ? 1
                 : sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = json_object_get(r->object, "pad_token_id") == NULL
                 ? 0
                 : sheaf__config_read_id(r, "pad_token_id", c->vocab);
    c->padding = c->pad + 1;
    c->eos[0] = 2;
    c->neos = 1;
    if (json_object_get(r->object, "eos_token_id") != NULL) {
        c->neos = 0;
        sheaf__config_read_eos(r, c);
    }
    sheaf__config_read_tokenizer(r, c);
    sheaf__config_read_dtype(r, c);
}
