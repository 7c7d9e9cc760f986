/* catalog.h - PEFT adapter folders as catalogs: adapter_config.json, adapter_model.safetensors or
 * .bin. */
#ifndef SHEAF_DIALECTS_PEFT_CATALOG_H
#define SHEAF_DIALECTS_PEFT_CATALOG_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_peft;

#endif
