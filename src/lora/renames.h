/* renames.h - the names that transformers 5 gives tensors on load, where files have others.
 *
 * An adapter is saved with the names in memory; a base keeps those of its files, also when
 * transformers writes it. Each group below is what one kind of model is renamed by. Which group a
 * model needs is not looked up by its class: one that explains all names of an adapter is the right
 * one. */
#pragma once

#include "sheaf/status.h"

typedef struct sheaf_renames sheaf_renames;

int sheaf__renames_groups(void);
/* sheaf__renames_new - one group, ready to be used. */
sheaf_status *sheaf__renames_new(sheaf_renames **out, int group);
/* sheaf__renames_apply - the name in memory (malloc'd) of a tensor that is called `name` in
 * files. */
sheaf_status *sheaf__renames_apply(char **out, const sheaf_renames *renames, const char *name);
void sheaf__renames_free(sheaf_renames *renames);
