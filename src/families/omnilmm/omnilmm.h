/* omnilmm.h - OmniLMM: an EVA02-E tower, a resampler, Mistral's decoder. */
#pragma once

#include "families/common/families.h"

#define SHEAF__OMNILMM_TOWER "model.vision_tower."
#define SHEAF__OMNILMM_RESAMPLER "model.resampler."

bool sheaf__omnilmm_claims(const json_t *object);
void sheaf__omnilmm_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
extern const char sheaf__omnilmm_keys[]; /* of a config, beside Mistral's */
void sheaf__omnilmm_text(sheaf_text *text, const sheaf_config *c);
