/* inner.h - between sat.c, which makes pieces, and check.c and order.c, which look at what came of
 * it. */
#pragma once

#include "dialects/common/dialects.h"
#include "dialects/sat/parts.h"
#include "schema/schema.h"

/* sheaf__sat_check - class, config, schema, steps, LoRA: findings; sets model, config and vocab of
 * the catalog. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_check(sheaf_catalog *catalog, const sheaf__sat_set *set,
                               const char *config_path, const sheaf_dialect_hints *hints);

/* sheaf__sat_check_order - a finding where parts (by rank) do not lie under the names they were
 * saved under; sets catalog->by_names where files do not tell. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_check_order(sheaf_catalog *catalog, sheaf__sat_part *const *part,
                                     int nparts);
