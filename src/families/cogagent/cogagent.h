/* cogagent.h - CogAgent. */
#ifndef SHEAF_FAMILIES_COGAGENT_COGAGENT_H
#define SHEAF_FAMILIES_COGAGENT_COGAGENT_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_cogagent;

void sheaf__cogagent_sizes(sheaf_config *config, const struct sheaf_catalog *found);

#endif
