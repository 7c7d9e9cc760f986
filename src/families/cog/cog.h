/* cog.h - the parts of the descriptors of CogVLM and CogAgent (cog.c). */
#pragma once

#include "families/common/families.h"

/* sheaf__cog_claims - does the config name a model's class as only SAT does? */
bool sheaf__cog_claims(const json_t *object);
void sheaf__cog_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__cog_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__cog_rows(sheaf_schema *schema);
bool sheaf__cog_sat_rule(sheaf_sat_rule *out, const char *name);
sheaf_status *sheaf__cog_build(struct sheaf__model *m);
struct sheaf__value *sheaf__cog_encode(struct sheaf__model *m, struct sheaf__tape *tape,
                                       const struct sheaf__pass *pass, int tower);
void sheaf__cog_place(struct sheaf__model *m, struct sheaf__tape *tape, struct sheaf__value *x,
                      struct sheaf__value *image, const struct sheaf__pass *pass);
void sheaf__cog_release(struct sheaf__model *m);
