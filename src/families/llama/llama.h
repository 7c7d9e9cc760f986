/* llama.h - Llama, and the families that differ from it by rules of the config alone: Mistral,
 * Qwen2. */
#ifndef SHEAF_FAMILIES_LLAMA_LLAMA_H
#define SHEAF_FAMILIES_LLAMA_LLAMA_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_llama, sheaf__family_mistral, sheaf__family_qwen2;

void sheaf__llama_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__llama_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__llama_rows(sheaf_schema *schema);
extern const sheaf__family_spec sheaf__llama_specs[];
sheaf_status *sheaf__llama_spec(char **out, int which);
sheaf_status *sheaf__llama_build(struct sheaf__model *m);

#endif
