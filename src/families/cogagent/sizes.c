/* sizes.c - the high-resolution tower, whose sizes upstream's code fixes and files do not state: by
 * the tensors. Others stay as they are. */
#include "base/base.h"
#include "catalog/catalog.h"
#include "families/cog/cog.h"

#define TOWER "mixins.encoder.vit.model."

static const sheaf_source_entry *entry_of(const sheaf_catalog *c, const char *name, int ndim)
{
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    return t != NULL && t->told.ndim == ndim ? &t->told : NULL;
}

void sheaf__cogagent_sizes(sheaf_config *config, const sheaf_catalog *c)
{
    sheaf_encoder *e = &config->encoder;
    const sheaf_source_entry *patch = entry_of(c, TOWER "patch_embed.proj.weight", 4);
    const sheaf_source_entry *tokens = entry_of(c, "mixins.encoder.pos_embed", 2);
    const sheaf_source_entry *cosines = entry_of(c, TOWER "rope.freqs_cos", 2),
                             *w1 = entry_of(c, TOWER "blocks.0.mlp.w1.weight", 2);
    const sheaf_source_entry *head = entry_of(c, TOWER "head.weight", 2);
    if (patch != NULL) {
        e->width = patch->shape[0];
        e->channels = patch->shape[1];
        e->patch = patch->shape[2];
    }
    if (cosines != NULL)
        e->head_width = cosines->shape[1];
    if (w1 != NULL)
        e->ffn = w1->shape[0];
    if (head != NULL)
        e->embed = head->shape[0];
    if (e->image == 0 && tokens != NULL && e->patch > 0 && e->patch <= 1 << 16)
        for (int64_t side = 1; side <= 4096 && side * side <= tokens->shape[0]; side++)
            e->image = side * side == tokens->shape[0] ? side * e->patch : e->image;
    int64_t layers = 0;
    for (int64_t i = 0; i < c->count; i++) {
        static const char block[] = TOWER "blocks.";
        if (strncmp(c->tensor[i].told.name, block, sizeof block - 1) == 0) {
            const int64_t n = strtoll(c->tensor[i].told.name + sizeof block - 1, NULL, 10) + 1;
            layers = n > layers ? n : layers;
        }
    }
    e->layers = layers > 0 ? layers : e->layers;
}
