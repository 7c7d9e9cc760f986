/* text.c - see sheaf__config_text(). */
#include <inttypes.h>

#include "families/cog/cog.h"
#include "schema/config_text.h"

/* One character for each layer. */
static void add_cross_layers(sheaf_text *t, const sheaf_config *c)
{
    sheaf__text_add(t, "is_decoder: ");
    for (int64_t i = 0; i < c->layers; i++)
        sheaf__text_add(t, "%d", (int)(c->cross_layers[i / 64] >> i % 64 & 1));
    sheaf__text_add(t, "\n");
}

void sheaf__cog_text(sheaf_text *t, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const sheaf_encoder *e = &c->encoder;
    sheaf__config_whole(t, "inner_hidden_size", c->ffn);
    sheaf__config_whole(t, "num_layers", c->layers);
    sheaf__config_whole(t, "max_sequence_length", c->max_position);
    sheaf__config_whole(t, "image_length", c->patches);
    sheaf__config_whole(t, "layers with visual experts", c->experts);
    sheaf__config_whole(t, "cross_hidden_size_per_attention_head", c->cross_head_dim);
    sheaf__config_whole(t, "cross_attn_hidden_size", c->cross_width);
    sheaf__config_whole(t, "eva_args.num_layers", v->layers);
    sheaf__config_whole(t, "eva_args.hidden_size", v->hidden);
    sheaf__config_whole(t, "eva_args.num_attention_heads", v->heads);
    sheaf__config_whole(t, "eva_args.inner_hidden_size", v->ffn);
    sheaf__config_whole(t, "eva_args.vocab_size", v->vocab);
    sheaf__config_whole(t, "eva_args.max_sequence_length", v->positions);
    sheaf__config_whole(t, "eva_args.image_size.0", v->height);
    sheaf__config_whole(t, "eva_args.image_size.1", v->width);
    sheaf__config_whole(t, "eva_args.patch_size", v->patch);
    sheaf__config_whole(t, "eva_args.in_channels", v->channels);
    sheaf__config_whole(t, "encoder_override.layers", e->layers);
    sheaf__config_whole(t, "encoder_override.width", e->width);
    sheaf__config_whole(t, "encoder_override.head_width", e->head_width);
    sheaf__config_whole(t, "encoder_override.mlp_ratio, as a width", e->ffn);
    sheaf__config_whole(t, "encoder_override.embed_dim", e->embed);
    sheaf__config_whole(t, "cross_image_pix", e->image);
    sheaf__config_whole(t, "patch size of the high-resolution tower", e->patch);
    sheaf__config_whole(t, "channels of the high-resolution tower", e->channels);
    sheaf__config_real(t, "layernorm_epsilon", c->rms_eps);
    sheaf__config_real(t, "eva_args.layernorm_epsilon", v->norm_eps);
    sheaf__config_rope(t, c);
    add_cross_layers(t, c);
}
