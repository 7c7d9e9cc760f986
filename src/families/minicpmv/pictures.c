/* pictures.c - how MiniCPM-V's pictures stand in a conversation and fall into slices, and how its
 * chat() asks. 2.0 and 2.5 write a slice as a picture, 2.6 as a slice, with numbers. */
#include "families/minicpmv/minicpmv.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

static const sheaf__picture_form form = {
    .mark = { [SHEAF__MARK_BEGIN] = { "<image>", "im_start_token" },
              [SHEAF__MARK_ROW] = { "<unk>", "unk_token" },
              [SHEAF__MARK_END] = { "</image>", "im_end_token" },
              [SHEAF__MARK_SLICE] = { "<slice>", "slice_start_token" },
              [SHEAF__MARK_SLICE_END] = { "</slice>", "slice_end_token" } },
    .resolution = 448,
    .slices = 9,
    .together = true,
    .halved = true,
    .chat = "minicpm",
    .byte_chat = "minicpm",
    .temperature = 0.7,
    .top_p = 0.8,
    .top_k = 100,
    .repetition_penalty = 1.05,
};

enum { MOST_SLICES = 1 << 10, MOST_PIXELS = 1 << 16 };

static void check_numbers(sheaf_json_reader *r, const sheaf_config *c)
{
    const int64_t patch = sheaf__json_int(r, "patch_size", 1, MOST_PIXELS, c->vit.patch);
    sheaf__json_int(r, "max_slice_nums", 1, MOST_SLICES, 1);
    sheaf__json_int(r, "scale_resolution", 1, MOST_PIXELS, 1);
    if (r->st == NULL && patch != c->vit.patch)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "patch_size",
                         "%" PRId64 ", the patch_size of the tower, which cuts the slices",
                         c->vit.patch);
}

/* The keys of which sheaf__minicpmv_pictures() makes its form, once the tower is known. */
void sheaf__minicpmv_check_slices(sheaf_json_reader *r, const sheaf_config *c)
{
    sheaf_json_reader inner = { sheaf__json_object(r, "slice_config"), "slice_config.", NULL };
    sheaf__json_bool(r, "slice_mode", true);
    sheaf__json_bool(r, "use_image_id", true);
    check_numbers(r, c);
    if (r->st == NULL && inner.object != NULL) {
        check_numbers(&inner, c);
        r->st = inner.st;
    }
}

/* A whole number of the config or of its slice_config; `otherwise` where neither has one. */
static int64_t number(const json_t *config, const char *key, int64_t otherwise)
{
    const json_t *own = json_object_get(config, key),
                 *inner = json_object_get(json_object_get(config, "slice_config"), key);
    const int64_t n = json_is_integer(own)     ? json_integer_value(own)
                      : json_is_integer(inner) ? json_integer_value(inner)
                                               : 0;
    return n > 0 ? n : otherwise;
}

void sheaf__minicpmv_pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    json_t *config = NULL;
    *out = form;
    out->rows = c->resampler.queries;
    if (c->minicpmv == SHEAF_MINICPMV_2_0)
        out->bos = true;
    if (c->minicpmv == SHEAF_MINICPMV_2_5)
        out->chat = "llama3";
    if (c->minicpmv == SHEAF_MINICPMV_2_6) {
        out->chat = "qwen2";
        out->together = false;
    }
    /* the reader of the config has complained of what is no JSON */
    sheaf_status_free(c->json == NULL ? NULL
                                      : sheaf__json_parse(&config, c->json, strlen(c->json)));
    out->resolution = number(config, "scale_resolution", out->resolution);
    out->slices = number(config, "max_slice_nums", out->slices);
    if (json_is_false(json_object_get(config, "slice_mode")))
        out->slices = 1;
    if (c->minicpmv == SHEAF_MINICPMV_2_6 &&
        !json_is_false(json_object_get(config, "use_image_id"))) {
        out->mark[SHEAF__MARK_NUMBER].token = "<image_id>";
        out->mark[SHEAF__MARK_NUMBER].key = "im_id_start_token";
        out->mark[SHEAF__MARK_NUMBER_END].token = "</image_id>";
        out->mark[SHEAF__MARK_NUMBER_END].key = "im_id_end_token";
    }
    json_decref(config);
}
