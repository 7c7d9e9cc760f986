/* mixtral.h - Mixtral: Mistral, with experts in place of each MLP. */
#ifndef SHEAF_FAMILIES_MIXTRAL_MIXTRAL_H
#define SHEAF_FAMILIES_MIXTRAL_MIXTRAL_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_mixtral;

#endif
