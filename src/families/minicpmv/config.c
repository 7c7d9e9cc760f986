/* config.c - config.json of MiniCPM-V, as published (the text model's keys beside the others) or
 * with objects "text" and "vision" and a "model" that names the version. */
#include "base/base.h"
#include "families/llama/tower.h"
#include "families/minicpmv/minicpmv.h"
#include "schema/config_keys.h"
#include "schema/config_text.h"
#include "schema/quantization.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum { MOST_WIDTH = 1 << 24, MOST_PIXELS = 1 << 16 };
enum { SCALE_RESOLUTION = 448 }; /* side of the square that slices are about as large as */

#define SIGLIP "vit_so400m_patch14_siglip_384"

static const char vision_keys[] =
    "_attn_implementation_autoset _flash_attn_2_enabled _name_or_path act architectures "
    "attention_dropout blocks_present chunk_size_feed_forward depth dtype embed_dim hidden_act "
    "hidden_size id2label image_size img_size initializer_range intermediate_size "
    "is_encoder_decoder label2id layer_norm_eps mlp_ratio model_type num_attention_heads "
    "num_channels num_heads num_hidden_layers output_attentions output_hidden_states patch_size "
    "problem_type return_dict torch_dtype transformers_version";

/* Weights in 4 bits are in folders of their own, beside those of which they were made. */
static void check_quantized(sheaf_json_reader *r, const sheaf_config *c)
{
    sheaf__quantization q;
    const json_t *value = json_object_get(r->object, "quantization_config");
    if (r->st != NULL || value == NULL || json_is_null(value))
        return;
    r->st = sheaf__quantization_read(&q, value);
    if (r->st != NULL)
        sheaf_try_this(r->st, "the folder that was quantized, %s (the name without -int4)",
                       sheaf__minicpmv_version_of(c)->folder);
}

/* ---- the text model ---- */

/* Keys of the whole that a text model of its own object reads too. */
static const char *const shared_keys[] = { "bos_token_id",    "dtype",       "eos_token_id",
                                           "pad_token_id",    "torch_dtype", "hidden_act",
                                           "sheaf_tokenizer", NULL };

/* The class of the text model, if it has one. */
static void check_class(sheaf_json_reader *r, const sheaf_config *c)
{
    const char *type = sheaf__json_string(r, "model_type");
    const sheaf__minicpmv_version *version = sheaf__minicpmv_version_of(c);
    if (r->st == NULL && type != NULL && strcmp(type, version->text) != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "model_type", "\"%s\", the text model of %s",
                         version->text, version->title);
}

/* MiniCPM's numbers: of embeddings, of each residual branch, and what logits are divided by. */
static void read_constants(sheaf_json_reader *r, sheaf_config *c)
{
    const bool has = c->minicpmv == SHEAF_MINICPMV_2_0;
    c->scale_emb = sheaf__json_real(r, "scale_emb", 1e-6, 1e6, has ? SHEAF_JSON_NEEDED_REAL : 1);
    c->scale_depth =
        sheaf__json_real(r, "scale_depth", 1e-6, 1e6, has ? SHEAF_JSON_NEEDED_REAL : 0);
    c->dim_model_base =
        sheaf__json_int(r, "dim_model_base", 1, MOST_WIDTH, has ? SHEAF_JSON_NEEDED : 0);
    if (r->st == NULL && !has &&
        (c->scale_emb != 1 || c->scale_depth != 0 || c->dim_model_base != 0))
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "scale_emb", "no such key: %s has no such constants",
                         sheaf__minicpmv_version_of(c)->title);
}

