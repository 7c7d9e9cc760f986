/* config_text.c - see config_text.h. */
#include "schema/config_text.h"

#include "base/base.h"
#include "base/json.h"
#include "base/json_write.h"
#include "schema/family.h"

void sheaf__config_whole(sheaf_text *t, const char *key, int64_t value)
{
    sheaf__text_add(t, "%s: %" PRId64 "\n", key, value);
}
void sheaf__config_yes_no(sheaf_text *t, const char *key, bool value)
{
    sheaf__text_add(t, "%s: %s\n", key, value ? "true" : "false");
}

void sheaf__config_real(sheaf_text *t, const char *key, double value)
{
    char number[SHEAF__JSON_NUMBER];
    sheaf__text_add(t, "%s: %s\n", key, sheaf__number_json(number, value));
}

const char *const sheaf__rope_names[SHEAF_ROPE_TYPES] = {
    [SHEAF_ROPE_DEFAULT] = "default", [SHEAF_ROPE_LINEAR] = "linear",
    [SHEAF_ROPE_LLAMA3] = "llama3",   [SHEAF_ROPE_DYNAMIC] = "dynamic",
    [SHEAF_ROPE_YARN] = "yarn",       [SHEAF_ROPE_LONGROPE] = "longrope",
};

void sheaf__config_rope(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_real(t, "rope_theta", c->rope.theta);
    sheaf__text_add(t, "rope_scaling.rope_type: %s\n", sheaf__rope_names[c->rope.type]);
    sheaf__config_real(t, "rope_scaling.factor", c->rope.factor);
    sheaf__config_real(t, "rope_scaling.low_freq_factor", c->rope.low_freq_factor);
    sheaf__config_real(t, "rope_scaling.high_freq_factor", c->rope.high_freq_factor);
    sheaf__config_whole(t, "rope_scaling.original_max_position_embeddings",
                        c->rope.original_length);
    sheaf__config_real(t, "partial_rotary_factor", c->rope.partial);
    if (c->rope.type == SHEAF_ROPE_YARN || c->rope.type == SHEAF_ROPE_LONGROPE)
        sheaf__config_real(t, "rope_scaling.attention_factor", c->rope.attention_factor);
    if (c->rope.type == SHEAF_ROPE_YARN) {
        sheaf__config_real(t, "rope_scaling.beta_fast", c->rope.beta_fast);
        sheaf__config_real(t, "rope_scaling.beta_slow", c->rope.beta_slow);
        sheaf__config_real(t, "rope_scaling.mscale", c->rope.mscale);
        sheaf__config_real(t, "rope_scaling.mscale_all_dim", c->rope.mscale_all_dim);
        sheaf__config_yes_no(t, "rope_scaling.truncate", c->rope.truncate);
    }
    for (int64_t i = 0; i < c->rope.pairs; i++)
        sheaf__config_real(t, "rope_scaling.short_factor", c->rope.short_factor[i]);
    for (int64_t i = 0; i < c->rope.pairs; i++)
        sheaf__config_real(t, "rope_scaling.long_factor", c->rope.long_factor[i]);
}

static void add_tokens(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_whole(t, "bos_token_id", c->bos);
    sheaf__config_whole(t, "pad_token_id", c->pad);
    sheaf__text_add(t, "eos_token_id:");
    for (int i = 0; i < c->neos; i++)
        sheaf__text_add(t, " %" PRId64, c->eos[i]);
    sheaf__text_add(t, "\nsheaf_tokenizer: %s\n", c->byte_vocab ? "bytes" : "none");
}

/* inputs/template.c reads it from the whole text too. */
static sheaf_status *add_template(sheaf_text *t, const sheaf_config *c)
{
    json_t *object = NULL;
    sheaf_status *st =
        c->json == NULL ? NULL : sheaf__json_parse(&object, c->json, strlen(c->json));
    const char *key = sheaf__template_key(c),
               *name = json_string_value(json_object_get(object, key));
    if (name != NULL) {
        sheaf__text_add(t, "%s: ", key);
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
    sheaf__config_whole(&t, "vocab_size", c->vocab);
    sheaf__config_whole(&t, "hidden_size", c->hidden);
    sheaf__config_whole(&t, "num_attention_heads", c->heads);
    sheaf__family_for(c)->text(&t, c);
    add_tokens(&t, c);
    if (c->scores)
        sheaf__text_add(&t, "scores: true\n");
    sheaf_status *st = add_template(&t, c);
    TRY(st, sheaf__text_take(out, &t));
    sheaf__text_release(&t);
    return st;
}
