/* paths.h - targets in models whose layers have SAT's names (families with `paths`).
 *
 * An entry of a list is a whole path, which means that module alone, or the end of a path behind a
 * dot, not counting a layer number at the very end: "gate_proj" also matches
 * mixins.mlp.gate_proj.3. A pattern is matched with the whole path. Only linear layers count, and
 * only those that the model executes. */
#pragma once

#include "lora/match.h"

/* sheaf__lora_by_paths - does the schema's family use these rules? */
bool sheaf__lora_by_paths(const sheaf_schema *schema);
/* sheaf__lora_in_sat_set - is the module with this path in the set of layers that SAT adapts? */
bool sheaf__lora_in_sat_set(sheaf_sat_set set, const sheaf_schema *schema, const char *path);
/* sheaf__lora_paths_hit - is the weight of this linear layer a target? */
sheaf_status *sheaf__lora_paths_hit(sheaf_hit *out, const sheaf_lora_options *options,
                                    const sheaf_schema *schema, const sheaf_tensor *tensor);
/* sheaf__lora_saves_whole - is the tensor one of modules_to_save, or inside one of them? For any
 * family. */
bool sheaf__lora_saves_whole(const sheaf_lora_options *options, const sheaf_schema *schema,
                             const sheaf_tensor *tensor);
/* sheaf__lora_paths_target - does an entry of the list of targets match a linear layer? Errors:
 * SHEAF_E_ARG with the nearest name, SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__lora_paths_target(const sheaf_schema *schema, const char *item);
/* sheaf__lora_no_module - the error that no module matches `item`, a `what` ("target", "module to
 * save"), with the nearest name. For any family. */
sheaf_status *sheaf__lora_no_module(const sheaf_schema *schema, const char *what, const char *item);
/* sheaf__lora_paths_spell - rewrites the options for a file: a regular expression of the paths, and
 * the ranks and alphas of whole layers. */
sheaf_status *sheaf__lora_paths_spell(sheaf_lora *lora);
