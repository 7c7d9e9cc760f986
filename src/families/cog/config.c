/* config.c - SAT's model_config.json of CogVLM and CogAgent. Keys as SAT 0.4 writes and reads them
 * (training/model_io.py, model/transformer.py); defaults are those of its code. */
#include "base/base.h"
#include "families/cog/cog.h"

#include "schema/config_keys.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_HEADS = 1 << 16,
    MOST_WIDTH = 1 << 24,
    MOST_VOCAB = INT32_MAX,
    MOST_PIXELS = 1 << 16,
    MOST_PATCHES = 1 << 24,
};

/* EVA02-CLIP-L/14 as upstream's code describes it. */
const sheaf_encoder sheaf__cog_standard_encoder = { .layers = 24,
                                                    .width = 1024,
                                                    .head_width = 64,
                                                    .embed = 768,
                                                    .image = 1120,
                                                    .patch = 14,
                                                    .channels = 3 };
const double sheaf__cog_standard_mlp_ratio = 2.6667;

/* ---- the three lists ---- */

static const char read_keys[] =
    "bos_token_id cross_attn_hidden_size cross_hidden_size_per_attention_head cross_image_pix "
    "dtype encoder_override eos_token_id eva_args hidden_size hidden_size_per_attention_head "
    "image_length init_method_std inner_hidden_size is_decoder layernorm_epsilon "
    "layernorm_order max_sequence_length model_class model_parallel_size model_type "
    "num_attention_heads num_layers pad_token_id sheaf_tokenizer torch_dtype use_bias "
    "vocab_size";

/* Flags of a run, or keys that SAT's dialect reads itself (LoRA). */
static const char harmless_keys[] =
    "attention_dropout attention_dropout_prob checkpoint_activations checkpoint_num_layers "
    "embedding_dropout_prob hidden_dropout layer_range lora_rank mode model_type "
    "output_dropout_prob pre_seq_len row_parallel_linear_final_bias skip_init template_version "
    "text_processor_version tokenizer_type transformers_version use_lora use_neft_noise";

static const sheaf_unsupported_key unsupported_keys[] = {
    { "cross_num_multi_query_heads", SHEAF_NEUTRAL_ZERO, "shares keys and values between heads" },
    { "encoder_args", SHEAF_NEUTRAL_EMPTY, "describes another high-resolution tower" },
    { "is_gated_mlp", SHEAF_NEUTRAL_ZERO, "adds a second gate to the MLP" },
    { "is_rotary_emb", SHEAF_NEUTRAL_ZERO, "adds a second rotary embedding" },
    { "num_experts", SHEAF_NEUTRAL_ONE, "is a mixture of experts" },
    { "num_multi_query_heads", SHEAF_NEUTRAL_ZERO, "shares keys and values between heads" },
    { "quantization_bit_width", SHEAF_NEUTRAL_NULL, "stores quantized weights" },
    { "quantization_config", SHEAF_NEUTRAL_NULL, "stores quantized weights" },
    { "use_ptuning", SHEAF_NEUTRAL_ZERO, "adds trained prefixes" },
    { "use_qkv_bias", SHEAF_NEUTRAL_ZERO, "adds biases" },
    { "use_qlora", SHEAF_NEUTRAL_ZERO, "stores quantized weights" },
    { NULL },
};

static const sheaf__key_lists model_keys = { NULL, read_keys, harmless_keys, unsupported_keys };

static const char vit_read_keys[] =
    "hidden_size image_size in_channels inner_hidden_size layernorm_epsilon layernorm_order "
    "max_sequence_length model_class model_parallel_size num_attention_heads num_layers "
    "patch_size post_len pre_len use_bias use_final_layernorm vocab_size";

static const char vit_harmless_keys[] =
    "attention_dropout_prob drop_path hidden_dropout output_dropout_prob "
    "row_parallel_linear_final_bias";

static const sheaf_unsupported_key vit_unsupported_keys[] = {
    { "hidden_size_per_attention_head", SHEAF_NEUTRAL_NULL, "gives heads another width" },
    { "is_decoder", SHEAF_NEUTRAL_ZERO, "adds cross-attention" },
    { "num_multi_query_heads", SHEAF_NEUTRAL_ZERO, "shares keys and values between heads" },
    { "property", SHEAF_NEUTRAL_NULL, "describes another image" },
    { NULL },
};

static const sheaf__key_lists vit_keys = { NULL, vit_read_keys, vit_harmless_keys,
                                           vit_unsupported_keys };
static const sheaf__key_lists encoder_keys = { .read =
                                                   "embed_dim head_width layers mlp_ratio width" };

/* ---- small checks ---- */

