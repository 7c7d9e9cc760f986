/* verify_adapter.h - can the adapter in a catalog be applied? */
#ifndef SHEAF_CHECKPOINT_TOOLS_VERIFY_ADAPTER_H
#define SHEAF_CHECKPOINT_TOOLS_VERIFY_ADAPTER_H

#include "catalog/catalog.h"

/* sheaf__verify_adapter - a finding for a config that is not read, tensors that are no part of
 * LoRA, other dtypes than F32, BF16 and F16, ranks that are not those of the config, and for no
 * tensors at all. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__verify_adapter(sheaf_catalog *catalog);

#endif
