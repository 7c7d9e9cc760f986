/* cog.c - the descriptors of CogVLM and CogAgent in SAT's form, which share all but the second
 * tower, and that it is looked at; what SAT trains of them, and how. hub.c has the hub's form. */
#include "families/cog/cog.h"

#include "base/base.h"
#include "base/elementary.h"
#include "catalog/catalog.h"
#include "families/common/eva_clip.h"

#define TOWER "mixins.encoder.vit.model."

/* ---- small models that `init` makes by name ---- */

static const sheaf__family_spec cogvlm_specs[] = {
    { "cogvlm-tiny",
      "CogVLM, byte vocabulary, hidden 128, 4 layers, images of 56 x 56: 2.4 million parameters" },
    { NULL },
};
static const sheaf__family_spec cogagent_specs[] = {
    { "cogagent-tiny",
      "CogAgent, the same with a tower for images of 112 x 112: 2.7 million parameters" },
    { NULL },
};

/* ---- what is trained ---- */

/* The names of SAT's norm modules: input_layernorm, norm1, inner_attn_ln, ... */
static bool is_norm(const char *module, size_t size)
{
    return memmem(module, size, "norm", 4) != NULL ||
           (size > 3 && memcmp(module + size - 3, "_ln", 3) == 0);
}

/* SAT's rule (its deepspeed_training.py): all but the parameters of norms and those called exactly
 * `bias`; q_bias, v_bias, tables and factors decay. */
static bool decays(const char *name)
{
    const char *last = strrchr(name, '.');
    if (last == NULL)
        return strcmp(name, "bias") != 0;
    if (strcmp(last, ".bias") == 0)
        return false;
    const char *module = last;
    while (module > name && module[-1] != '.')
        module--;
    return !is_norm(module, (size_t)(last - module));
}

static const char *const adapted[] = { "attention.query_key_value", "attention.dense",
                                       "cross_attention.query",     "cross_attention.key_value",
                                       "cross_attention.dense",     NULL };
static const sheaf__sat_layers sat_layers = { "transformer.layers.",
                                              "mixins.eva.vit_model.transformer.layers.", adapted };

/* The number of the block behind the one that a name of a file goes on with. */
static int64_t next_block(const char *text)
{
    const long long n = strtoll(text, NULL, 10);
    return n < INT32_MAX ? n + 1 : INT32_MAX;
}

/* Rotary tables, and what no pass through CogAgent's tower reads: its last block, norm and head. */
bool sheaf__cog_idle(const char *tower, const char *name,
                     bool (*has)(const void *self, const char *begin), const void *self)
{
    char next[80];
    if (strncmp(name, tower, strlen(tower)) != 0)
        return false;
    const char *inside = name + strlen(tower);
    if (strstr(inside, "rope.freqs_") != NULL || strncmp(inside, "norm.", 5) == 0 ||
        strncmp(inside, "head.", 5) == 0)
        return true;
    if (strncmp(inside, "blocks.", 7) != 0)
        return false;
    snprintf(next, sizeof next, "%sblocks.%" PRId64 ".", tower, next_block(inside + 7));
    return !has(self, next);
}

static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return sheaf__cog_idle(TOWER, name, has, self);
}

