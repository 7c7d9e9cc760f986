/* pictures.c - how MiniCPM-V's pictures stand in a conversation and fall into slices, and how its
 * chat() asks. 2.0 and 2.5 write a slice as a picture, 2.6 as a slice, with numbers. */
#include "families/minicpmv/minicpmv.h"

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
