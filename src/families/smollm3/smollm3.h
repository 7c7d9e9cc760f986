/* smollm3.h - SmolLM3: Llama, with layers that have no rotary embedding. */
#ifndef SHEAF_FAMILIES_SMOLLM3_SMOLLM3_H
#define SHEAF_FAMILIES_SMOLLM3_SMOLLM3_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_smollm3;

#endif
