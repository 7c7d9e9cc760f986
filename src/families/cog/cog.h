/* cog.h - the parts of the descriptors of CogVLM and CogAgent (cog.c). */
#pragma once

#include "families/common/families.h"

/* Both models have two forms: SAT's, whose names of tensors rows and builder have, and that of
 * their folders on the hub. */
static inline bool sheaf__cog_is_hub(const sheaf_config *c)
{
    return c->family == SHEAF_COGVLM_HF || c->family == SHEAF_COGAGENT_HF;
}
static inline bool sheaf__cog_is_agent(const sheaf_config *c)
{
    return c->family == SHEAF_COGAGENT || c->family == SHEAF_COGAGENT_HF;
}

/* Names: SAT's, and the hub's. */
extern const sheaf__name_rule sheaf__cog_names[];

/* sheaf__cog_hub_claims, sheaf__cog_hub_config - of config.json on the hub. */
bool sheaf__cog_hub_claims(const json_t *object);
void sheaf__cog_hub_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
extern const sheaf_encoder sheaf__cog_standard_encoder;
extern const double sheaf__cog_standard_mlp_ratio;
/* sheaf__cog_read_encoder - "encoder_override", and the size of its pictures by `pixels_key`. */
void sheaf__cog_read_encoder(sheaf_json_reader *all, sheaf_config *c, const char *pixels_key,
                             sheaf_text *unknown);

/* Of both forms (cog.c). `tower`: how names of the high-resolution tower begin. */
bool sheaf__cog_idle(const char *tower, const char *name,
                     bool (*has)(const void *self, const char *begin), const void *self);
float sheaf__cog_buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index);
int sheaf__cog_towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c);
void sheaf__cog_sizes(sheaf_config *config, const struct sheaf_catalog *found);

/* The config of the one form as that of the other (forms.c). */
sheaf_status *sheaf__cog_hub_form(char **out, const char *json, const sheaf_config *c);
sheaf_status *sheaf__cog_sat_form(char **out, const char *json, const sheaf_config *c);
enum { SHEAF__COG_EXPERT_LAYERS = 32 }; /* fixed in SAT's code: the first of them have experts */

/* sheaf__cog_claims - does the config name a model's class as only SAT does? */
bool sheaf__cog_claims(const json_t *object);
void sheaf__cog_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__cog_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__cog_rows(sheaf_schema *schema);
bool sheaf__cog_sat_rule(sheaf_sat_rule *out, const char *name);
sheaf_status *sheaf__cog_build(struct sheaf__model *m);
struct sheaf__value *sheaf__cog_encode(struct sheaf__model *m, struct sheaf__tape *tape,
                                       const struct sheaf__pass *pass, int tower);
