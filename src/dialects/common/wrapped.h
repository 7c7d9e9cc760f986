/* wrapped.h - the model's own names in checkpoints that were saved through wrappers: DataParallel,
 * torch.compile, FSDP, PEFT. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__plain_name - the name that sheaf__catalog_unwrap() gives a weight, in `out`; a name that
 * is too long is unchanged. */
enum { SHEAF__PLAIN_NAME = 600 };
const char *sheaf__plain_name(char out[SHEAF__PLAIN_NAME], const char *name);

/* sheaf__is_lora_tensor - is a tensor of an adapter a factor or a saved module of LoRA, or with
 * `rows` one of trainable_token_indices? */
bool sheaf__is_lora_tensor(const char *name, bool rows);

/* sheaf__adapter_config_of - the adapter_config.json in a checkpoint's folder or the one around it;
 * NULL: there is none. Free it. */
sheaf_status *sheaf__adapter_config_of(char **out, const char *root);

/* sheaf__catalog_unwrap - removes the words of wrappers from all names (a note), gives tensors the
 * names of the model where their files have another of its namings (a note, unless it is that of
 * the published files), and separates the adapter in a model that PEFT
 * wrapped: weights lose "base_model.model." and ".base_layer" in their names, the adapter's tensors
 * become SHEAF_LORA, and a warning "unmerged" says how to merge them. May be called again. */
sheaf_status *sheaf__catalog_unwrap(sheaf_catalog *catalog);
