/* verify.h - is a checkpoint complete, consistent and undamaged?
 *
 * Quick: its structure (every header, name, shape and offset). Full: also every byte: the hashes of
 * sheaf's own manifest, the CRC-32 of PyTorch's files, copies on several ranks, NaN and Inf. */
#pragma once

#include <stdatomic.h>

#include "catalog/coded.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/dialects.h"
#include "lora/adapter.h"
#include "sheaf/checkpoint.h"

typedef struct sheaf_verify_report {
    sheaf_catalog *catalog; /* facts and findings */
    char *forms;            /* of tensors that are stored as codes; NULL: there are none */
    int64_t tensors, elements, bytes; /* of weights and buffers */
    int64_t factors, moments;         /* tensors of LoRA that is not merged; of optimizer state */
    int64_t of[SHEAF_DTYPE_COUNT];    /* weights and buffers by dtype */
    int64_t read;                     /* bytes that were read */
    bool full;
    bool ranks_unknown; /* notes state which ranks' parts the files cannot identify */
} sheaf_verify_report;

/* sheaf_verify - everything about the checkpoint at `path`; release the report in any case. Errors:
 * those of reading if nothing can be read; SHEAF_E_ARG for an unknown dialect; SHEAF_E_MEMORY.
 * Damage is a finding, not an error. */
sheaf_status *sheaf_verify(sheaf_verify_report *report, const char *path,
                           const sheaf_weights_verify_options *options);
/* sheaf_verify_joint - sheaf_weights_joint(). */
sheaf_status *sheaf_verify_joint(bool *joint, const char *const *paths, int count,
                                 const sheaf_weights_verify_options *options);
/* sheaf_verify_catalog - the full part, for a catalog that is already read; adds its findings. */
sheaf_status *sheaf_verify_catalog(sheaf_verify_report *report, sheaf_catalog *catalog,
                                   const sheaf_weights_verify_options *options);
void sheaf_verify_release(sheaf_verify_report *report);
/* sheaf_verify_sound - no finding is a defect, and all parts lie in one folder. */
bool sheaf_verify_sound(const sheaf_verify_report *report);

/* ---- its parts ---- */

/* sheaf__verify_adapter - findings for a config that cannot be read, and for all that
 * lora/check_file.h checks without a base. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__verify_adapter(sheaf_catalog *catalog);
/* sheaf__verify_alone - and the checks for an adapter without a base. */
sheaf_status *sheaf__verify_alone(sheaf_catalog *catalog, const sheaf_lora_options *options);

/* Numbers that no weight should be. */
typedef struct sheaf__special {
    _Atomic int64_t nan, inf, negative; /* the last: of scales that are sizes */
} sheaf__special;
void sheaf__count_special(sheaf__special *to, const void *data, size_t bytes, sheaf_dtype dtype);
/* sheaf__count_part - the same of part `part` of a tensor with codes: codes in 4 bits are no
 * numbers, in whatever type their bytes are. */
void sheaf__count_part(sheaf__special *to, const sheaf__coded *coded, int part, const void *data,
                       size_t bytes);

/* Zero weights are a sign of a download that allocated a file and did not fill it. */
enum { SHEAF__NOT_READ, SHEAF__ALL_ZERO, SHEAF__HAS_NONZERO };

/* sheaf__find_nonzero - sets *seen to SHEAF__HAS_NONZERO if a byte of `data` is not zero, else to
 * SHEAF__ALL_ZERO unless it is SHEAF__HAS_NONZERO already. */
void sheaf__find_nonzero(_Atomic unsigned char *seen, const void *data, size_t bytes);

/* sheaf__verify_zeros - adds findings "zeros" to a catalog; seen[first[t] + k] is for piece k of
 * tensor t. */
sheaf_status *sheaf__verify_zeros(sheaf_catalog *catalog, const _Atomic unsigned char *seen,
                                  const int64_t *first);

/* ---- comparison ---- */

/* sheaf_diff - sheaf_weights_diff(). Config keys about origin are not compared
 * (base_model_name_or_path, transformers_version, ...). */
sheaf_status *sheaf_diff(sheaf_weights_diff_report *report, const char *a, const char *b,
                         const sheaf_weights_diff_options *options);
