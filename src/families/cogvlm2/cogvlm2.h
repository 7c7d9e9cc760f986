/* cogvlm2.h - the parts of CogVLM2's descriptor (cogvlm2.c). */
#pragma once

#include "families/common/families.h"

#define SHEAF__COGVLM2_CLASS "CogVLMForCausalLM" /* CogVLM's too: num_multi_query_heads tells */
#define SHEAF__COGVLM2_VISION "model.vision."

bool sheaf__cogvlm2_claims(const json_t *object);
void sheaf__cogvlm2_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__cogvlm2_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__cogvlm2_rows(sheaf_schema *schema);
sheaf_status *sheaf__cogvlm2_build(struct sheaf__model *m);
