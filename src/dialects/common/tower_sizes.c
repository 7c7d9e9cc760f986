/* tower_sizes.c - see tower_sizes.h. */
#include "dialects/common/tower_sizes.h"

#include "base/base.h"
#include "dialects/common/model_folder.h"

static sheaf_status *keep(sheaf_catalog *c, const sheaf_encoder *e, const char *pixels, bool image,
                          const char *path)
{
    char *value = NULL, side[32];
    snprintf(side, sizeof side, "%" PRId64, e->image);
    if (asprintf(&value,
                 "{\"embed_dim\": %" PRId64 ", \"layers\": %" PRId64 ", \"width\": %" PRId64
                 ", \"head_width\": %" PRId64 ", \"mlp_ratio\": %.17g}",
                 e->embed, e->layers, e->width, e->head_width,
                 ((double)e->ffn + 0.5) / (double)e->width) < 0)
        return sheaf__no_memory(c->root);
    sheaf_status *st = sheaf_hf_config_change(&c->config, "encoder_override", value);
    TRY(st, image ? sheaf_hf_config_change(&c->config, pixels, side) : NULL);
    TRY(st,
        sheaf__note(c, "inferred", path, "", "upstream's tower, which files do not describe", "",
                    "by the tensors: %" PRId64 " blocks of width %" PRId64 ", MLP %" PRId64
                    ", heads of %" PRId64,
                    e->layers, e->width, e->ffn, e->head_width));
    free(value);
    return st;
}

bool sheaf__config_lacks_tower(const sheaf_config *config, const json_t *json)
{
    return sheaf__family_for(config)->sizes != NULL &&
           json_object_get(json, "encoder_override") == NULL;
}

sheaf_status *sheaf__catalog_tower_sizes(sheaf_catalog *c, sheaf_config *config, const json_t *json,
                                         const char *path)
{
    const sheaf__family *family = sheaf__family_for(config);
    const char *pixels =
        family->classes != NULL ? "cross_image_pix" : "cross_image_size"; /* SAT's */
    if (!sheaf__config_lacks_tower(config, json))
        return NULL;
    const sheaf_encoder was = config->encoder;
    const bool image = json_object_get(json, pixels) == NULL;
    if (image)
        config->encoder.image = 0;
    family->sizes(config, c);
    const sheaf_encoder *e = &config->encoder;
    const bool same = was.layers == e->layers && was.width == e->width && was.ffn == e->ffn &&
                      was.embed == e->embed && was.head_width == e->head_width &&
                      was.image == e->image;
    return same || e->width < 1 ? NULL : keep(c, e, pixels, image, path);
}
