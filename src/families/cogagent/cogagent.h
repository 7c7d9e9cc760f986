/* cogagent.h - CogAgent. */
#ifndef SHEAF_FAMILIES_COGAGENT_COGAGENT_H
#define SHEAF_FAMILIES_COGAGENT_COGAGENT_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_cogagent;

#endif
