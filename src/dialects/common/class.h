/* class.h - are these tensors of the model that the config says? By the names that families say
 * their tensors have, of the tensors as of the schema: where both are of one model, or
 * tensors are of none, the config's schema says what is wrong. */
#pragma once

#include "catalog/catalog.h"
#include "schema/schema.h"

/* sheaf__is_stranger - a tensor of files that a model of this schema does not have. */
bool sheaf__is_stranger(const sheaf_schema *schema, const char *name);

/* sheaf__catalog_check_class - a finding "class" that names both models and where they differ;
 * *other: there was one. schema NULL: there is none, as the config contradicts itself. */
sheaf_status *sheaf__catalog_check_class(bool *other, sheaf_catalog *catalog,
                                         const sheaf_config *config, const sheaf_schema *schema);
/* sheaf__catalog_check_stored_class - the same by the catalog's config, where it can be read, for
 * tensors that nothing else is checked of yet. */
sheaf_status *sheaf__catalog_check_stored_class(sheaf_catalog *catalog);
/* sheaf__catalog_refuse_class - the first defect, where one is of the class: before the config is
 * held against anything else, which would blame it for less. */
sheaf_status *sheaf__catalog_refuse_class(const sheaf_catalog *catalog);
