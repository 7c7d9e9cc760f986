/* config.c - config.json of OmniLMM: Mistral's keys, the resampler's, and the tower's name; its
 * sizes are timm's, or those of "vision_config". */
#include <math.h>

#include "base/base.h"
#include "families/common/vision.h"
#include "families/llama/llama.h"
#include "families/omnilmm/omnilmm.h"
#include "schema/config_keys.h"
#include "schema/config_parts.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum { MOST_HEADS = 1 << 16, MOST_WIDTH = 1 << 24, MOST_PIXELS = 1 << 16, MOST_SIDE = 1 << 10 };

#define EVA "eva02_enormous_patch14_clip_224"

const char sheaf__omnilmm_keys[] =
    "im_end_token im_patch_token im_start_token image_size mm_hidden_size mm_projector_lr "
    "mm_use_im_start_end mm_vision_tower num_query resampler_ln_eps resampler_num_heads "
    "sep_image_conv_front image_aspect_ratio image_grid_pinpoints use_mm_proj vision_config "
    "tune_clip";

static const char vision_keys[] =
    "act blocks_present depth embed_dim global_pool img_size in_chans layer_norm_eps mlp_ratio "
    "num_heads patch_size qkv_bias use_post_norm";

bool sheaf__omnilmm_claims(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    const json_t *classes = json_object_get(object, "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    return (type != NULL && strcmp(type, "omnilmm") == 0) ||
           (name != NULL && strcmp(name, "OmniLMMForCausalLM") == 0);
}

/* ---- the tower ---- */

/* As timm describes the one that upstream's code asks for by name. */
static void standard_tower(sheaf_json_reader *r, sheaf_config *c)
{
    if (!sheaf__tower_is_named(r, "mm_vision_tower", EVA,
                               "\"" EVA
                               ".laion2b_plus\", or its sizes in an object \"vision_config\""))
        return;
    c->vit = (sheaf_vit){ .layers = 63, /* 64, of which the last is left out */
                          .hidden = 1792,
                          .heads = 16,
                          .ffn = 15360,
                          .vocab = 1,
                          .positions = 16 * 16 + 1,
                          .patch = 14,
                          .channels = 3,
                          .norm_eps = 1e-6 };
}

static void check_vision_keys(sheaf_json_reader *r, sheaf_text *unknown)
{
    const char *act = sheaf__json_string(r, "act");
    sheaf__config_keys(r, vision_keys, "", NULL, unknown);
    if (act != NULL && strcmp(act, "gelu_erf") != 0 && strcmp(act, "gelu") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "act", "\"gelu_erf\" (also called \"gelu\")");
    if (!sheaf__json_bool(r, "use_post_norm", true))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "use_post_norm",
                         "true: EVA02-E norms what its branches give");
    sheaf__json_string(r, "global_pool"); /* behind the last block that runs */
    /* timm's switch, or in words what EVA has */
    const json_t *bias = json_object_get(r->object, "qkv_bias");
    if (!json_is_string(bias) && !sheaf__json_bool(r, "qkv_bias", true))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "qkv_bias", "true: EVA02-E has q_bias and v_bias");
}

/* Blocks in the files: all, or all but the last, which is never run. */
static void check_blocks(sheaf_json_reader *r, int64_t depth)
{
    const int64_t n = sheaf__json_int(r, "blocks_present", 1, SHEAF_MAX_LAYERS, depth - 1);
    if (r->st == NULL && n != depth && n != depth - 1)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "blocks_present",
                                     "depth, %" PRId64 ", or one less: the last is left out",
                                     depth),
                    "%" PRId64, n);
}