static void want_bool(sheaf_json_reader *r, const char *key, bool wanted)
{
    const bool declared = sheaf__json_bool(r, key, true);
    if (r->st == NULL && declared != wanted)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%s%s", wanted ? "true" : "false",
                         wanted ? ", or no such key" : "; SAT takes an absent key as the opposite");
}

static void want_int(sheaf_json_reader *r, const char *key, int64_t wanted)
{
    const int64_t declared = sheaf__json_int(r, key, 0, INT32_MAX, wanted);
    if (r->st == NULL && declared != wanted)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%" PRId64 ", or no such key", wanted);
}

static void want_whole_heads(sheaf_json_reader *r, int64_t hidden, int64_t heads)
{
    if (r->st == NULL && hidden % heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_attention_heads",
                         "a number that divides hidden_size, %" PRId64, hidden);
}

/* ---- parts of the file ---- */

bool sheaf__cog_claims(const json_t *object)
{
    const char *type = json_string_value(
        json_object_get(object, "model_type")); /* in a config.json that sheaf wrote */
    const sheaf__family *named = type == NULL ? NULL : sheaf__family_named(type);
    const bool ours = named != NULL && named->claims == sheaf__cog_claims;
    const bool cog = json_object_get(object, "model_class") != NULL ||
                     json_object_get(object, "eva_args") != NULL || ours;
    return cog && (ours || json_object_get(object, "model_type") == NULL) &&
           json_object_get(object, "architectures") == NULL;
}

static void read_class(sheaf_json_reader *r, sheaf_config *c)
{
    const char *known[32], *name = sheaf__json_string(r, "model_class");
    const sheaf__family *family = name == NULL ? NULL : sheaf__family_of_class(name);
    if (family != NULL) {
        const char *type = sheaf__json_string(r, "model_type");
        c->family = family->id;
        if (type != NULL && strcmp(type, family->name) != 0)
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "model_type",
                             "\"%s\", as 'model_class' is %s, or no such key", family->name, name);
        return;
    }
    int n = 0;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        for (const char *const *one = family->classes; one != NULL && *one != NULL && n < 32; one++)
            known[n++] = *one;
    const char *meant = name == NULL ? NULL : sheaf__misspelt(name, known, n);
    sheaf_status *st = sheaf__json_fail(
        r, name == NULL ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED, "model_class",
        "CogVLMModel or CogAgentModel, or their FineTuneTrain and FineTuneTest classes");
    if (st != NULL && meant != NULL)
        sheaf_try_this(st, "\"%s\", if that was meant, in the config", meant);
    else if (st != NULL && name == NULL)
        sheaf_try_this(st, "add \"model_class\": \"%s\" to the config, if it is one",
                       json_object_get(r->object, "cross_image_pix") != NULL ? "CogAgentModel"
                                                                             : "CogVLMModel");
}

static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    c->vocab = sheaf__json_int(r, "vocab_size", 1, MOST_VOCAB, SHEAF_JSON_NEEDED);
    c->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->ffn = sheaf__json_int(r, "inner_hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    c->layers = sheaf__json_int(r, "num_layers", 1, SHEAF_MAX_COG_LAYERS, SHEAF_JSON_NEEDED);
    c->heads = c->kv_heads =
        sheaf__json_int(r, "num_attention_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    c->max_position = sheaf__json_int(r, "max_sequence_length", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    c->patches = sheaf__json_int(r, "image_length", 1, MOST_PATCHES, SHEAF_JSON_NEEDED);
    c->rms_eps = sheaf__json_real(r, "layernorm_epsilon", 0, 1, 1e-5);
    if (r->st != NULL)
        return;
    want_whole_heads(r, c->hidden, c->heads);
    if (r->st != NULL)
        return;
    c->head_dim = c->hidden / c->heads;
    want_int(r, "hidden_size_per_attention_head",
             c->head_dim); /* the rotary embedding takes the quotient */
    if (r->st == NULL && c->head_dim % 2 != 0)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_attention_heads", "heads of an even width"),
            "%" PRId64, c->head_dim);
    c->experts = c->layers < SHEAF__COG_EXPERT_LAYERS ? c->layers : SHEAF__COG_EXPERT_LAYERS;
    c->rope.theta = 10000;
    c->rope.partial = 1;
    c->initializer_range = sheaf__json_real(r, "init_method_std", 0, 1e6, 0.02);
    sheaf__config_want_word(r, "layernorm_order", "pre");
    want_bool(r, "use_bias", false);
}

