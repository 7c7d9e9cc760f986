/* olmo2.h - OLMo 2: norms behind attention and MLP, and of whole queries and keys. */
#ifndef SHEAF_FAMILIES_OLMO2_OLMO2_H
#define SHEAF_FAMILIES_OLMO2_OLMO2_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_olmo2;

#endif
