/* paths.h - targets in models whose layers are named as SAT does, of families that say so
 * (`paths`).
 *
 * An entry of a list is a whole path, and means that module alone; or the end of one at a dot,
 * where a number of a layer at the very end does not count: "gate_proj" is the end of
 * mixins.mlp.gate_proj.3 too. A pattern is matched with the whole path. Only linear layers count,
 * and of these only such as the model executes. */
#pragma once

#include "lora/match.h"

bool sheaf__lora_is_linear(sheaf_role role);
/* sheaf__lora_by_paths - is this page about its family? */
bool sheaf__lora_by_paths(const sheaf_schema *schema);
/* sheaf__lora_in_sat_set - of the layers that SAT gives factors, by the path of the module. */
bool sheaf__lora_in_sat_set(sheaf_sat_set set, const sheaf_schema *schema, const char *path);
/* sheaf__lora_paths_hit - is this weight of a linear layer a target? */
sheaf_status *sheaf__lora_paths_hit(sheaf_hit *out, const sheaf_lora_options *options,
                                    const sheaf_schema *schema, const sheaf_tensor *tensor);
/* sheaf__lora_saves_whole - is the tensor one of modules_to_save, or inside one of them, in a model
 * of any family? */
bool sheaf__lora_saves_whole(const sheaf_lora_options *options, const sheaf_schema *schema,
                             const sheaf_tensor *tensor);
/* sheaf__lora_paths_target - does an entry of the list of targets mean such a one? Errors:
 * SHEAF_E_ARG with the nearest name, SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__lora_paths_target(const sheaf_schema *schema, const char *item);
/* sheaf__lora_no_module - the error that `what` ("target", "module to save") `item` is none, with
 * the nearest name; for models of any family. */
sheaf_status *sheaf__lora_no_module(const sheaf_schema *schema, const char *what, const char *item);
/* sheaf__lora_paths_spell - the options as a file says them: an expression of the paths, ranks and
 * alphas of whole layers. */
sheaf_status *sheaf__lora_paths_spell(sheaf_lora *lora);
