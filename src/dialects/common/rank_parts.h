/* rank_parts.h - the tensors of single tensor-parallel ranks, each rank's in files of its own, as
 * ColossalAI leaves them and people save by hand. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__rank_parts_join - the tensors of single ranks in `paths` (folders and files; ends with
 * NULL) into the catalog: completes tables of which it has rank 0's rows, or joins all where it is
 * empty. */
sheaf_status *sheaf__rank_parts_join(sheaf_catalog *catalog, const char *const *paths);
