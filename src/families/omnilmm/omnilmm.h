/* omnilmm.h - OmniLMM: an EVA02-E tower, a resampler, Mistral's decoder. */
#pragma once

#include "families/common/families.h"

#define SHEAF__OMNILMM_TOWER "model.vision_tower."
#define SHEAF__OMNILMM_RESAMPLER "model.resampler."

bool sheaf__omnilmm_claims(const json_t *object);
void sheaf__omnilmm_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
extern const char sheaf__omnilmm_keys[]; /* of a config, beside Mistral's */
void sheaf__omnilmm_text(sheaf_text *text, const sheaf_config *c);
void sheaf__omnilmm_pictures(sheaf__picture_form *out, const sheaf_config *c);
sheaf_status *sheaf__omnilmm_rows(sheaf_schema *schema);
bool sheaf__omnilmm_spare(const char *name, const sheaf_config *c);
sheaf_status *sheaf__omnilmm_build(struct sheaf__model *m);
struct sheaf__value *sheaf__omnilmm_see(struct sheaf__model *m, struct sheaf__tape *tape,
                                        const struct sheaf__pass *pass, int tower);
