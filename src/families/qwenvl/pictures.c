/* pictures.c - how Qwen-VL's pictures stand in a conversation, and how large they are: the settings
 * of preprocessor_config.json. */
#include "base/base.h"
#include "families/qwenvl/qwenvl.h"
#include "schema/config_keys.h"

/* Of the processor's class, where no file says them. */
enum { LEAST_PIXELS = 56 * 56, MOST_PIXELS = 28 * 28 * 1280 };

void sheaf__qwenvl_pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    const bool third = sheaf__qwenvl_is_third(c);
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<|vision_start|>", "vision_start_token_id" },
                  [SHEAF__MARK_ROW] = { "<|image_pad|>", "image_token_id" },
                  [SHEAF__MARK_END] = { "<|vision_end|>", "vision_end_token_id" } },
        .least = c->qwen_vit.least > 0 ? c->qwen_vit.least : LEAST_PIXELS,
        .most = c->qwen_vit.most > 0 ? c->qwen_vit.most : MOST_PIXELS,
        .joined = true,
        .on_white = true,
        .halved = third,
        .chat = third ? "chatml" : "qwen2",
        .byte_chat = third ? "chatml" : "qwen2",
        .temperature = third ? 0.7 : 0.000001,
        .top_p = third ? 0.8 : 0.001,
        .top_k = third ? 20 : 1,
        .repetition_penalty = third ? 1 : 1.05,
    };
}

static int64_t pixels(sheaf_json_reader *r, const char *key)
{
    return sheaf__json_int(r, key, 1, (int64_t)1 << 40, 0);
}

/* Mean and deviation are the class's, or the file is of another. */
static void check_scale(sheaf_json_reader *r, const char *key, const double wanted[3])
{
    const json_t *list = sheaf__json_list(r, key);
    for (size_t i = 0; list != NULL && i < 3; i++)
        if (r->st == NULL &&
            (json_array_size(list) != 3 || json_number_value(json_array_get(list, i)) != wanted[i]))
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%g, %g, %g", wanted[0], wanted[1],
                             wanted[2]);
}

static void check_same(sheaf_json_reader *r, const char *key, int64_t wanted)
{
    const int64_t n = sheaf__json_int(r, key, 1, 1 << 16, wanted);
    if (r->st == NULL && n != wanted)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "%" PRId64 ", as config.json has it", wanted),
            "%" PRId64, n);
}

void sheaf__qwenvl_beside(sheaf_json_reader *r, sheaf_config *c)
{
    static const double halves[3] = { 0.5, 0.5, 0.5 },
                        means[3] = { 0.48145466, 0.4578275, 0.40821073 },
                        deviations[3] = { 0.26862954, 0.26130258, 0.27577711 };
    const bool third = sheaf__qwenvl_is_third(c);
    sheaf_json_reader size = { sheaf__json_object(r, "size"), "size.", NULL };
    check_same(r, "patch_size", c->vit.patch);
    check_same(r, "merge_size", c->qwen_vit.merge);
    check_same(r, "temporal_patch_size", c->qwen_vit.frames);
    check_scale(r, "image_mean", third ? halves : means);
    check_scale(r, "image_std", third ? halves : deviations);
    c->qwen_vit.least = pixels(r, "min_pixels");
    c->qwen_vit.most = pixels(r, "max_pixels");
    if (size.object != NULL) {
        const int64_t least = pixels(&size, "shortest_edge"), most = pixels(&size, "longest_edge");
        c->qwen_vit.least = c->qwen_vit.least > 0 ? c->qwen_vit.least : least;
        c->qwen_vit.most = c->qwen_vit.most > 0 ? c->qwen_vit.most : most;
        sheaf__config_leave(r, &size);
    }
}
