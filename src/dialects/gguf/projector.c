/* projector.c - what a config says of a tower and its resampler, as llama.cpp has them; see
 * model.h.
 *
 * Keys, their order and types are those of llama.cpp's own script for MiniCPM-V. What they cannot
 * say stands in its code: a table of 70 x 70 positions, three channels, heads of 128 in the
 * resampler, at most 9 slices of a picture. */
#include "base/base.h"
#include "dialects/gguf/model.h"

enum { HEAD = 128, CHANNELS = 3, SLICES = 9 };

static sheaf__picture_form pictures_of(const sheaf_config *c)
{
    sheaf__picture_form form = { 0 };
    sheaf__pictures_of(c)(&form, c);
    return form;
}

/* ---- what llama.cpp computes ---- */

static sheaf_status *refuse(const char *what, int64_t expected, int64_t found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf-mmproj`: %s", what);
    sheaf_expected(st, "%" PRId64 ", as llama.cpp has it in its code", expected);
    return sheaf_found(st, "%" PRId64, found);
}

sheaf_status *sheaf__gguf_can_project(const sheaf_config *c, const sheaf_events *events)
{
    const sheaf__gguf_projector *p = sheaf__gguf_projector_of(c);
    if (p == NULL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf-mmproj`"),
                           "MiniCPM-V 2.5, 2.6, 4.0 or 4.5, or MiniCPM-o 2.6, whose towers sheaf "
                           "writes for llama.cpp"),
            "a model of %s", sheaf__config_title(c));
    if (c->vit.positions != SHEAF__GGUF_GRID * SHEAF__GGUF_GRID)
        return refuse("positions of the tower, the square of vision_config.image_size over its "
                      "patch_size",
                      SHEAF__GGUF_GRID * SHEAF__GGUF_GRID, c->vit.positions);
    if (c->vit.channels != CHANNELS)
        return refuse("vision_config.num_channels", CHANNELS, c->vit.channels);
    if (c->resampler.heads * HEAD != c->hidden)
        return refuse("columns of a head of the resampler, hidden_size over resampler_num_heads",
                      HEAD, c->hidden / c->resampler.heads);
    if ((float)c->resampler.norm_eps != (float)c->vit.norm_eps)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf-mmproj`: resampler_ln_eps"),
                           "%g, that of the tower, as llama.cpp has one for both", c->vit.norm_eps),
            "%g", c->resampler.norm_eps);
    const int64_t slices = pictures_of(c).slices;
    if (slices != SLICES)
        sheaf_warn(events,
                   "max_slice_nums %" PRId64 ": llama.cpp divides a picture into up to %d slices",
                   slices, SLICES);
    if (p->places_lost)
        sheaf_warn(events,
                   "%s has the patches of a picture in one row, llama.cpp in rows and columns: its "
                   "answers differ",
                   sheaf__config_title(c));
    return NULL;
}

/* ---- keys and types ---- */

/* `value` for each of them. */
static void put_channels(sheaf__gguf_keys *keys, const char *key, float value)
{
    sheaf__gguf_put_array(keys, key, SHEAF__GGUF_F32, CHANNELS);
    for (int i = 0; i < CHANNELS; i++)
        sheaf__gguf_add_f32(keys, value);
}

void sheaf__gguf_projector_keys(sheaf__gguf_keys *keys, const sheaf_config *c,
                                sheaf__gguf_file file)
{
    const sheaf_vit *v = &c->vit;
    sheaf__gguf_put_text(keys, "general.architecture", "clip");
    sheaf__gguf_put_bool(keys, "clip.has_text_encoder", false);
    sheaf__gguf_put_bool(keys, "clip.has_vision_encoder", true);
    sheaf__gguf_put_bool(keys, "clip.has_minicpmv_projector", true);
    sheaf__gguf_put_u32(keys, "general.file_type", file);
    sheaf__gguf_put_text(keys, "general.description", "image encoder for MiniCPM-V");
    sheaf__gguf_put_text(keys, "clip.projector_type", "resampler");
    sheaf__gguf_put_i32(keys, "clip.minicpmv_version", sheaf__gguf_projector_of(c)->version);
    sheaf__gguf_put_u32(keys, "clip.vision.image_size", pictures_of(c).resolution);
    sheaf__gguf_put_u32(keys, "clip.vision.patch_size", v->patch);
    sheaf__gguf_put_u32(keys, "clip.vision.embedding_length", v->hidden);
    sheaf__gguf_put_u32(keys, "clip.vision.feed_forward_length", v->ffn);
    sheaf__gguf_put_u32(keys, "clip.vision.projection_dim", 0);
    sheaf__gguf_put_u32(keys, "clip.vision.attention.head_count", v->heads);
    sheaf__gguf_put_f32(keys, "clip.vision.attention.layer_norm_epsilon", v->norm_eps);
    sheaf__gguf_put_u32(keys, "clip.vision.block_count", v->layers);
    sheaf__gguf_put_u32(keys, "clip.minicpmv_query_num", c->resampler.queries);
    put_channels(keys, "clip.vision.image_mean", 0.5f); /* as MiniCPM-V's pictures */
    put_channels(keys, "clip.vision.image_std", 0.5f);
    sheaf__gguf_put_bool(keys, "clip.use_gelu", true);
}

/* llama.cpp convolves with float16 alone. */
sheaf__gguf_type sheaf__gguf_projector_type(sheaf__gguf_file file, const char *name, int ndim)
{
    const bool matrix = ndim == 2 && sheaf__ends_with(name, ".weight");
    return ndim == 4 || (matrix && file == SHEAF__GGUF_FILE_F16) ? SHEAF__GGML_F16
                                                                 : SHEAF__GGML_F32;
}