/* is_decoder: one word for all layers, or a list of one for each. */
static void read_cross(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *declared = json_object_get(r->object, "is_decoder");
    bool any = false;
    if (declared == NULL || json_is_null(declared) || json_is_false(declared))
        return;
    if (!json_is_true(declared) &&
        (!json_is_array(declared) || (int64_t)json_array_size(declared) != c->layers)) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "is_decoder",
                         "true, false, or a list of one for each of the %" PRId64 " layers",
                         c->layers);
        return;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        const json_t *one =
            json_is_array(declared) ? json_array_get(declared, (size_t)i) : declared;
        if (!json_is_boolean(one)) {
            sheaf__json_fail(r, SHEAF_E_FORMAT, "is_decoder", "true or false for each layer");
            return;
        }
        if (json_is_true(one))
            sheaf__layer_add(c->cross_layers, i);
        any = any || json_is_true(one);
    }
    if (!any)
        return;
    c->cross_head_dim =
        sheaf__json_int(r, "cross_hidden_size_per_attention_head", 1, MOST_HEADS, c->head_dim);
    c->cross_width = sheaf__json_int(r, "cross_attn_hidden_size", 1, MOST_WIDTH, c->hidden);
}

/* image_size: one number or [height, width], whole patches, as many as image_length says. */
static void read_image(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *size = json_object_get(r->object, "image_size");
    const bool pair = json_is_array(size) && json_array_size(size) == 2;
    const json_t *side[2] = { pair ? json_array_get(size, 0) : size,
                              pair ? json_array_get(size, 1) : size };
    int64_t pixels[2];
    c->vit.patch = sheaf__json_int(r, "patch_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    c->vit.channels = sheaf__json_int(r, "in_channels", 1, 1024, SHEAF_JSON_NEEDED);
    for (int i = 0; i < 2 && r->st == NULL; i++) {
        pixels[i] = json_is_integer(side[i]) ? json_integer_value(side[i]) : 0;
        if (pixels[i] < c->vit.patch || pixels[i] > MOST_PIXELS || pixels[i] % c->vit.patch != 0)
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                             "two multiples of patch_size, %" PRId64, c->vit.patch);
    }
    if (r->st != NULL)
        return;
    c->vit.height = pixels[0];
    c->vit.width = pixels[1];
    const int64_t n = pixels[0] / c->vit.patch * (pixels[1] / c->vit.patch);
    if (n != c->patches)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                             "an image of %" PRId64 " patches, as image_length says", c->patches),
            "%" PRId64 " by %" PRId64 " pixels, %" PRId64 " patches", pixels[0], pixels[1], n);
}

