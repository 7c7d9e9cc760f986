/* wrapped.h - names as the model has them, where it was saved inside of something: wrappers of
 * modules (DataParallel, torch.compile, FSDP), PEFT. */
#ifndef SHEAF_DIALECTS_COMMON_WRAPPED_H
#define SHEAF_DIALECTS_COMMON_WRAPPED_H

#include "catalog/catalog.h"

/* sheaf__catalog_unwrap - takes the words of wrappers out of all names (a note), and out of a model
 * that PEFT wrapped its adapter: weights get their names without "base_model.model." and
 * ".base_layer", the adapter's tensors are SHEAF_LORA, a warning "unmerged" tells how to merge
 * them. May be called again. */
sheaf_status *sheaf__catalog_unwrap(sheaf_catalog *catalog);

#endif
