/* peft.h - PEFT adapter folders: adapter_config.json and adapter_model.safetensors, or the pickled
 * adapter_model.bin.
 *
 * adapter_config.json is lora's business; here are the tensors. */
#pragma once

#include "dialects/common/model_folder.h"
#include "sheaf/source.h"

/* sheaf_peft_config_path - adapter_config.json in the folder (malloc'd), which need not be there.
 * Errors: SHEAF_E_IO where no part of an adapter is in the folder, with what is there instead;
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf_peft_config_path(char **out, const char *dir);

/* sheaf_peft_base_print - the fingerprint of the base (models/hashed.h) that the adapter in the
 * folder carries; "" where it carries none, as PEFT's own. Errors: SHEAF_E_UNSUPPORTED for one of
 * another form. A file that cannot be read is whoever opens it to tell. */
sheaf_status *sheaf_peft_base_print(char out[33], const char *dir);

/* sheaf__peft_name - as PEFT 0.21 saves it, whatever a file spells (malloc'd): adapter names in the
 * middle (".lora_A.default.weight"), ".modules_to_save" and the words of wrappers are removed, a
 * missing "base_model.model." is put before. */
sheaf_status *sheaf__peft_name(char **out, const char *stored);
