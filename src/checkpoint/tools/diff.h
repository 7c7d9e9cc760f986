/* diff.h - which logical tensors differ between two models, adapters or checkpoints.
 *
 * What is compared are undivided tensors by name: shards, slices and the order in files
 * do not matter. A tied lm_head that one side does not store is its embed_tokens. Factors of LoRA
 * that is not merged are tensors like others. So are moments of an optimizer where both sides have
 * some, and in a checkpoint of sheaf's own or a bare file, where they lie among the tensors; those
 * that lie beside the model of one side alone are counted, and not compared. */
#pragma once

#include "checkpoint/store/look.h"
#include "sheaf/checkpoint.h"

/* sheaf_diff - sheaf_weights_diff(). Keys of configs that only say where something came from are
 * not compared (base_model_name_or_path, transformers_version, ...). */
sheaf_status *sheaf_diff(sheaf_weights_diff_report *report, const char *a, const char *b,
                         const sheaf_weights_diff_options *options);
