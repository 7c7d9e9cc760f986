/* families.h - the descriptors: rows of the table in families.c; and a tower that several share. */
#pragma once

#include "schema/family.h"

extern const sheaf__family sheaf__family_llama, sheaf__family_mistral, sheaf__family_qwen2,
    sheaf__family_qwen3, sheaf__family_qwen3_moe, sheaf__family_smollm3, sheaf__family_olmo2,
    sheaf__family_phi3, sheaf__family_mixtral, sheaf__family_gemma, sheaf__family_gemma2,
    sheaf__family_gemma3, sheaf__family_cogvlm, sheaf__family_cogagent, sheaf__family_omnilmm,
    sheaf__family_minicpmv, sheaf__family_cogvlm2, sheaf__family_glm, sheaf__family_glm4,
    sheaf__family_chatglm, sheaf__family_qwen2_5_vl, sheaf__family_qwen3_vl;

extern const sheaf__family sheaf__family_cogvlm_hf, sheaf__family_cogagent_hf;

/* sheaf__vit_tower - the tower of config.vit, whose rows are in the sequence; a family changes what
 * differs. class_rows: rows before the patches of an image. */
static inline sheaf__tower sheaf__vit_tower(const sheaf_config *c, int64_t class_rows,
                                            int64_t gives)
{
    return (sheaf__tower){ .channels = c->vit.channels,
                           .height = c->vit.height,
                           .width = c->vit.width,
                           .patch = c->vit.patch,
                           .patches = c->patches,
                           .rows = c->patches + class_rows,
                           .gives = gives,
                           .columns = c->hidden };
}
