/* cogvlm.h - CogVLM. */
#ifndef SHEAF_FAMILIES_COGVLM_COGVLM_H
#define SHEAF_FAMILIES_COGVLM_COGVLM_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_cogvlm;

#endif
