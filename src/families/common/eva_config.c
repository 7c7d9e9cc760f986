/* eva_config.c - see eva_config.h. */
#include "families/common/eva_config.h"

#include "base/base.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum { MOST_HEADS = 1 << 16, MOST_WIDTH = 1 << 24, MOST_PIXELS = 1 << 16, MOST_CHANNELS = 1024 };

static const char read_keys[] =
    "hidden_act hidden_size image_size in_channels intermediate_size layer_norm_eps num_heads "
    "num_hidden_layers num_positions patch_size";

static const sheaf_unsupported_key unsupported_keys[] = {
    { "dropout_prob", SHEAF_NEUTRAL_ZERO, "drops values in training" },
    { NULL },
};

/* A square of whole patches, which are joined in whole blocks. */
static void check_side(sheaf_json_reader *r, const sheaf_vit *v, bool joined)
{
    const int64_t whole = joined ? SHEAF__EVA_BLOCK * v->patch : v->patch;
    if (v->width % whole == 0)
        return;
    sheaf_status *st = joined ? sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                                                 "a multiple of %" PRId64 ": patches of %" PRId64
                                                 " pixels are joined two by two",
                                                 whole, v->patch)
                              : sheaf__json_fail(r, SHEAF_E_LAYOUT, "image_size",
                                                 "a multiple of patch_size, %" PRId64, v->patch);
    sheaf_found(st, "%" PRId64, v->width);
}

static void check_sizes(sheaf_json_reader *r, sheaf_config *c, bool joined)
{
    const sheaf_vit *v = &c->vit;
    check_side(r, v, joined);
    if (r->st != NULL)
        return;
    const int64_t side = v->width / v->patch;
    c->patches = side * side;
    if (v->positions != c->patches + 1)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_positions",
                                     "%" PRId64 ": one for each of %" PRId64 " x %" PRId64
                                     " patches and the class row",
                                     c->patches + 1, side, side),
                    "%" PRId64, v->positions);
    else if (v->hidden % v->heads != 0)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_heads",
                                     "a number that divides hidden_size, %" PRId64, v->hidden),
                    "%" PRId64, v->heads);
}

void sheaf__eva_config(sheaf_json_reader *all, sheaf_config *c, const sheaf__eva_form *form,
                       sheaf_text *unknown)
{
    const json_t *object = sheaf__json_object(all, "vision_config");
    if (all->st == NULL && object == NULL)
        sheaf_found(sheaf__json_fail(all, SHEAF_E_FORMAT, "vision_config",
                                     "an object that describes the vision transformer"),
                    "no such key");
    if (all->st != NULL)
        return;
    sheaf_json_reader r = { object, "vision_config.", NULL };
    sheaf_vit *v = &c->vit;
    sheaf__config_keys(
        &r,
        &(sheaf__key_lists){ .own = form->own, .read = read_keys, .unsupported = unsupported_keys },
        unknown);
    v->layers =
        sheaf__json_int(&r, "num_hidden_layers", 1, SHEAF_MAX_COG_LAYERS, SHEAF_JSON_NEEDED);
    v->hidden = sheaf__json_int(&r, "hidden_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->ffn = sheaf__json_int(&r, "intermediate_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED);
    v->heads = sheaf__json_int(&r, "num_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    v->channels = sheaf__json_int(&r, "in_channels", 1, MOST_CHANNELS, SHEAF_JSON_NEEDED);
    v->patch = sheaf__json_int(&r, "patch_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    v->height = v->width = sheaf__json_int(&r, "image_size", 1, MOST_PIXELS, SHEAF_JSON_NEEDED);
    v->positions = sheaf__json_int(&r, "num_positions", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    v->norm_eps = sheaf__json_real(&r, "layer_norm_eps", 0, 1, SHEAF_JSON_NEEDED_REAL);
    v->vocab = 1;
    sheaf__config_want_word(&r, "hidden_act", "gelu");
    if (r.st == NULL)
        check_sizes(&r, c, form->joined);
    sheaf__config_leave(all, &r);
}

void sheaf__eva_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    sheaf__config_whole(t, "vision_config.num_hidden_layers", v->layers);
    sheaf__config_whole(t, "vision_config.hidden_size", v->hidden);
    sheaf__config_whole(t, "vision_config.num_heads", v->heads);
    sheaf__config_whole(t, "vision_config.intermediate_size", v->ffn);
    sheaf__config_whole(t, "vision_config.image_size", v->width);
    sheaf__config_whole(t, "vision_config.patch_size", v->patch);
    sheaf__config_whole(t, "vision_config.in_channels", v->channels);
    sheaf__config_real(t, "vision_config.layer_norm_eps", v->norm_eps);
}
