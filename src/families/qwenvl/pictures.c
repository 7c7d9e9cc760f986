/* pictures.c - how Qwen-VL's pictures stand in a conversation, and how large they are: the settings
 * that lie beside the config. */
#include "base/base.h"
#include "families/qwenvl/qwenvl.h"
#include "schema/config_keys.h"
#include "schema/picture_keys.h"

/* Of the processor's class, where no file says others. */
enum { LEAST_PIXELS = 56 * 56, MOST_PIXELS = 28 * 28 * 1280 };
enum { FRAME_LEAST = 128, FRAME_MOST = 768, FEWEST_FRAMES = 4, MOST_FRAMES = 768 };

static const float means[3] = { 0.48145466f, 0.4578275f, 0.40821073f },
                   deviations[3] = { 0.26862954f, 0.26130258f, 0.27577711f };

void sheaf__qwenvl_pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    const bool third = sheaf__qwenvl_is_third(c);
    const int64_t unit = third ? 32 : 28; /* of the class, whatever the model's patches are */
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<|vision_start|>", "vision_start_token_id" },
                  [SHEAF__MARK_ROW] = { "<|image_pad|>", "image_token_id" },
                  [SHEAF__MARK_FRAME] = { "<|video_pad|>", "video_token_id" },
                  [SHEAF__MARK_END] = { "<|vision_end|>", "vision_end_token_id" } },
        .least = c->qwen_vit.least > 0 ? c->qwen_vit.least : LEAST_PIXELS,
        .most = c->qwen_vit.most > 0 ? c->qwen_vit.most : MOST_PIXELS,
        .joined = true,
        .on_white = true,
        .chat = third ? "chatml" : "qwen2",
        .byte_chat = third ? "chatml" : "qwen2",
        .temperature = third ? 0.7 : 0.000001,
        .top_p = third ? 0.8 : 0.001,
        .top_k = third ? 20 : 1,
        .repetition_penalty = third ? 1 : 1.05,
    };
    out->video = (sheaf__video_form){
        .fps = 2,
        .sampled = c->qwen_vit.video.all ? 0 : c->qwen_vit.video.fps,
        .few = FEWEST_FRAMES,
        .many = MOST_FRAMES,
        .whole = third,
        .least = FRAME_LEAST * unit * unit,
        .most = FRAME_MOST * unit * unit,
        .together = !third,
        .timed = third,
        .steps = c->qwen_vit.steps,
        .refused = c->qwen_vit.video.refused,
    };
    if (!c->qwen_vit.video.read)
        out->video.sampled = third ? 2 : 0;
    if (c->qwen_vit.video.few > 0)
        out->video.few = c->qwen_vit.video.few;
    if (c->qwen_vit.video.many > 0)
        out->video.many = c->qwen_vit.video.many;
    if (c->qwen_vit.video.least > 0)
        out->video.least = c->qwen_vit.video.least;
    if (c->qwen_vit.video.most > 0)
        out->video.most = c->qwen_vit.video.most;
    for (int i = 0; i < 3; i++) {
        const bool declared = c->qwen_vit.std[i] > 0;
        out->mean[i] = declared ? c->qwen_vit.mean[i] : third ? 0.5f : means[i];
        out->std[i] = declared ? c->qwen_vit.std[i] : third ? 0.5f : deviations[i];
    }
}

static int64_t pixels(sheaf_json_reader *r, const char *key)
{
    return sheaf__json_int(r, key, 1, (int64_t)1 << 40, 0);
}

/* min_pixels and max_pixels count before "size". A size of another form is an
 * error of the class too. */
static void read_sizes(sheaf_json_reader *r, int64_t *least, int64_t *most)
{
    static const char key[] = "size";
    const json_t *value = json_object_get(r->object, key);
    sheaf_json_reader size = { json_is_object(value) ? value : NULL, "size.", NULL };
    *least = pixels(r, "min_pixels");
    *most = pixels(r, "max_pixels");
    if (value == NULL || json_is_null(value))
        return;
    if (*least == 0)
        *least = pixels(&size, "shortest_edge");
    if (*most == 0)
        *most = pixels(&size, "longest_edge");
    sheaf__config_leave(r, &size);
    if (size.object == NULL || *least == 0 || *most == 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key,
                         "an object with shortest_edge and longest_edge, the least and the most "
                         "pixels of a picture");
}

/* Only classes that do as this one; others have other steps and sizes. */
static void check_class(sheaf_json_reader *r, const char *key, const char *ours)
{
    static const char published[] = "Qwen2_5_VLImageProcessor"; /* in the first files of 2.5 */
    const char *is = sheaf__json_string(r, key);
    if (is != NULL && strncmp(is, ours, strlen(ours)) != 0 &&
        strncmp(is, published, sizeof published - 1) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "\"%s\"", ours);
}

static void check_patches(sheaf_json_reader *r, const sheaf_config *c)
{
    static const char where[] = "config.json has it";
    sheaf__picture_keys_whole(r, "patch_size", c->vit.patch, where);
    sheaf__picture_keys_whole(r, "merge_size", c->qwen_vit.merge, where);
    sheaf__picture_keys_whole(r, "temporal_patch_size", c->qwen_vit.frames, where);
}

/* do_center_crop and do_pad have no effect there. */
void sheaf__qwenvl_beside(sheaf_json_reader *r, sheaf_config *c)
{
    sheaf_qwen_vit *q = &c->qwen_vit;
    check_class(r, "image_processor_type", "Qwen2VLImageProcessor");
    check_patches(r, c);
    /* the class's where the file says none, also of 3 */
    memcpy(q->mean, means, sizeof q->mean);
    memcpy(q->std, deviations, sizeof q->std);
    sheaf__picture_keys_scale(r, "image_mean", q->mean);
    sheaf__picture_keys_scale(r, "image_std", q->std);
    if (!(q->std[0] > 0 && q->std[1] > 0 && q->std[2] > 0))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "image_std", "numbers above 0");
    read_sizes(r, &q->least, &q->most);
}

/* Those of the file for pictures where there is none for videos, as transformers has it. */
void sheaf__qwenvl_videos_beside(sheaf_json_reader *r, sheaf_config *c)
{
    const bool third = sheaf__qwenvl_is_third(c);
    sheaf_qwen_vit *q = &c->qwen_vit;
    check_class(r, "video_processor_type",
                third ? "Qwen3VLVideoProcessor" : "Qwen2VLVideoProcessor");
    check_patches(r, c);
    if (sheaf__json_bool(r, "cap_pixels_per_frame", false))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "cap_pixels_per_frame", "false");
    q->video.read = true;
    q->video.all = !sheaf__json_bool(r, "do_sample_frames", third);
    q->video.fps = sheaf__json_real(r, "fps", 1e-3, 1000, third ? 2 : 0);
    q->video.few = sheaf__json_int(r, "min_frames", 1, 1 << 20, 0);
    q->video.many = sheaf__json_int(r, "max_frames", 1, 1 << 20, 0);
    read_sizes(r, &q->video.least, &q->video.most);
}
