/* pictures.c - how MiniCPM-V's pictures stand in a conversation and fall into slices, and how its
 * chat() asks. 2.0 and 2.5 write a slice as a picture, later ones as a slice, numbered. */
#include "base/base.h"
#include "families/minicpmv/minicpmv.h"

#include "base/json.h"
#include "schema/picture_keys.h"

static const sheaf__picture_form form = {
    .mark = { [SHEAF__MARK_BEGIN] = { "<image>", "im_start_token" },
              [SHEAF__MARK_ROW] = { "<unk>", "unk_token" },
              [SHEAF__MARK_END] = { "</image>", "im_end_token" },
              [SHEAF__MARK_SLICE] = { "<slice>", "slice_start_token" },
              [SHEAF__MARK_SLICE_END] = { "</slice>", "slice_end_token" } },
    .resolution = 448,
    .slices = 9,
    .mean = { 0.5f, 0.5f, 0.5f },
    .std = { 0.5f, 0.5f, 0.5f },
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

static int64_t whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : 0;
}

/* A whole number of the config: upstream takes slice_config first. `otherwise` where neither has
 * one. */
static int64_t number(const json_t *config, const char *key, int64_t otherwise)
{
    const int64_t inner = whole(json_object_get(config, "slice_config"), key),
                  n = inner > 0 ? inner : whole(config, key);
    return n > 0 ? n : otherwise;
}

void sheaf__minicpmv_pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    const sheaf__minicpmv_version *version = sheaf__minicpmv_version_of(c);
    json_t *config = NULL;
    *out = form;
    out->rows = c->resampler.queries;
    out->bos = c->minicpmv == SHEAF_MINICPMV_2_0;
    out->chat = version->chat;
    out->stop = version->stop;
    out->thoughts_said = version->thoughts;
    out->together = !version->numbered;
    /* the reader of the config has complained of what is no JSON */
    sheaf_status_free(c->json == NULL ? NULL
                                      : sheaf__json_parse(&config, c->json, strlen(c->json)));
    out->resolution = number(config, "scale_resolution", out->resolution);
    out->slices = number(config, "max_slice_nums", out->slices);
    if (version->frame_slices > 0)
        out->video = (sheaf__video_form){ .fps = 5, .slices = version->frame_slices };
    if (json_is_false(json_object_get(config, "slice_mode")))
        out->slices = 1;
    if (version->numbered && !json_is_false(json_object_get(config, "use_image_id"))) {
        out->mark[SHEAF__MARK_NUMBER].token = "<image_id>";
        out->mark[SHEAF__MARK_NUMBER].key = "im_id_start_token";
        out->mark[SHEAF__MARK_NUMBER_END].token = "</image_id>";
        out->mark[SHEAF__MARK_NUMBER_END].key = "im_id_end_token";
    }
    json_decref(config);
}

/* One setting as three places may have it. */
static void compare(sheaf_text *out, const json_t *config, const json_t *beside, const char *name,
                    const char *key, int64_t counts)
{
    const int64_t own = whole(config, key), other = whole(beside, key),
                  inner = whole(json_object_get(config, "slice_config"), key);
    const char *where = inner > 0 ? "of slice_config"
                        : own > 0 ? "of config.json"
                                  : "the default, as config.json has none";
    const bool none = own == 0 && inner == 0 && strcmp(key, "max_slice_nums") == 0;
    if ((own == 0 || own == counts) && (other == 0 || other == counts) && !none)
        return;
    sheaf__text_add(out, "%s%s %" PRId64 ", %s, counts", out->size > 0 ? "; " : "", key, counts,
                    where);
    if (own > 0 && own != counts)
        sheaf__text_add(out, ", not %" PRId64 " at the top of config.json", own);
    if (other > 0 && other != counts)
        sheaf__text_add(out, ", not %" PRId64 " of %s", other, name);
}

static void compare_switch(sheaf_text *out, const json_t *config, const json_t *beside,
                           const char *name, const char *key)
{
    const json_t *other = json_object_get(beside, key);
    const bool own = !json_is_false(json_object_get(config, key));
    if (json_is_boolean(other) && json_is_true(other) != own)
        sheaf__text_add(out, "%s%s %s counts, not %s of %s", out->size > 0 ? "; " : "", key,
                        own ? "true" : "false", own ? "false" : "true", name);
}

void sheaf__minicpmv_disagree(sheaf_text *out, const sheaf_config *c, const json_t *beside,
                              const char *name)
{
    json_t *config = NULL;
    sheaf_status_free(c->json == NULL ? NULL
                                      : sheaf__json_parse(&config, c->json, strlen(c->json)));
    compare(out, config, beside, name, "max_slice_nums",
            number(config, "max_slice_nums", form.slices));
    compare(out, config, beside, name, "scale_resolution",
            number(config, "scale_resolution", form.resolution));
    compare_switch(out, config, beside, name, "slice_mode");
    if (sheaf__minicpmv_version_of(c)->numbered)
        compare_switch(out, config, beside, name, "use_image_id");
    json_decref(config);
}

/* Keys of its processor that change pixels, or how many rows a picture gives; slices are compared
 * with the config's. */
void sheaf__minicpmv_beside(sheaf_json_reader *r, sheaf_config *c)
{
    sheaf__picture_keys_same(r, "norm_mean", form.mean);
    sheaf__picture_keys_same(r, "norm_std", form.std);
    sheaf__picture_keys_whole(r, "patch_size", c->vit.patch, "the tower of config.json has it");
    sheaf__picture_keys_whole(r, "image_feature_size", c->resampler.queries,
                              "query_num of config.json");
}
