/* peft.h - PEFT adapter folders: adapter_config.json and adapter_model.safetensors, or the pickled
 * adapter_model.bin.
 *
 * adapter_config.json is lora's business; here are the tensors. */
#ifndef SHEAF_DIALECTS_PEFT_PEFT_H
#define SHEAF_DIALECTS_PEFT_PEFT_H

#include "dialects/common/model_folder.h"
#include "sheaf/source.h"

/* sheaf_peft_open - names as PEFT 0.21 saves them, whatever the file spells: adapter names in
 * the middle (".lora_A.default.weight") and ".modules_to_save" are removed, a missing
 * "base_model.model." is put before. adapter_model.bin is read where there is no
 * adapter_model.safetensors. Entries ascend by name. Errors: SHEAF_E_LAYOUT when two tensors come
 * to have one name; those of reading the file. */
sheaf_status *sheaf_peft_open(sheaf_source **out, const char *dir);
/* sheaf_peft_config_path - adapter_config.json in the folder (malloc'd), which need not be there.
 * Errors: SHEAF_E_IO where no part of an adapter is in the folder, with what is there instead;
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf_peft_config_path(char **out, const char *dir);

/* sheaf__peft_name - the spelling above (malloc'd). */
sheaf_status *sheaf__peft_name(char **out, const char *stored);

#endif
