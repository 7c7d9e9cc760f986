/* verify_adapter.h - can the adapter in a catalog be applied? */
#pragma once

#include "catalog/catalog.h"
#include "lora/adapter.h"

/* sheaf__verify_adapter - a finding for a config that is not read, and for all that
 * lora/check_file.h finds wrong without a base. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__verify_adapter(sheaf_catalog *catalog);
/* sheaf__verify_alone - and what it finds where there is none to hold it against. */
sheaf_status *sheaf__verify_alone(sheaf_catalog *catalog, const sheaf_lora_options *options);
