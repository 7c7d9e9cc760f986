/* verify.h - is a checkpoint complete, consistent and undamaged?
 *
 * Quick: its structure (every header, every name, shape and place). Full: every byte besides: the
 * hashes of sheaf's own manifest, the CRC-32 of PyTorch's files, the copies of what several ranks
 * hold, NaN and Inf. */
#pragma once

#include <stdatomic.h>

#include "checkpoint/store/probe.h"
#include "dialects/common/dialects.h"
#include "lora/adapter.h"
#include "sheaf/checkpoint.h"

typedef struct sheaf_verify_report {
    sheaf_catalog *catalog;           /* facts and findings */
    int64_t tensors, elements, bytes; /* of weights and buffers */
    int64_t factors, moments;         /* tensors of LoRA that is not merged; of optimizer state */
    int64_t of[SHEAF_DTYPE_COUNT];    /* weights and buffers by dtype */
    int64_t read;                     /* bytes that were read */
    bool full;
    bool ranks_unknown; /* notes say what of the parts cannot be told from files */
} sheaf_verify_report;

/* sheaf_verify - everything about the checkpoint at `path`; release the report in any case. Errors:
 * those of reading where nothing can be looked at; SHEAF_E_ARG for an unknown dialect;
 * SHEAF_E_MEMORY. Damage is no error but a finding. */
sheaf_status *sheaf_verify(sheaf_verify_report *report, const char *path,
                           const sheaf_weights_verify_options *options);
/* sheaf_verify_joint - sheaf_weights_joint(). */
sheaf_status *sheaf_verify_joint(bool *joint, const char *const *paths, int count,
                                 const sheaf_weights_verify_options *options);
/* sheaf_verify_catalog - the full part, of a catalog that was read; adds its findings. */
sheaf_status *sheaf_verify_catalog(sheaf_verify_report *report, sheaf_catalog *catalog,
                                   const sheaf_weights_verify_options *options);
void sheaf_verify_release(sheaf_verify_report *report);
/* sheaf_verify_sound - no finding is a defect, and all parts lie in one place. */
bool sheaf_verify_sound(const sheaf_verify_report *report);

/* ---- its parts ---- */

/* sheaf__verify_adapter - a finding for a config that is not read, and for all that
 * lora/check_file.h finds wrong without a base. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__verify_adapter(sheaf_catalog *catalog);
/* sheaf__verify_alone - and what it finds where there is none to hold it against. */
sheaf_status *sheaf__verify_alone(sheaf_catalog *catalog, const sheaf_lora_options *options);

/* Weights that are zero are what a download leaves that made room and did not fill it. */
enum { SHEAF__NOT_READ, SHEAF__ALL_ZERO, SHEAF__HAS_NONZERO };

/* sheaf__find_nonzero - *seen becomes SHEAF__HAS_NONZERO where a byte of `data` is not zero,
 * else SHEAF__ALL_ZERO unless it has numbers already. */
void sheaf__find_nonzero(_Atomic unsigned char *seen, const void *data, size_t bytes);

/* sheaf__verify_zeros - findings "zeros" for a catalog that was read; seen[first[t] + k] is of
 * piece k of tensor t. */
sheaf_status *sheaf__verify_zeros(sheaf_catalog *catalog, const _Atomic unsigned char *seen,
                                  const int64_t *first);

/* ---- which logical tensors differ ---- */

/* sheaf_diff - sheaf_weights_diff(). Keys of configs that only say where something came from are
 * not compared (base_model_name_or_path, transformers_version, ...). */
sheaf_status *sheaf_diff(sheaf_weights_diff_report *report, const char *a, const char *b,
                         const sheaf_weights_diff_options *options);
