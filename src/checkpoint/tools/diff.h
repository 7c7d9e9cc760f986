/* diff.h - which logical tensors differ between two models, adapters or checkpoints.
 *
 * What is compared are undivided tensors by name: shards, slices and the order in files
 * do not matter. A tied lm_head that one side does not store is its embed_tokens. Factors of LoRA
 * that is not merged are tensors like others. So are moments of an optimizer where both sides have
 * some, and in a checkpoint of sheaf's own or a bare file, where they lie among the tensors; those
 * that lie beside the model of one side alone are counted, and not compared. */
#ifndef SHEAF_CHECKPOINT_TOOLS_DIFF_H
#define SHEAF_CHECKPOINT_TOOLS_DIFF_H

#include "checkpoint/store/look.h"
#include "sheaf/checkpoint.h"

typedef struct sheaf_diff_report {
    int64_t tensors;     /* names in A or B */
    int64_t different;   /* of them */
    int64_t config_keys; /* that differ and mean something */
    double largest;      /* over all tensors */
    bool same;           /* all bytes of all tensors agree, and so do the configs */
    int64_t moments;     /* of `tensors`, those of optimizer state */
    int64_t moments_only_a, moments_only_b; /* beside the model of one side alone: not compared */
} sheaf_diff_report;

/* sheaf_diff - calls found() for each difference, tensors in name order; the item is valid
 * during the call. Keys of configs that only say where something came from are not compared
 * (base_model_name_or_path, transformers_version, ...).
 * Errors: those of sheaf_look_open(); SHEAF_E_ARG for a run or two kinds that cannot be compared.
 */
sheaf_status *sheaf_diff(sheaf_diff_report *report, const char *a, const char *b,
                         void (*found)(void *context, const sheaf_diff_item *item), void *context);

#endif
