/* chatglm.h - models by ChatGLM's names and keys: the text model GLM-4-9B, and GLM-4V-9B and
 * CogAgent-9B, which put a tower before it. */
#pragma once

#include "families/common/families.h"

#define SHEAF__CHATGLM_NAME "chatglm"
#define SHEAF__CHATGLM_VISION "transformer.vision."

/* config.c */
bool sheaf__chatglm_claims(const json_t *object);
void sheaf__chatglm_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__chatglm_text(sheaf_text *text, const sheaf_config *c);
/* rows.c */
sheaf_status *sheaf__chatglm_rows(sheaf_schema *schema);
