/* families.h - the descriptors: rows of the table in families.c. */
#pragma once

#include "schema/family.h"

extern const sheaf__family sheaf__family_llama, sheaf__family_mistral, sheaf__family_qwen2,
    sheaf__family_qwen3, sheaf__family_smollm3, sheaf__family_olmo2, sheaf__family_phi3,
    sheaf__family_mixtral, sheaf__family_gemma2, sheaf__family_gemma3, sheaf__family_cogvlm,
    sheaf__family_cogagent, sheaf__family_omnilmm, sheaf__family_minicpmv;
