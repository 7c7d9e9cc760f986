/* config_numbers.h - which numbers of a config do the tensors contradict? No table says which key
 * sets which axis: a key is changed, the family's reader and rows run again, and what moves
 * is compared with the files. */
#pragma once

#include "base/text.h"
#include "catalog/catalog.h"
#include "schema/config.h"

/* sheaf__config_advice - adds what to try where tensors have the names of the config's model, or of
 * one like it, but not its sizes: the numbers that do not agree, "num_key_value_heads 2, where it
 * says 4 (by NAME)", and which models have such names. Nothing where nothing is known.
 *   changed  how many numbers
 *   few      they are one or two, and all that is wrong
 *   json     the config's text; NULL: nothing is added
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__config_advice(sheaf_text *out, int *changed, bool *few,
                                   const sheaf_config *config, const char *json,
                                   const sheaf_catalog *stored);
