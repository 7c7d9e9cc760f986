/* cog.h - targets in CogVLM and CogAgent, whose layers are named by SAT.
 *
 * An entry of a list is a whole path, and means that module alone; or the end of one at a dot,
 * where a number of a layer at the very end does not count: "gate_proj" is the end of
 * mixins.mlp.gate_proj.3 too. A pattern is matched with the whole path. Only linear layers count,
 * and of these only such as the model executes. */
#ifndef SHEAF_LORA_COG_H
#define SHEAF_LORA_COG_H

#include "lora/match.h"

bool sheaf__lora_is_linear(sheaf_role role);
bool sheaf__lora_is_cog(const sheaf_schema *schema);
/* sheaf__lora_executed - false for what lies in the files of CogAgent, but takes no part: the
 * tower's last block and what follows. */
bool sheaf__lora_executed(const sheaf_schema *schema, const sheaf_tensor *tensor);
/* sheaf__lora_in_sat_set - of the layers that SAT gives factors, by the path of the module. */
bool sheaf__lora_in_sat_set(sheaf_sat_set set, const char *path);
/* sheaf__lora_cog_hit - is this weight of a linear layer a target? */
sheaf_status *sheaf__lora_cog_hit(sheaf_hit *out, const sheaf_lora_options *options,
                                  const sheaf_schema *schema, const sheaf_tensor *tensor);
/* sheaf__lora_cog_saves - is the tensor one of modules_to_save, or inside one of them? Buffers
 * never are. */
bool sheaf__lora_cog_saves(const sheaf_lora_options *options, const sheaf_schema *schema,
                           const sheaf_tensor *tensor);
/* sheaf__lora_cog_check - every entry of the lists means something. Errors: SHEAF_E_ARG with the
 * nearest name, SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf__lora_cog_check(const sheaf_schema *schema, const sheaf_lora_options *options);
/* sheaf__lora_cog_no_module - the error that `what` ("target", "module to save") `item` is none,
 * with the nearest name. */
sheaf_status *sheaf__lora_cog_no_module(const sheaf_schema *schema, const char *what,
                                        const char *item);
/* sheaf__lora_cog_spell - the options as a file says them: an expression of the paths, ranks and
 * alphas of whole layers. */
sheaf_status *sheaf__lora_cog_spell(sheaf_lora *lora);

#endif
