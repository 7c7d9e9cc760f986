/* omnilmm.c - OmniLMM: its descriptor; Mistral's decoder, and before it the tower (timm's eva.py)
 * and the resampler (upstream's resampler.py), whose rows stand in the sequence in place of as many
 * <im_patch>. Positions are antialiased bicubic where the grid is another; those of the resampler's
 * keys are the queries', bicubic. All blocks of the tower but the last run. */
#include "base/base.h"
#include "families/llama/tower.h"
#include "schema/config_keys.h"
#include "schema/config_text.h"

#define TOWER "model.vision_tower."
#define RESAMPLER "model.resampler."

/* ---- its config: Mistral's keys, the resampler's, and the tower's name; its sizes are timm's, or
 * those of "vision_config" ---- */

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum { MOST_WIDTH = 1 << 24, MOST_PIXELS = 1 << 16 };

#define EVA "eva02_enormous_patch14_clip_224"

static const char own_keys[] =
    "im_end_token im_patch_token im_start_token image_size mm_hidden_size mm_projector_lr "
    "mm_use_im_start_end mm_vision_tower num_query resampler_ln_eps resampler_num_heads "
    "sep_image_conv_front image_aspect_ratio image_grid_pinpoints use_mm_proj vision_config "
    "tune_clip";

static const char vision_keys[] =
    "act blocks_present depth embed_dim global_pool img_size in_chans layer_norm_eps mlp_ratio "
    "num_heads patch_size qkv_bias use_post_norm";

static bool claims(const json_t *object)
{
    return sheaf__config_names(object, "omnilmm", "OmniLMMForCausalLM");
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
    sheaf__config_keys(r, &(sheaf__key_lists){ .read = vision_keys }, unknown);
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

static const sheaf__tower_keys tower_keys = { "depth",    "embed_dim", "num_heads",
                                              "in_chans", "img_size",  true,
                                              2 };

static void read_vision(sheaf_json_reader *all, const json_t *object, sheaf_config *c,
                        sheaf_text *unknown)
{
    sheaf_json_reader r = { object, "vision_config.", NULL };
    check_vision_keys(&r, unknown);
    sheaf__tower_config(&r, &c->vit, &tower_keys);
    c->vit.layers--; /* the last is left out */
    c->vit.positions++;
    sheaf__config_leave(all, &r);
}

/* ---- what images are, and what becomes of them ---- */

static void read_image(sheaf_json_reader *r, sheaf_config *c)
{
    sheaf_vit *v = &c->vit;
    const int64_t size = sheaf__json_int(r, "image_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    const int64_t width = sheaf__json_int(r, "mm_hidden_size", 1, MOST_WIDTH, v->hidden);
    if (r->st == NULL && size > SHEAF__TOWER_MOST_SIDE * v->patch)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                         "at most %d of the tower's patches, of %" PRId64 " pixels",
                         SHEAF__TOWER_MOST_SIDE, v->patch);
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

static void read_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
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

static void add_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    sheaf__llama_text(t, c);
    sheaf__config_whole(t, "num_query", c->resampler.queries);
    sheaf__config_whole(t, "resampler_num_heads", c->resampler.heads);
    sheaf__config_whole(t, "image_size", v->height);
    sheaf__config_whole(t, "im_start_token", c->image_mark.begin);
    sheaf__config_whole(t, "im_patch_token", c->image_mark.patch);
    sheaf__config_whole(t, "im_end_token", c->image_mark.end);
    sheaf__config_whole(t, "vision_config, blocks that run", v->layers);
    sheaf__config_whole(t, "vision_config.embed_dim", v->hidden);
    sheaf__config_whole(t, "vision_config.num_heads", v->heads);
    sheaf__config_whole(t, "vision_config.mlp_ratio, as a width", v->ffn);
    sheaf__config_whole(t, "vision_config, rows of positions", v->positions);
    sheaf__config_whole(t, "vision_config.patch_size", v->patch);
    sheaf__config_whole(t, "vision_config.in_chans", v->channels);
    sheaf__config_real(t, "resampler_ln_eps", c->resampler.norm_eps);
    sheaf__config_real(t, "vision_config.layer_norm_eps", v->norm_eps);
}

/* ---- the descriptor ---- */

static const sheaf__llama_form form = {
    .max_position = 4096 * 32,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .window = 4096,
    .ignored = own_keys,
};

static const sheaf__family_spec specs[] = {
    { "omnilmm-tiny",
      "OmniLMM, byte vocabulary, hidden 128, 4 layers, images of 84 x 84: 1.1 million parameters" },
    { NULL },
};

static const sheaf__tower_names names = {
    .tower = TOWER,
    .resampler = RESAMPLER,
    .patch = { "patch_embed.proj.weight", "patch_embed.proj.bias" },
    .class_token = "cls_token",
    .positions = "pos_embed",
    .norm = "norm",
    .block = "blocks.%lld.",
    .norm1 = "norm1",
    .norm2 = "norm2",
    .q = { "attn.qkv.weight", "attn.q_bias" },
    .k = { "attn.qkv.weight" },
    .v = { "attn.qkv.weight", "attn.v_bias" },
    .proj = { "attn.proj.weight", "attn.proj.bias" },
    .fused = true,
    .norms_after = true,
    .grid = SHEAF__GRID_CUBIC_SMOOTH,
    .keys = SHEAF__GRID_CUBIC,
    .size_key = "vision_config.img_size",
    .queries_key = "num_query",
    .queries = true,
};

static const sheaf__tower_names *tower(const sheaf_config *c)
{
    return &names;
}

/* How pictures stand in a conversation, and how its chat.py asks. */
static void pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<im_start>", "im_start_token" },
                  [SHEAF__MARK_ROW] = { "<im_patch>", "im_patch_token" },
                  [SHEAF__MARK_END] = { "<im_end>", "im_end_token" } },
        .rows = c->resampler.queries,
        .bos = true,
        .chat = "zephyr",
        .byte_chat = "zephyr",
        .system = "You are an artificial intelligence assistant, which gives helpful, detailed, "
                  "and polite answers to the human's questions.",
        .temperature = 0.6,
        .top_k = 30,
        .top_p = 0.9,
        .repetition_penalty = 1.1,
    };
}

static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 1, c->resampler.queries);
    return 1;
}

/* All that is trained, as the recorded runs have it: torch's AdamW over one group of parameters.
 * docs/omnilmm.md says what that is beside the rule of transformers' Trainer. */
static bool decays(const char *name)
{
    return true;
}

static const sheaf__component_rule components[] = {
    { TOWER, SHEAF_PLAN_VIT },
    { RESAMPLER, SHEAF_PLAN_ADAPTER },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

const sheaf__family sheaf__family_omnilmm = {
    .id = SHEAF_OMNILMM,
    .name = "omnilmm",
    .title = "OmniLMM",
    .architecture = "OmniLMMForCausalLM",
    .form = &form,
    .specs = specs,
    .claims = claims,
    .read = read_config,
    .text = add_text,
    .signature = RESAMPLER ": layers.:self_attn.q_proj.weight",
    .spare = sheaf__tower_spare,
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .components = components,
    .tower = tower,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_MARKED },
    .pictures = pictures,
    .lora_targets = "q_proj,k_proj,v_proj",
    .decays = decays,
    SHEAF__LIKE_TOWER,
};
