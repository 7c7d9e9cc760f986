/* config_text.c - see config_text.h. */
#include "schema/config_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

static void whole(sheaf_text *t, const char *key, int64_t value)
{
    sheaf__text_add(t, "%s: %" PRId64 "\n", key, value);
}
static void yes_no(sheaf_text *t, const char *key, bool value)
{
    sheaf__text_add(t, "%s: %s\n", key, value ? "true" : "false");
}

/* The shortest of the decimals that read back as the same number. */
static void real(sheaf_text *t, const char *key, double value)
{
    char number[40];
    const bool plain = value < 1e15 && value > -1e15 && value == (double)(int64_t)value;
    snprintf(number, sizeof number, "%.0f", value);
    for (int digits = 1; !plain && digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtod(number, NULL) == value)
            break;
    }
    sheaf__text_add(t, "%s: %s\n", key, number);
}

static void add_rope(sheaf_text *t, const sheaf_config *c)
{
    static const char *const types[] = { [SHEAF_ROPE_DEFAULT] = "default",
                                         [SHEAF_ROPE_LINEAR] = "linear",
                                         [SHEAF_ROPE_LLAMA3] = "llama3" };
    real(t, "rope_theta", c->rope.theta);
    sheaf__text_add(t, "rope_scaling.rope_type: %s\n", types[c->rope.type]);
    real(t, "rope_scaling.factor", c->rope.factor);
    real(t, "rope_scaling.low_freq_factor", c->rope.low_freq_factor);
    real(t, "rope_scaling.high_freq_factor", c->rope.high_freq_factor);
    whole(t, "rope_scaling.original_max_position_embeddings", c->rope.original_length);
    real(t, "partial_rotary_factor", c->rope.partial);
}

static void add_text_model(sheaf_text *t, const sheaf_config *c)
{
    whole(t, "intermediate_size", c->ffn);
    whole(t, "num_hidden_layers", c->layers);
    whole(t, "num_key_value_heads", c->kv_heads);
    whole(t, "head_dim", c->head_dim);
    whole(t, "max_position_embeddings", c->max_position);
    real(t, "rms_norm_eps", c->rms_eps);
    yes_no(t, "attention_bias", c->qkv_bias || c->o_bias);
    yes_no(t, "mlp_bias", c->mlp_bias);
    yes_no(t, "tie_word_embeddings", c->tied);
    add_rope(t, c);
    whole(t, "sliding_window", c->window);
    whole(t, "max_window_layers", c->window_from_layer);
}

/* One character for each layer. */
static void add_cross_layers(sheaf_text *t, const sheaf_config *c)
{
    sheaf__text_add(t, "is_decoder: ");
    for (int64_t i = 0; i < c->layers; i++)
        sheaf__text_add(t, "%d", (int)(c->cross_layers[i / 64] >> i % 64 & 1));
    sheaf__text_add(t, "\n");
}

static void add_vision(sheaf_text *t, const sheaf_config *c)
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
        whole(t, rows[i].key, rows[i].value);
    real(t, "layernorm_epsilon", c->rms_eps);
    real(t, "eva_args.layernorm_epsilon", v->norm_eps);
    add_rope(t, c);
    add_cross_layers(t, c);
}

static void add_tokens(sheaf_text *t, const sheaf_config *c)
{
    whole(t, "bos_token_id", c->bos);
    whole(t, "pad_token_id", c->pad);
    sheaf__text_add(t, "eos_token_id:");
    for (int i = 0; i < c->neos; i++)
        sheaf__text_add(t, " %" PRId64, c->eos[i]);
    sheaf__text_add(t, "\nsheaf_tokenizer: %s\n", c->byte_vocab ? "bytes" : "none");
}

/* inputs/choose.c reads it from the whole text too. */
static sheaf_status *add_template(sheaf_text *t, const sheaf_config *c)
{
    json_t *object = NULL;
    sheaf_status *st =
        c->json == NULL ? NULL : sheaf__json_parse(&object, c->json, strlen(c->json));
    const char *name = json_string_value(json_object_get(object, "text_processor_version"));
    if (name != NULL) {
        sheaf__text_add(t, "text_processor_version: ");
        sheaf__text_json(t, name);
        sheaf__text_add(t, "\n");
    }
    json_decref(object);
    return st;
}

sheaf_status *sheaf__config_text(char **out, const sheaf_config *c)
{
    sheaf_text t = { 0 };
    sheaf__text_add(&t, "model_type: %s\n", sheaf_family_name(c->family));
    whole(&t, "vocab_size", c->vocab);
    whole(&t, "hidden_size", c->hidden);
    whole(&t, "num_attention_heads", c->heads);
    if (c->family == SHEAF_COGVLM || c->family == SHEAF_COGAGENT)
        add_vision(&t, c);
    else
        add_text_model(&t, c);
    add_tokens(&t, c);
    sheaf_status *st = add_template(&t, c);
    if (st == NULL)
        st = sheaf__text_take(out, &t);
    sheaf__text_release(&t);
    return st;
}