static void read_text(sheaf_json_reader *all, sheaf_config *c, sheaf_text *unknown)
{
    const json_t *inner = sheaf__json_object(all, "text");
    json_t *object = all->st == NULL ? sheaf__config_text_object(all->object, inner, shared_keys,
                                                                 SHEAF__MINICPMV_NAME)
                                     : NULL;
    if (object == NULL) {
        if (all->st == NULL)
            all->st = sheaf__no_memory("out of memory for a config");
        return;
    }
    const sheaf__minicpmv_version *version = sheaf__minicpmv_version_of(c);
    const bool biases = version->form->bias == SHEAF__BIAS_QKV;
    sheaf_json_reader r = { inner, "text.", NULL };
    if (inner != NULL)
        check_class(&r, c);
    if (inner == NULL)
        r.inside = NULL;
    r.object = object;
    if (r.st == NULL)
        sheaf__llama_config(&r, c, unknown);
    if (r.st == NULL)
        read_constants(&r, c);
    if (r.st == NULL && sheaf__json_bool(&r, "qkv_bias", biases) != biases)
        sheaf__json_fail(&r, SHEAF_E_LAYOUT, "qkv_bias", "%s, as %s has it",
                         biases ? "true" : "false", version->title);
    sheaf__config_leave(all, &r);
    json_decref(object);
}

/* ---- the tower ---- */

/* SigLIP-400M's sizes; tables of positions differ. */
static sheaf_vit siglip(int64_t positions)
{
    return (sheaf_vit){ .layers = 27,
                        .hidden = 1152,
                        .heads = 16,
                        .ffn = 4304,
                        .vocab = 1,
                        .positions = positions,
                        .patch = 14,
                        .channels = 3,
                        .norm_eps = 1e-6 };
}

/* timm's, which upstream's code of 2.0 asks for by name. */
static void standard_tower(sheaf_json_reader *r, sheaf_config *c)
{
    if (!sheaf__tower_is_named(r, "vision_encoder", SIGLIP,
                               "\"" SIGLIP
                               ".webli\", or the tower's sizes in an object \"vision\""))
        return;
    c->vit = siglip(27 * 27);
}

/* That of upstream's class where a later config describes none. */
static void default_tower(sheaf_config *c)
{
    c->vit = siglip(70 * 70);
    c->vit.height = c->vit.width = 980;
}

static void check_vision_keys(sheaf_json_reader *r, const sheaf_config *c, sheaf_text *unknown)
{
    const char *act = sheaf__json_string(r, "hidden_act"), *timm = sheaf__json_string(r, "act");
    sheaf__config_keys(r, &(sheaf__key_lists){ .read = vision_keys }, unknown);
    if (c->minicpmv == SHEAF_MINICPMV_2_0 && timm != NULL && strcmp(timm, "gelu") != 0 &&
        strcmp(timm, "GELU(approximate='none')") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "act", "\"gelu\", that of erf");
    if (c->minicpmv != SHEAF_MINICPMV_2_0 && act != NULL && strcmp(act, "gelu_pytorch_tanh") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "hidden_act", "\"gelu_pytorch_tanh\"");
    if (sheaf__json_real(r, "attention_dropout", 0, 1, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "attention_dropout",
                         "0: another value drops attention weights in training");
}

static const sheaf__tower_keys
    timm_keys = { "depth", "embed_dim", "num_heads", "num_channels", "img_size", true, 1 },
    siglip_keys = { "num_hidden_layers",
                    "hidden_size",
                    "num_attention_heads",
                    "num_channels",
                    "image_size",
                    false,
                    1 };

/* The size that planning counts with: slices are about as large as a square of scale_resolution. */
static void read_largest(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *slices = sheaf__json_object(r, "slice_config");
    sheaf_json_reader inner = { slices, "slice_config.", NULL };
    const int64_t top = sheaf__json_int(r, "scale_resolution", 1, MOST_PIXELS, 0);
    int64_t side =
        slices == NULL ? 0 : sheaf__json_int(&inner, "scale_resolution", 1, MOST_PIXELS, 0);
    side = side > 0 ? side : top;
    if (side == 0 && json_object_get(r->object, "vision") == NULL)
        side = sheaf__json_int(r, "image_size", 1, MOST_PIXELS, SCALE_RESOLUTION);
    sheaf__config_leave(r, &inner);
    if (r->st != NULL)
        return;
    if (side >= c->vit.patch)
        c->vit.height = c->vit.width = side / c->vit.patch * c->vit.patch;
    c->patches = c->vit.height / c->vit.patch * (c->vit.width / c->vit.patch);
}

/* Without the key upstream's class drops the last block; a "vision" has only those that run, unless
 * timm's depth includes it. */
static void read_tower(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    const bool layout = json_object_get(r->object, "vision") != NULL,
               timm = c->minicpmv == SHEAF_MINICPMV_2_0;
    const char *key = layout ? "vision" : "vision_config";
    const json_t *object = sheaf__json_object(r, key);
    if (object != NULL) {
        sheaf_json_reader inner = { object, layout ? "vision." : "vision_config.", NULL };
        check_vision_keys(&inner, c, unknown);
        sheaf__tower_config(&inner, &c->vit, timm ? &timm_keys : &siglip_keys);
        sheaf__config_leave(r, &inner);
    } else if (timm) {
        standard_tower(r, c);
    } else if (json_object_get(r->object, "text") == NULL) {
        default_tower(c);
    } else if (r->st == NULL) {
        sheaf_found(sheaf__json_fail(r, SHEAF_E_FORMAT, key, "an object that describes the tower"),
                    "no such key");
    }
    c->vit_dropped = sheaf__json_bool(r, "drop_vision_last_layer", !layout || timm);
    if (r->st == NULL && c->vit_dropped && c->vit.layers < 2)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "drop_vision_last_layer",
                         "a tower of at least two blocks, as the last is dropped");
    c->vit.layers -= c->vit_dropped;
    if (r->st == NULL)
        read_largest(r, c);
    if (r->st == NULL)
        sheaf__minicpmv_check_slices(r, c);
}

