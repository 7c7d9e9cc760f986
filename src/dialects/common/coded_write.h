/* coded_write.h - a model's folder in which some weights are stored in 4 or 8 bits, by rows of
 * catalog/packing.h: as bitsandbytes, GPTQ or AWQ stores them.
 *
 * Weights come in any boxes and in any order, and are quantised as they come. Of a tensor's values
 * only those of blocks that are not complete yet are kept, and its scales until its last value has
 * come: those in 8 bits follow from all of them. So are the codes of a packing whose lines are
 * columns (GPTQ, AWQ). Layouts of bitsandbytes:
 *
 *     X.weight                            U8 [n / 2, 1], two codes a byte
 *     X.weight.absmax                     F32 [blocks]; doubled: U8 [blocks]
 *     X.weight.quant_map                  F32 [16]
 *     X.weight.nested_absmax              F32 [blocks / 256], and
 *     X.weight.nested_quant_map           F32 [256], of doubled ones
 *     X.weight.quant_state.bitsandbytes__nf4   U8, JSON
 *     X.weight, X.SCB, X.weight_format    I8 [out, in], F32 [out], U8 0, of 8 bits
 *
 * and of GPTQ (4 bits; 8 have in / 4 and out / 4) and AWQ, of which there is no calibration: each
 * number has the nearest code (sheaf__quantise_groups()):
 *
 *     X.qweight   I32 [in / 8, out], of AWQ [in, out / 8]
 *     X.scales    F16 [groups, out]
 *     X.qzeros    I32 [groups, out / 8]; of GPTQ all are 8 (128), stored less one
 *     X.g_idx     I32 [in], of GPTQ: column / group */
#pragma once

#include "dialects/common/folder.h"
#include "ops/quant/quant.h"
#include "schema/schema.h"
#include "sheaf/options.h"

/* A tensor of the model. */
typedef struct sheaf__coded_tensor {
    sheaf_safetensors_spec spec; /* of the values that are put; F32, BF16, F16 where quantised */
    const struct sheaf__packing *packing; /* NULL: plain */
    sheaf__quant form; /* of bitsandbytes': its dtype stands in the state that is stored */
} sheaf__coded_tensor;

typedef struct sheaf__packer sheaf__packer;

/* sheaf__bnb_writes - can weights of this form be written as bitsandbytes'? */
bool sheaf__bnb_writes(const sheaf__quant *form);
/* sheaf__packer_new - names are borrowed. Errors: SHEAF_E_UNSUPPORTED for a quantised tensor
 * that is no matrix called X.weight, not of floats, or whose rows are not divided by its groups. */
sheaf_status *sheaf__packer_new(sheaf__packer **out, const sheaf__coded_tensor *tensor,
                                int64_t count);
void sheaf__packer_free(sheaf__packer *writer); /* accepts NULL */
/* sheaf__packer_specs - the tensors of the folder; borrowed. *late: for sheaf_folder_options,
 * NULL where no tensor's length has to be found. */
const sheaf_safetensors_spec *sheaf__packer_specs(int64_t *count, const bool **late,
                                                  const sheaf__packer *writer);
/* sheaf__packer_tensor - tensor i; NULL: it is plain. */
const sheaf__coded_tensor *sheaf__packer_tensor(const sheaf__packer *writer, int64_t i);
/* sheaf__packer_bytes - of all tensors of the folder but late ones. */
int64_t sheaf__packer_bytes(const sheaf__packer *writer);
/* sheaf__packer_begin - the folder of these specs, which must outlive the last put; tables
 * are written. */
sheaf_status *sheaf__packer_begin(sheaf__packer *writer, sheaf_folder *folder);
/* sheaf__packer_put - a `put` of a copy (checkpoint/store/stream.h) whose context is the
 * writer: a box of tensor[index] in its dtype, dense. Thread-safe for boxes that do not overlap.
 * Errors: also SHEAF_E_NUMBER, for values that are not finite, in 8 bits those above 65504, too. */
sheaf_status *sheaf__packer_put(void *writer, int64_t index, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const void *src);

/* ---- a whole model ---- */

/* sheaf__packer_of_model - a writer of `specs`, with those of them quantised that
 * bitsandbytes quantises (sheaf__is_quantisable()); their states have the dtype of the spec.
 *   group   of GPTQ and AWQ: columns that share a scale */
sheaf_status *sheaf__packer_of_model(sheaf__packer **out, const sheaf_safetensors_spec *specs,
                                     int64_t count, const sheaf_schema *schema, sheaf_quantize as,
                                     int64_t group);
/* sheaf__packer_set_config - quantization_config into the text of a config.json (malloc'd,
 * replaced), for such a writer, as transformers, gptqmodel or AutoAWQ writes it. transformers
 * computes in the dtype of the weights that bitsandbytes quantised. */
sheaf_status *sheaf__packer_set_config(char **json, const sheaf__packer *writer,
                                       const sheaf_schema *schema);
