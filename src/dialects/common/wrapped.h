/* wrapped.h - names as the model has them, where it was saved inside of something: wrappers of
 * modules (DataParallel, torch.compile, FSDP), PEFT. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__plain_name - the name that sheaf__catalog_unwrap() gives a weight, in `out`; one that is
 * too long stays as it is. */
enum { SHEAF__PLAIN_NAME = 600 };
const char *sheaf__plain_name(char out[SHEAF__PLAIN_NAME], const char *name);

/* sheaf__is_lora_tensor - is a tensor of an adapter one that LoRA has: a factor, a saved module,
 * with `rows` those that trainable_token_indices names? */
bool sheaf__is_lora_tensor(const char *name, bool rows);

/* sheaf__adapter_config_of - the adapter_config.json in a checkpoint's folder or the one around it;
 * NULL: there is none. Free it. */
sheaf_status *sheaf__adapter_config_of(char **out, const char *root);

/* sheaf__catalog_unwrap - takes the words of wrappers out of all names (a note), puts "model." in
 * front where the names are those of the model inside (a note), and out of a model
 * that PEFT wrapped its adapter: weights get their names without "base_model.model." and
 * ".base_layer", the adapter's tensors are SHEAF_LORA, a warning "unmerged" tells how to merge
 * them. May be called again. */
sheaf_status *sheaf__catalog_unwrap(sheaf_catalog *catalog);