static void read_marks(sheaf_json_reader *r, sheaf_config *c)
{
    c->image_mark.begin = sheaf__config_read_id(r, "im_start_token", c->vocab);
    c->image_mark.patch = sheaf__config_read_id(r, "unk_token", c->vocab);
    c->image_mark.end = sheaf__config_read_id(r, "im_end_token", c->vocab);
}

void sheaf__minicpmv_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    sheaf__minicpmv_read_version(r, c);
    if (r->st == NULL)
        check_quantized(r, c);
    if (r->st == NULL)
        read_text(r, c, unknown);
    if (r->st == NULL)
        read_tower(r, c, unknown);
    if (r->st == NULL)
        sheaf__resampler_config(
            r, c, "query_num",
            c->minicpmv == SHEAF_MINICPMV_2_0 ? "the queries of 2.0 lie on a grid" : NULL);
    if (r->st == NULL)
        read_marks(r, c);
    c->padding_seen = sheaf__json_bool(r, "sheaf_padding_seen", false);
    if (r->st == NULL && c->padding_seen && c->minicpmv != SHEAF_MINICPMV_2_5)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "sheaf_padding_seen",
                         "false: only 2.5's code looks at padding");
}

void sheaf__minicpmv_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    sheaf__config_whole(t, "version, times 10",
                        (int64_t)(sheaf__minicpmv_version_of(c)->number * 10 + 0.5));
    sheaf__llama_text(t, c);
    sheaf__config_whole(t, "query_num", c->resampler.queries);
    sheaf__config_whole(t, "resampler_num_heads", c->resampler.heads);
    sheaf__config_whole(t, "dim_model_base", c->dim_model_base);
    sheaf__config_whole(t, "im_start_token", c->image_mark.begin);
    sheaf__config_whole(t, "unk_token", c->image_mark.patch);
    sheaf__config_whole(t, "im_end_token", c->image_mark.end);
    sheaf__config_whole(t, "vision_config, blocks that run", v->layers);
    sheaf__config_whole(t, "vision_config.hidden_size", v->hidden);
    sheaf__config_whole(t, "vision_config.num_attention_heads", v->heads);
    sheaf__config_whole(t, "vision_config.intermediate_size", v->ffn);
    sheaf__config_whole(t, "vision_config, rows of positions", v->positions);
    sheaf__config_whole(t, "vision_config.patch_size", v->patch);
    sheaf__config_whole(t, "vision_config.num_channels", v->channels);
    sheaf__config_real(t, "scale_emb", c->scale_emb);
    sheaf__config_real(t, "scale_depth", c->scale_depth);
    sheaf__config_real(t, "resampler_ln_eps", c->resampler.norm_eps);
    sheaf__config_real(t, "vision_config.layer_norm_eps", v->norm_eps);
    sheaf__config_yes_no(t, "sheaf_padding_seen", c->padding_seen);
}
