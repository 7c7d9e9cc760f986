/* tower_sizes.h - the sizes of a second tower that upstream's code fixes and a config does not say.
 */
#pragma once

#include "base/json.h"
#include "catalog/catalog.h"
#include "schema/family.h"

/* sheaf__config_lacks_tower - do tensors alone say how large a part of the model is? false for a
 * family without `sizes`, or where `json`, the config parsed, says it. */
bool sheaf__config_lacks_tower(const sheaf_config *config, const json_t *json);

/* sheaf__catalog_tower_sizes - where the tensors show another tower than `config` describes, writes
 * its sizes into the catalog's config ("encoder_override"), with a note about `path`, and into
 * `config`; nothing where the config says them. The size of its pictures is written too where
 * `json`, the config parsed, has none. */
sheaf_status *sheaf__catalog_tower_sizes(sheaf_catalog *catalog, sheaf_config *config,
                                         const json_t *json, const char *path);
