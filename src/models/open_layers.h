/* open_layers.h - the sources that lie over a model's files, one over another: codes of a base that
 * is quantised while it is read, hashes of what is read, an adapter's own tensors. */
#pragma once

#include "catalog/catalog.h"
#include "models/open.h"
#include "schema/family.h"

/* sheaf__opened_lay_print - from now on the base is read through its hashes. `shared`: only the
 * adapter's base is to be checked, and each process hashes a share. */
sheaf_status *sheaf__opened_lay_print(sheaf__opened *opened, bool shared, sheaf_comm *all);
/* sheaf__opened_lay_codes - lays a source that quantises over the files, and what lay over these
 * over it. `trains` (NULL: nothing is) as in sheaf__opened_quantise(), the rest as above. */
sheaf_status *sheaf__opened_lay_codes(sheaf__opened *opened, sheaf_quantize as,
                                      bool (*trains)(void *self, const sheaf_tensor *tensor),
                                      void *self, bool shared, sheaf_comm *all);

/* sheaf__opened_find_forms - opened->forms of a model of which only the config was opened, as
 * `catalog`; NULL: the file that `how` names. Errors: those of the config. */
sheaf_status *sheaf__opened_find_forms(sheaf__opened *opened, const sheaf_catalog *catalog,
                                       const sheaf__open_options *how);

/* sheaf__overlay_new - `base` with the tensors that `adapter` (NULL: none) has in full, by `lora`,
 * in their place; all borrowed. untied: the base stores one table for two tensors, by the names of
 * this family; or NULL. */
sheaf_status *sheaf__overlay_new(sheaf_source **out, sheaf_source *base, sheaf_source *adapter,
                                 const sheaf_lora *lora, const sheaf__family *untied);
/* sheaf__overlay_rebase - from now on it lies over another base. */
void sheaf__overlay_rebase(sheaf_source *overlay, sheaf_source *base);
