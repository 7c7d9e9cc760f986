/* model_folder.h - writing the folder of a model or an adapter in Hugging Face's form, and changing
 * a config's text. */
#pragma once

#include "dialects/common/folder.h"
#include "schema/family.h"
#include "sheaf/source.h"

/* sheaf_hf_specs - the tensors of a model in the order in which transformers divides them into
 * shards (calloc'd; names borrowed from the schema).
 *   stored  source of the dtypes; NULL: all get `dtype` */
sheaf_status *sheaf_hf_specs(sheaf_safetensors_spec **out, int64_t *count,
                             const sheaf_schema *schema, sheaf_source *stored, sheaf_dtype dtype);

/* sheaf_hf_file_names - those of the family that this config is of; NULL: files have the model's
 * names. config_json NULL, or no JSON: NULL. */
const sheaf__name_rule *sheaf_hf_file_names(const char *config_json);

/* sheaf_hf_begin - a new model folder at `dst`; write with sheaf__folder_write(), end with
 * sheaf__folder_commit() or _abandon(). Shards of at most how->shard_bytes (0: 50 GB) as
 * transformers would cut them; config.json holds `config_json`, and tensors have names by
 * how->file_names. Ignores how->stem. */
sheaf_status *sheaf_hf_begin(sheaf_folder **out, const char *dst, const char *config_json,
                             const sheaf_safetensors_spec *specs, int64_t count,
                             const sheaf_folder_options *how);
/* sheaf_hf_extras - names of files that belong to a model beside its config and weights; ends with
 * NULL. */
extern const char *const sheaf_hf_extras[];
/* sheaf_hf_has_tokenizer - does the folder have a tokenizer? */
bool sheaf_hf_has_tokenizer(const char *dir);
/* sheaf_hf_is_tokenizers - is it the name of a file of the tokenizer? */
bool sheaf_hf_is_tokenizers(const char *name);
/* sheaf_hf_more_templates - the chat templates of `from` that have files of their own, as paths in
 * it (sheaf__names_free(), also after a failure), and the folder for them in `dst`, if there are
 * any. */
sheaf_status *sheaf_hf_more_templates(char ***names, int64_t *count, const char *dst,
                                      const char *from);
/* sheaf_hf_copy_tokenizer - the files of the tokenizer from another folder, as far as they exist.
 */
sheaf_status *sheaf_hf_copy_tokenizer(sheaf_folder *folder, const char *from);
/* sheaf_hf_copy_extras - generation_config.json, the files of tokenizer and image processor, and
 * the Python files of a model whose configs have auto_map, from another folder (or the folder of a
 * file), as far as they exist.
 *   tokenizer  another folder for all files of the tokenizer; NULL: none */
sheaf_status *sheaf_hf_copy_extras(sheaf_folder *folder, const char *from, const char *tokenizer);

/* sheaf_hf_config_set - `json`, the text of an object, with the value of one key replaced or the
 * key added; all else keeps its spelling. `value` is JSON, as "\"bfloat16\"". */
sheaf_status *sheaf_hf_config_set(char **out, const char *json, const char *key, const char *value);
/* sheaf_hf_config_change - the same, replacing the text (malloc'd). */
sheaf_status *sheaf_hf_config_change(char **json, const char *key, const char *value);
/* sheaf_hf_config_edit - the text with another value of a key, or without the key (value NULL), in
 * its object `part` (NULL: the top level). Unchanged without that object, or without a key to
 * remove; a missing key is added. */
sheaf_status *sheaf_hf_config_edit(char **out, const char *json, const char *part, const char *key,
                                   const char *value);
/* sheaf_hf_config_with_dtype - the text with its dtype (5.x) or torch_dtype (4.x) set. */
sheaf_status *sheaf_hf_config_with_dtype(char **out, const char *json, sheaf_dtype dtype);
/* sheaf_hf_config_whole - the text for a folder of undivided tensors: in SAT's, of CogVLM and
 * CogAgent, sets model_type and a parallel size of 1, and use_lora to false unless `adapted`.
 * Others are unchanged. */
sheaf_status *sheaf_hf_config_whole(char **out, const char *json, const sheaf_config *config,
                                    bool adapted);

/* sheaf_peft_begin - a new adapter folder at `dst`; write with sheaf__folder_write().
 *   base_print  fingerprint of the base that it was trained on; NULL or "": not known */
sheaf_status *sheaf_peft_begin(sheaf_folder **out, const char *dst, const char *config_json,
                               const char *base_print, const sheaf_safetensors_spec *specs,
                               int64_t count, bool replace);