static void read_vit(sheaf_json_reader *all, sheaf_config *c, sheaf_text *unknown)
{
    const json_t *object = sheaf__json_object(all, "eva_args");
    if (all->st == NULL && object == NULL)
        sheaf_found(sheaf__json_fail(all, SHEAF_E_FORMAT, "eva_args",
                                     "an object that describes the vision transformer"),
                    "no such key");
    if (all->st != NULL)
        return;
    sheaf_json_reader r = { object, "eva_args.", NULL };
    sheaf_vit *v = &c->vit;
    sheaf__config_keys(&r, &vit_keys, unknown);
    v->layers = sheaf__json_int(&r, "num_layers", 1, SHEAF_MAX_COG_LAYERS, SHEAF_JSON_NEEDED);
    v->hidden = sheaf__json_int(&r, "hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->ffn = sheaf__json_int(&r, "inner_hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->heads = sheaf__json_int(&r, "num_attention_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    v->vocab = sheaf__json_int(&r, "vocab_size", 1, MOST_VOCAB, 1);
    v->positions = sheaf__json_int(&r, "max_sequence_length", 1, MOST_PATCHES + 1, c->patches + 1);
    v->norm_eps = sheaf__json_real(&r, "layernorm_epsilon", 0, 1, 1e-5);
    if (r.st == NULL)
        want_whole_heads(&r, v->hidden, v->heads);
    sheaf__config_want_word(&r, "model_class", "EVA2CLIPModel");
    sheaf__config_want_word(&r, "layernorm_order", "post");
    want_bool(&r, "use_bias", true);
    want_bool(&r, "use_final_layernorm", false);
    want_int(&r, "pre_len", 1);
    want_int(&r, "post_len", 0);
    read_image(&r, c);
    sheaf__config_leave(all, &r);
}

void sheaf__cog_read_encoder(sheaf_json_reader *all, sheaf_config *c, const char *pixels_key,
                             sheaf_text *unknown)
{
    sheaf_encoder *e = &c->encoder;
    *e = sheaf__cog_standard_encoder;
    double ratio = sheaf__cog_standard_mlp_ratio;
    e->image = sheaf__json_int(all, pixels_key, 1, MOST_PIXELS, sheaf__cog_standard_encoder.image);
    const json_t *object = sheaf__json_object(all, "encoder_override");
    if (object != NULL) {
        sheaf_json_reader r = { object, "encoder_override.", NULL };
        sheaf__config_keys(&r, &encoder_keys, unknown);
        e->layers = sheaf__json_int(&r, "layers", 1, SHEAF_MAX_COG_LAYERS, e->layers);
        e->width = sheaf__json_int(&r, "width", 1, MOST_WIDTH, e->width);
        e->head_width = sheaf__json_int(&r, "head_width", 1, MOST_HEADS, e->head_width);
        e->embed = sheaf__json_int(&r, "embed_dim", 1, MOST_WIDTH, e->embed);
        ratio = sheaf__json_real(&r, "mlp_ratio", 1e-3, 64, ratio);
        sheaf__config_leave(all, &r);
    }
    e->ffn = (int64_t)((double)e->width * ratio); /* as Python's int() */
    if (all->st == NULL && e->image % e->patch != 0)
        sheaf__json_fail(all, SHEAF_E_LAYOUT, pixels_key, "a multiple of %" PRId64, e->patch);
    if (all->st == NULL && e->ffn < 1)
        sheaf__json_fail(all, SHEAF_E_LAYOUT, "encoder_override", "an MLP of at least one row");
}

void sheaf__cog_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    read_class(r, c);
    if (r->st == NULL)
        sheaf__config_keys(r, &model_keys, unknown);
    if (r->st == NULL)
        read_sizes(r, c);
    if (r->st == NULL)
        read_cross(r, c);
    if (r->st == NULL)
        read_vit(r, c, unknown);
    if (r->st == NULL && c->family == SHEAF_COGAGENT)
        sheaf__cog_read_encoder(r, c, "cross_image_pix", unknown);
    if (r->st != NULL)
        return;
    c->bos = sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = sheaf__config_read_id(r, "pad_token_id", INT32_MAX);
    if (c->pad >= c->vocab) /* SAT makes up 32000 for a tokenizer without one: outside the table */
        c->pad = 0;
    sheaf__config_read_eos(r, c);
    sheaf__config_read_tokenizer(r, c);
    sheaf__config_read_dtype(r, c);
}

/* ---- as text ---- */

/* One character for each layer. */
static void add_cross_layers(sheaf_text *t, const sheaf_config *c)
{
    sheaf__text_add(t, "is_decoder: ");
    for (int64_t i = 0; i < c->layers; i++)
        sheaf__text_add(t, "%d", sheaf__layer_in(c->cross_layers, i));
    sheaf__text_add(t, "\n");
}

void sheaf__cog_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const sheaf_encoder *e = &c->encoder;
    sheaf__config_whole(t, "inner_hidden_size", c->ffn);
    sheaf__config_whole(t, "num_layers", c->layers);
    sheaf__config_whole(t, "max_sequence_length", c->max_position);
    sheaf__config_whole(t, "image_length", c->patches);
    sheaf__config_whole(t, "layers with visual experts", c->experts);
    sheaf__config_whole(t, "cross_hidden_size_per_attention_head", c->cross_head_dim);
    sheaf__config_whole(t, "cross_attn_hidden_size", c->cross_width);
    sheaf__config_whole(t, "eva_args.num_layers", v->layers);
    sheaf__config_whole(t, "eva_args.hidden_size", v->hidden);
    sheaf__config_whole(t, "eva_args.num_attention_heads", v->heads);
    sheaf__config_whole(t, "eva_args.inner_hidden_size", v->ffn);
    sheaf__config_whole(t, "eva_args.vocab_size", v->vocab);
    sheaf__config_whole(t, "eva_args.max_sequence_length", v->positions);
    sheaf__config_whole(t, "eva_args.image_size.0", v->height);
    sheaf__config_whole(t, "eva_args.image_size.1", v->width);
    sheaf__config_whole(t, "eva_args.patch_size", v->patch);
    sheaf__config_whole(t, "eva_args.in_channels", v->channels);
    sheaf__config_whole(t, "encoder_override.layers", e->layers);
    sheaf__config_whole(t, "encoder_override.width", e->width);
    sheaf__config_whole(t, "encoder_override.head_width", e->head_width);
    sheaf__config_whole(t, "encoder_override.mlp_ratio, as a width", e->ffn);
    sheaf__config_whole(t, "encoder_override.embed_dim", e->embed);
    sheaf__config_whole(t, "cross_image_pix", e->image);
    sheaf__config_whole(t, "patch size of the high-resolution tower", e->patch);
    sheaf__config_whole(t, "channels of the high-resolution tower", e->channels);
    sheaf__config_real(t, "layernorm_epsilon", c->rms_eps);
    sheaf__config_real(t, "eva_args.layernorm_epsilon", v->norm_eps);
    sheaf__config_rope(t, c);
    add_cross_layers(t, c);
}
