/* match.h - PEFT's rules for matching module paths. */
#pragma once

#include "lora/adapter.h"
#include "sheaf/status.h"

/* Are the first `length` characters of `path` equal to `item`, or do they end with "." and
 * `item`? */
bool sheaf__ends_with_item(const char *path, size_t length, const char *item);

/* sheaf__lora_parameter - the path of the parameter that this tensor is, or lies in, where an entry
 * of target_parameters means it; NULL: it does not. */
const char *sheaf__lora_parameter(const sheaf_tensor *tensor, const char *item);

/* sheaf__lora_layer_wanted - by layers_to_transform and layers_pattern, from the number in
 * `path`. */
sheaf_status *sheaf__lora_layer_wanted(bool *out, const sheaf_lora_options *options,
                                       const char *path);

typedef enum sheaf_hit { SHEAF_HIT_NONE, SHEAF_HIT_EXCLUDED, SHEAF_HIT_TARGET } sheaf_hit;

/* sheaf__lora_hit - check_target_module_exists() of PEFT for the module `path`; without
 * all-linear. */
sheaf_status *sheaf__lora_hit(sheaf_hit *out, const sheaf_lora_options *options, const char *path);
/* sheaf__lora_pattern_value - the first pattern of the list that matches `path`, else `absent`. */
sheaf_status *sheaf__lora_pattern_value(double *out, const sheaf_patterns *patterns,
                                        const char *path, double absent);
/* sheaf__lora_is_plain - a key without special characters other than dots and a leading ^: it need
 * not be compiled. */
bool sheaf__lora_is_plain(const char *key);
/* sheaf__lora_tokens - the rows that trainable_token_indices names of the table at this path; NULL:
 * none. */
const sheaf_lora_tokens *sheaf__lora_tokens(const sheaf_lora_options *options, const char *path,
                                            size_t length);
/* sheaf__lora_saves - is `path`, or a module around it, one of modules_to_save? (By the end of the
 * text, as PEFT compares: "norm" also names input_layernorm.) */
bool sheaf__lora_saves(const sheaf_lora_options *options, const char *path);
/* sheaf__lora_saves_tensor - does modules_to_save contain this full name of a tensor? */
bool sheaf__lora_saves_tensor(const sheaf_lora_options *options, const char *name);
/* sheaf__lora_saves_bias - does the option `bias` save this tensor? "all" saves every "X.bias" and
 * "X_bias"; "lora_only" only "X.bias", the name in torch's layers, and the caller checks that X is
 * adapted. */
bool sheaf__lora_saves_bias(const sheaf_lora_options *options, const char *name);
/* sheaf__lora_named_bias - is it an "X_bias" that only bias "all" saves? PEFT up to 0.18 trains
 * these, 0.21 does not: a file has all of them, or none. */
bool sheaf__lora_named_bias(const sheaf_lora_options *options, const char *name);
/* sheaf__lora_leaves_named - does this file have none of them? Then the base's are used. */
bool sheaf__lora_leaves_named(const sheaf_lora_options *options, sheaf_source *adapter);

/* ---- names that transformers gives tensors on load ----
 *
 * An adapter is saved with the names in memory; a base keeps those of its files. A group holds the
 * rules for one kind of model; the right group explains all names of an adapter. */

typedef struct sheaf_renames sheaf_renames;

int sheaf__renames_groups(void);
/* sheaf__renames_new - compiles one group. */
sheaf_status *sheaf__renames_new(sheaf_renames **out, int group);
/* sheaf__renames_form - of a group for a family's two forms, which in messages has the names in
 * memory, or (files) in files; NULL: another group. */
const char *sheaf__renames_form(const sheaf_renames *renames, bool files);
/* sheaf__renames_apply - the name in memory (malloc'd) of a tensor that is called `name` in
 * files. */
sheaf_status *sheaf__renames_apply(char **out, const sheaf_renames *renames, const char *name);
void sheaf__renames_free(sheaf_renames *renames);
