/* cog.h - what CogVLM and CogAgent share: all but the second tower, and that it is looked at. */
#pragma once

#include "families/common/families.h"

/* sheaf__cog_claims - does the config name a model's class as SAT does, and no other program? */
bool sheaf__cog_claims(const json_t *object);
void sheaf__cog_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__cog_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__cog_rows(sheaf_schema *schema);
bool sheaf__cog_sat_rule(sheaf_sat_rule *out, const char *name);
extern const sheaf__component_rule sheaf__cog_components[];
/* sheaf__cog_decays - SAT's rule (its deepspeed_training.py): all but the parameters of
 * norms and those called exactly `bias`; q_bias, v_bias, tables and factors decay. */
bool sheaf__cog_decays(const char *name);
extern const sheaf__sat_layers sheaf__cog_sat_layers;
bool sheaf__cog_idle(const char *name, bool (*has)(const void *self, const char *begin),
                     const void *self);
float sheaf__cog_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index);
/* sheaf__cog_spec - the config of its one small model. */
sheaf_status *sheaf__cog_spec(char **out, const sheaf__family *family);
/* What the names of tensors of either have. */
#define SHEAF__COG_TELLS                                                                           \
    "mixins.rotary.vision_query_key_value_list.:weight|mixins.lm.lm_head:weight"
/* The ViT, whose rows stand in the sequence; and CogAgent's, for cross-attention. */
int sheaf__cog_towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c);

sheaf_status *sheaf__cog_build(struct sheaf__model *m);
struct sheaf__value *sheaf__cog_see(struct sheaf__model *m, struct sheaf__tape *tape,
                                    const struct sheaf__pass *pass, int tower);
void sheaf__cog_place(struct sheaf__model *m, struct sheaf__tape *tape, struct sheaf__value *x,
                      struct sheaf__value *image, const struct sheaf__pass *pass);
void sheaf__cog_release(struct sheaf__model *m);
/* sheaf__cogagent_sizes - of the second tower, by its tensors. */
void sheaf__cogagent_sizes(sheaf_config *config, const struct sheaf_catalog *found);

/* What a descriptor of either says. */
#define SHEAF__LIKE_COG                                                                            \
    .position_key = "max_sequence_length", .claims = sheaf__cog_claims, .read = sheaf__cog_config, \
    .text = sheaf__cog_text, .rows = sheaf__cog_rows, .sat_rule = sheaf__cog_sat_rule,             \
    .components = sheaf__cog_components, .towers = sheaf__cog_towers, .lora_targets = "sat",       \
    .paths = true, .decays = sheaf__cog_decays, .sat_layers = &sheaf__cog_sat_layers,              \
    .head = "mixins.lm.lm_head.weight", .table = "transformer.word_embeddings.weight",             \
    .sat_begin = "mixins.", .idle = sheaf__cog_idle, .buffer = sheaf__cog_buffer,                  \
    .frequencies = "mixins.rotary.rotary_emb.inv_freq", .build = sheaf__cog_build,                 \
    .see = sheaf__cog_see, .place = sheaf__cog_place, .release = sheaf__cog_release
