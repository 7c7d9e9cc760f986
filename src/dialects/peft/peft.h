/* peft.h - PEFT adapter folders: adapter_config.json and adapter_model.safetensors, or the pickled
 * adapter_model.bin.
 *
 * The room lora reads adapter_config.json; this part reads the tensors. */
#pragma once

#include "dialects/common/model_folder.h"
#include "sheaf/source.h"

/* sheaf_peft_config_path - the path of adapter_config.json in the folder (malloc'd), which need not
 * exist. Errors: SHEAF_E_IO where the folder has no part of an adapter, with what it has;
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf_peft_config_path(char **out, const char *dir);

/* sheaf_peft_base_print - the fingerprint of the base (models/hashed.h) stored in the folder's
 * adapter; "": none, as in PEFT's own. Errors: SHEAF_E_UNSUPPORTED for another form. Ignores
 * unreadable files, which are an error when they are opened. */
sheaf_status *sheaf_peft_base_print(char out[33], const char *dir);

/* sheaf__peft_name - a stored name in the spelling of PEFT 0.21 (malloc'd): adapter names in the
 * middle (".lora_A.default.weight"), ".modules_to_save" and the words of wrappers are removed, a
 * missing "base_model.model." is added. */
sheaf_status *sheaf__peft_name(char **out, const char *stored);
