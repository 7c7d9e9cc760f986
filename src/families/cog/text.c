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
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        { "inner_hidden_size", c->ffn },
        { "num_layers", c->layers },
        { "max_sequence_length", c->max_position },
        { "image_length", c->patches },
        { "layers with visual experts", c->experts },
        { "cross_hidden_size_per_attention_head", c->cross_head_dim },
        { "cross_attn_hidden_size", c->cross_width },
        { "eva_args.num_layers", v->layers },
        { "eva_args.hidden_size", v->hidden },
        { "eva_args.num_attention_heads", v->heads },
        { "eva_args.inner_hidden_size", v->ffn },
        { "eva_args.vocab_size", v->vocab },
        { "eva_args.max_sequence_length", v->positions },
        { "eva_args.image_size.0", v->height },
        { "eva_args.image_size.1", v->width },
        { "eva_args.patch_size", v->patch },
        { "eva_args.in_channels", v->channels },
        { "encoder_override.layers", e->layers },
        { "encoder_override.width", e->width },
        { "encoder_override.head_width", e->head_width },
        { "encoder_override.mlp_ratio, as a width", e->ffn },
        { "encoder_override.embed_dim", e->embed },
        { "cross_image_pix", e->image },
        { "patch size of the high-resolution tower", e->patch },
        { "channels of the high-resolution tower", e->channels },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        sheaf__config_whole(t, rows[i].key, rows[i].value);
    sheaf__config_real(t, "layernorm_epsilon", c->rms_eps);
    sheaf__config_real(t, "eva_args.layernorm_epsilon", v->norm_eps);
    sheaf__config_rope(t, c);
    add_cross_layers(t, c);
}
