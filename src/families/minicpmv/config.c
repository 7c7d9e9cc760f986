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

static const struct {
    sheaf_minicpmv version;
    double number;
    const char *title, *folder;
} versions[] = {
    { SHEAF_MINICPMV_2_0, 2.0, "MiniCPM-V 2.0", "openbmb/MiniCPM-V-2" },
    { SHEAF_MINICPMV_2_5, 2.5, "MiniCPM-V 2.5", "openbmb/MiniCPM-Llama3-V-2_5" },
    { SHEAF_MINICPMV_2_6, 2.6, "MiniCPM-V 2.6", "openbmb/MiniCPM-V-2_6" },
};
enum { VERSIONS = sizeof versions / sizeof *versions };

const char *sheaf__minicpmv_title(sheaf_minicpmv version)
{
    return versions[version - 1].title;
}

/* im_end_token_id: of one revision of 2.0; the tokenizer has these. quantization_config: one that
 * is not read is refused here, with the folder that works. */
const char sheaf__minicpmv_keys[] =
    "batch_vision_input dim_model_base drop_vision_last_layer im_end_token im_end_token_id "
    "im_id_end_token im_id_start_token im_start_token im_start_token_id image_size "
    "max_slice_nums mm_use_im_start_end model patch_size qkv_bias quantization_config query_num "
    "resampler_ln_eps resampler_max_size resampler_num_heads scale_depth scale_emb "
    "scale_resolution sheaf_padding_seen slice_config slice_end_token slice_end_token_id "
    "slice_mode slice_start_token slice_start_token_id text unk_token unk_token_id use_image_id "
    "version vision vision_batch_size vision_config vision_encoder";

static const char vision_keys[] =
    "_attn_implementation_autoset _flash_attn_2_enabled _name_or_path act architectures "
    "attention_dropout blocks_present chunk_size_feed_forward depth dtype embed_dim hidden_act "
    "hidden_size id2label image_size img_size initializer_range intermediate_size "
    "is_encoder_decoder label2id layer_norm_eps mlp_ratio model_type num_attention_heads "
    "num_channels num_heads num_hidden_layers output_attentions output_hidden_states patch_size "
    "problem_type return_dict torch_dtype transformers_version";

bool sheaf__minicpmv_claims(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type")),
               *model = json_string_value(json_object_get(object, "model"));
    const json_t *classes = json_object_get(object, "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    return (type != NULL && strcmp(type, SHEAF__MINICPMV_NAME) == 0) ||
           (name != NULL && strcmp(name, SHEAF__MINICPMV_CLASS) == 0) ||
           (type == NULL && model != NULL && strncmp(model, "MiniCPM-V", 9) == 0);
}

/* ---- which version ---- */

/* A number as it is written: 2.6, or "2.6". */
static double version_number(const json_t *value)
{
    char *end = NULL;
    if (json_is_number(value))
        return json_number_value(value);
    const char *text = json_string_value(value);
    const double number = text == NULL ? 0 : strtod(text, &end);
    return text == NULL || *end != '\0' ? 0 : number;
}

/* "MiniCPM-V 2.6 layout" */
static double layout_number(const char *model)
{
    const char *digits = model == NULL ? NULL : strpbrk(model, "0123456789");
    return digits == NULL ? 0 : strtod(digits, NULL);
}

/* 2.0 and 2.5 have no key that says it: the first names its tower, the second describes it. */
static double untold_number(const json_t *object)
{
    const bool described = json_is_object(json_object_get(object, "vision_config"));
    return !described || json_object_get(object, "scale_emb") != NULL ? 2.0 : 2.5;
}

static void read_version(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *said = json_object_get(r->object, "version");
    const char *model = sheaf__json_string(r, "model"),
               *key = said != NULL || model == NULL ? "version" : "model";
    const double number = said != NULL    ? version_number(said)
                          : model != NULL ? layout_number(model)
                                          : untold_number(r->object);
    for (int i = 0; i < VERSIONS; i++)
        if (number == versions[i].number)
            c->minicpmv = versions[i].version;
    if (r->st == NULL && c->minicpmv == SHEAF_MINICPMV_NONE)
        sheaf_try_this(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "MiniCPM-V 2.0, 2.5 or 2.6"),
                       "one of these: other versions have other towers or text models");
}

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
                       versions[c->minicpmv - 1].folder);
}

/* ---- the text model ---- */

/* Keys of the whole that a text model of its own object reads too. */
static const char *const shared_keys[] = { "bos_token_id",    "dtype",       "eos_token_id",
                                           "pad_token_id",    "torch_dtype", "hidden_act",
                                           "sheaf_tokenizer", NULL };

/* The object that describes the text model, new, as Llama's reader takes it; NULL: no memory. */
static json_t *text_object(const json_t *root, const json_t *inner)
{
    json_t *out = json_copy((json_t *)(inner != NULL ? inner : root));
    bool failed = out == NULL;
    for (int i = 0; !failed && inner != NULL && shared_keys[i] != NULL; i++) {
        json_t *value = json_object_get(root, shared_keys[i]);
        if (value != NULL && json_object_get(out, shared_keys[i]) == NULL)
            failed = json_object_set(out, shared_keys[i], value) != 0;
    }
    if (!failed) {
        json_object_del(out, "architectures");
        failed = json_object_set_new(out, "model_type", json_string(SHEAF__MINICPMV_NAME)) != 0;
    }
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The class of the text model, where it is said. */
static void check_class(sheaf_json_reader *r, const sheaf_config *c)
{
    const char *type = sheaf__json_string(r, "model_type");
    static const char *const wanted[] = { [SHEAF_MINICPMV_2_0] = "minicpm",
                                          [SHEAF_MINICPMV_2_5] = "llama",
                                          [SHEAF_MINICPMV_2_6] = "qwen2" };
    if (r->st == NULL && type != NULL && strcmp(type, wanted[c->minicpmv]) != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "model_type", "\"%s\", the text model of %s",
                         wanted[c->minicpmv], sheaf__minicpmv_title(c->minicpmv));
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
                         sheaf__minicpmv_title(c->minicpmv));
}

static void read_text(sheaf_json_reader *all, sheaf_config *c, sheaf_text *unknown)
{
    const json_t *inner = sheaf__json_object(all, "text");
    json_t *object = all->st == NULL ? text_object(all->object, inner) : NULL;
    if (object == NULL) {
        if (all->st == NULL)
            all->st = sheaf__no_memory("out of memory for a config");
        return;
    }
    const sheaf_minicpmv version = c->minicpmv;
    sheaf_json_reader r = { inner, "text.", NULL };
    if (inner != NULL)
        check_class(&r, c);
    if (inner == NULL)
        r.inside = NULL;
    r.object = object;
    if (r.st == NULL)
        sheaf__llama_config(&r, c, unknown);
    c->minicpmv = version;
    if (r.st == NULL)
        read_constants(&r, c);
    c->qkv_bias = sheaf__json_bool(&r, "qkv_bias", version == SHEAF_MINICPMV_2_6);
    if (r.st == NULL && c->qkv_bias != (version == SHEAF_MINICPMV_2_6))
        sheaf__json_fail(&r, SHEAF_E_LAYOUT, "qkv_bias", "%s, as %s has it",
                         version == SHEAF_MINICPMV_2_6 ? "true" : "false",
                         sheaf__minicpmv_title(version));
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

/* That of upstream's class where a config of 2.5 or 2.6 describes none. */
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
    read_version(r, c);
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
                        (int64_t)(versions[c->minicpmv - 1].number * 10 + 0.5));
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