static void read_vision(sheaf_json_reader *all, const json_t *object, sheaf_config *c,
                        sheaf_text *unknown)
{
    sheaf_json_reader r = { object, "vision_config.", NULL };
    sheaf_vit *v = &c->vit;
    check_vision_keys(&r, unknown);
    const int64_t depth = sheaf__json_int(&r, "depth", 2, SHEAF_MAX_LAYERS, SHEAF_JSON_NEEDED);
    v->hidden = sheaf__json_int(&r, "embed_dim", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->heads = sheaf__json_int(&r, "num_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    v->patch = sheaf__json_int(&r, "patch_size", 1, MOST_PIXELS, 14);
    v->channels = sheaf__json_int(&r, "in_chans", 1, 1024, 3);
    v->norm_eps = sheaf__json_real(&r, "layer_norm_eps", 0, 1, 1e-6);
    const double ratio = sheaf__json_real(&r, "mlp_ratio", 1e-3, 64, SHEAF_JSON_NEEDED_REAL);
    const int64_t image = sheaf__json_int(&r, "img_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    check_blocks(&r, depth);
    if (r.st == NULL && v->hidden % v->heads != 0)
        sheaf__json_fail(&r, SHEAF_E_LAYOUT, "num_heads",
                         "a number that divides embed_dim, %" PRId64, v->hidden);
    if (r.st == NULL && image < v->patch)
        sheaf__json_fail(&r, SHEAF_E_LAYOUT, "img_size", "at least one patch of %" PRId64,
                         v->patch);
    if (r.st == NULL) {
        v->layers = depth - 1;
        v->ffn = (int64_t)((double)v->hidden * ratio); /* as Python's int() */
        v->vocab = 1;
        v->positions = image / v->patch * (image / v->patch) + 1;
    }
    if (r.st == NULL && v->ffn < 1)
        sheaf__json_fail(&r, SHEAF_E_LAYOUT, "mlp_ratio", "an MLP of at least one row");
    sheaf__config_leave(all, &r);
}

/* ---- what images are, and what becomes of them ---- */

static void read_image(sheaf_json_reader *r, sheaf_config *c)
{
    sheaf_vit *v = &c->vit;
    const int64_t size = sheaf__json_int(r, "image_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    const int64_t width = sheaf__json_int(r, "mm_hidden_size", 1, MOST_WIDTH, v->hidden);
    if (r->st == NULL && size > MOST_SIDE * v->patch)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                         "at most %d of the tower's patches, of %" PRId64 " pixels", MOST_SIDE,
                         v->patch);
    if (r->st == NULL && width != v->hidden)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "mm_hidden_size", "%" PRId64 ", the tower's width",
                         v->hidden);
    if (r->st != NULL)
        return;
    v->height = v->width = size;
    const int64_t side = (size + v->patch - 1) / v->patch; /* zeros behind the edge */
    c->patches = side * side;
}

/* Published configs do not say them: they came behind Zephyr's tokens, in this order, and six marks
 * of boxes behind them. */
enum { ZEPHYR = 32000, PUBLISHED = ZEPHYR + 9 };

static int64_t read_mark(sheaf_json_reader *r, const sheaf_config *c, const char *key, int nth)
{
    const int64_t id = sheaf__config_read_id(r, key, c->vocab);
    return id < 0 && c->vocab == PUBLISHED ? ZEPHYR + nth : id;
}

static void read_marks(sheaf_json_reader *r, sheaf_config *c)
{
    if (!sheaf__json_bool(r, "mm_use_im_start_end", true))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "mm_use_im_start_end",
                         "true: without marks around an image upstream has no rule either");
    c->image_mark.begin = read_mark(r, c, "im_start_token", 1);
    c->image_mark.patch = read_mark(r, c, "im_patch_token", 0);
    c->image_mark.end = read_mark(r, c, "im_end_token", 2);
}

void sheaf__omnilmm_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    sheaf__llama_config(r, c, unknown);
    const json_t *vision = r->st == NULL ? sheaf__json_object(r, "vision_config") : NULL;
    sheaf__json_string(r, "mm_vision_tower");
    if (vision != NULL)
        read_vision(r, vision, c, unknown);
    else if (r->st == NULL)
        standard_tower(r, c);
    if (r->st == NULL)
        read_image(r, c);
    if (r->st == NULL)
        sheaf__resampler_config(r, c, "num_query", "the queries lie on a grid");
    if (r->st == NULL)
        read_marks(r, c);
}

void sheaf__omnilmm_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        { "num_query", c->resampler.queries },
        { "resampler_num_heads", c->resampler.heads },
        { "image_size", v->height },
        { "im_start_token", c->image_mark.begin },
        { "im_patch_token", c->image_mark.patch },
        { "im_end_token", c->image_mark.end },
        { "vision_config, blocks that run", v->layers },
        { "vision_config.embed_dim", v->hidden },
        { "vision_config.num_heads", v->heads },
        { "vision_config.mlp_ratio, as a width", v->ffn },
        { "vision_config, rows of positions", v->positions },
        { "vision_config.patch_size", v->patch },
        { "vision_config.in_chans", v->channels },
    };
    sheaf__llama_text(t, c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        sheaf__config_whole(t, rows[i].key, rows[i].value);
    sheaf__config_real(t, "resampler_ln_eps", c->resampler.norm_eps);
    sheaf__config_real(t, "vision_config.layer_norm_eps", v->norm_eps);
}