static const sheaf__component_rule components[] = {
    { "mixins.eva.vit_model.", SHEAF_PLAN_VIT },
    { "mixins.eva.", SHEAF_PLAN_ADAPTER },
    { "mixins.encoder.", SHEAF_PLAN_TOWER },
    { "mixins.rotary.vision_", SHEAF_PLAN_EXPERTS },
    { "mixins.mlp.vision_", SHEAF_PLAN_EXPERTS },
    { "cross_attention", SHEAF_PLAN_CROSS },
    { "word_embeddings", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

/* ---- what SAT computes when it makes a model ---- */

enum { PRETRAINED_GRID = 16 }; /* patches of a side of the images that EVA02-CLIP learned from */

static double frequency(int64_t i, int64_t width)
{
    return 1.0 / sheaf__pow_d(10000, 2.0 * (double)i / (double)width);
}

/* CogVLM's buffers (as its mixin.py and eva_clip_L_hf.py make them): the frequencies of the text
 * model; the cosines and sines of the high-resolution tower, [patches, head], where the first half
 * of a head turns with the row and the second with the column, two neighbours by one angle. */
float sheaf__cog_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
{
    if (t->ndim == 1)
        return (float)frequency(index, c->head_dim);
    const int64_t side = c->encoder.image / c->encoder.patch, width = t->shape[1];
    const int64_t patch = index / width, in_head = index % width, half = width / 2;
    const int64_t at = in_head < half ? patch / side : patch % side;
    const float place = (float)at / (float)side * (float)PRETRAINED_GRID;
    const float angle = place * (float)frequency(in_head % half / 2, half);
    return (float)(sheaf__ends_with(t->name, "cos") ? sheaf__cos_d((double)angle)
                                                    : sheaf__sin_d((double)angle));
}

/* ---- towers ---- */

/* The ViT, whose rows stand in the sequence; and CogAgent's, for cross-attention. */
int sheaf__cog_towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    const sheaf_encoder *e = &c->encoder;
    const bool looks = sheaf__has_cross(c);
    out[0] = sheaf__vit_tower(c, 1, c->patches);
    if (!sheaf__cog_is_agent(c))
        return 1;
    const int64_t side = e->patch > 0 ? e->image / e->patch : 0;
    out[1] = (sheaf__tower){ .channels = e->channels,
                             .height = e->image,
                             .width = e->image,
                             .patch = e->patch,
                             .patches = side * side,
                             .rows = side * side + 1,
                             .gives = looks ? side * side : 0,
                             .columns = e->width,
                             .beside = true };
    return 2;
}

static const sheaf_source_entry *entry_of(const sheaf_config *config, const sheaf_catalog *c,
                                          const char *name, int ndim)
{
    char own[SHEAF__SPELLED];
    const sheaf_logical *t =
        sheaf__catalog_find(c, sheaf__spelled(own, sheaf__family_for(config), name));
    return t != NULL && t->entry.ndim == ndim ? &t->entry : NULL;
}

/* Of the high-resolution tower, whose sizes upstream's code fixes and files do not state: by the
 * tensors. Others stay as they are. */
void sheaf__cog_sizes(sheaf_config *config, const sheaf_catalog *c)
{
    sheaf_encoder *e = &config->encoder;
    const sheaf_source_entry *patch = entry_of(config, c, TOWER "patch_embed.proj.weight", 4);
    const sheaf_source_entry *tokens = entry_of(config, c, "mixins.encoder.pos_embed", 2);
    const sheaf_source_entry *cosines = entry_of(config, c, TOWER "rope.freqs_cos", 2),
                             *w1 = entry_of(config, c, TOWER "blocks.0.mlp.w1.weight", 2);
    const sheaf_source_entry *head = entry_of(config, c, TOWER "head.weight", 2);
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
    char own[SHEAF__SPELLED];
    const char *block = sheaf__spelled(own, sheaf__family_for(config), TOWER "blocks.");
    for (int64_t i = 0; i < c->count; i++) {
        if (strncmp(c->tensor[i].entry.name, block, strlen(block)) == 0) {
            const int64_t n = next_block(c->tensor[i].entry.name + strlen(block));
            layers = n > layers ? n : layers;
        }
    }
    e->layers = layers > 0 ? layers : e->layers;
}

/* ---- the descriptors ---- */

static const char *const cogvlm_classes[] = { "CogVLMModel", "FineTuneTrainCogVLMModel",
                                              "FineTuneTestCogVLMModel", NULL };
static const char *const cogagent_classes[] = { "CogAgentModel", "FineTuneTrainCogAgentModel",
                                                "FineTuneTestCogAgentModel", NULL };

#define TELLS "mixins.rotary.vision_query_key_value_list.:weight|mixins.lm.lm_head:weight"
#define LIKE_COG                                                                                   \
    .position_key = "max_sequence_length", .claims = sheaf__cog_claims, .read = sheaf__cog_config, \
    .text = sheaf__cog_text, .rows = sheaf__cog_rows, .sat_rule = sheaf__cog_sat_rule,             \
    .components = components, .towers = sheaf__cog_towers, .lora_targets = "sat", .paths = true,   \
    .decays = decays, .sat_layers = &sat_layers, .head = "mixins.lm.lm_head.weight",               \
    .table = "transformer.word_embeddings.weight", .sat_begin = "mixins.", .idle = idle,           \
    .buffer = sheaf__cog_buffer, .frequencies = "mixins.rotary.rotary_emb.inv_freq",               \
    .angles_rounded = true, .build = sheaf__cog_build, .encode = sheaf__cog_encode,                \
    .place = sheaf__eva_place

static const sheaf__other_form vlm_on_hub = { "cogvlm_hf", sheaf__cog_hub_form },
                               agent_on_hub = { "cogagent_hf", sheaf__cog_hub_form };

const sheaf__family sheaf__family_cogvlm = {
    .id = SHEAF_COGVLM,
    .name = "cogvlm",
    .title = "CogVLM",
    .classes = cogvlm_classes,
    .other = &vlm_on_hub,
    .specs = cogvlm_specs,
    .image = { .before = 1, .after = 1, .most = 1, .experts = true, .one_position = true },
    .signature = TELLS,
    LIKE_COG,
};

const sheaf__family sheaf__family_cogagent = {
    .id = SHEAF_COGAGENT,
    .name = "cogagent",
    .title = "CogAgent",
    .classes = cogagent_classes,
    .other = &agent_on_hub,
    .specs = cogagent_specs,
    .image = { .before = 1,
               .after = 1,
               .most = 1,
               .experts = true,
               .one_position = true,
               .needed = true },
    /* of a model that lost its tower, cross-attention tells */
    .signature = TELLS " mixins.encoder.:|cross_attention:weight",
    .sizes = sheaf__cog_sizes,
    .tower_names = "mixins.encoder.*, mixins.eva.pos_embed",
    LIKE_COG,
};
