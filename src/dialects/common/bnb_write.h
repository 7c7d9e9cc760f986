/* bnb_write.h - a model's folder in which some weights are stored as bitsandbytes stores them.
 *
 * Weights come in any boxes and in any order, and are quantised as they come. Of a tensor's values
 * only those of blocks that are not complete yet are kept, and its scales until its last value has
 * come: those in 8 bits follow from all of them. The layout of the files is bitsandbytes' own:
 *
 *     X.weight                            U8 [n / 2, 1], two codes a byte
 *     X.weight.absmax                     F32 [blocks]; doubled: U8 [blocks]
 *     X.weight.quant_map                  F32 [16]
 *     X.weight.nested_absmax              F32 [blocks / 256], and
 *     X.weight.nested_quant_map           F32 [256], of doubled ones
 *     X.weight.quant_state.bitsandbytes__nf4   U8, JSON
 *     X.weight, X.SCB, X.weight_format    I8 [out, in], F32 [out], U8 0, of 8 bits */
#pragma once

#include "dialects/common/folder.h"
#include "ops/quant/quant.h"
#include "schema/schema.h"
#include "sheaf/options.h"

/* A tensor of the model. */
typedef struct sheaf__bnb_tensor {
    sheaf_safetensors_spec spec; /* of the values that are put; F32, BF16, F16 where quantised */
    bool quantised;
    sheaf__quant form; /* NF4, FP4 or INT8; its dtype stands in the state that is stored */
} sheaf__bnb_tensor;

typedef struct sheaf__bnb_writer sheaf__bnb_writer;

/* sheaf__bnb_writes - can weights of this form be written? */
bool sheaf__bnb_writes(const sheaf__quant *form);
/* sheaf__bnb_new - names are borrowed. Errors: SHEAF_E_UNSUPPORTED for a quantised tensor that is
 * no matrix called X.weight, or not of floats. */
sheaf_status *sheaf__bnb_new(sheaf__bnb_writer **out, const sheaf__bnb_tensor *tensor,
                             int64_t count);
void sheaf__bnb_free(sheaf__bnb_writer *writer); /* accepts NULL */
/* sheaf__bnb_specs - the tensors of the folder; borrowed. *late: for sheaf_folder_options, NULL
 * where no tensor's length has to be found. */
const sheaf_safetensors_spec *sheaf__bnb_specs(int64_t *count, const bool **late,
                                               const sheaf__bnb_writer *writer);
/* sheaf__bnb_form - of tensor i; NULL: it is plain. */
const sheaf__quant *sheaf__bnb_form(const sheaf__bnb_writer *writer, int64_t i);
/* sheaf__bnb_bytes - of all tensors of the folder but late ones. */
int64_t sheaf__bnb_bytes(const sheaf__bnb_writer *writer);
/* sheaf__bnb_begin - the folder of these specs, which must outlive the last put; tables are
 * written. */
sheaf_status *sheaf__bnb_begin(sheaf__bnb_writer *writer, sheaf_folder *folder);
/* sheaf__bnb_put - a `put` of a copy (checkpoint/store/stream.h) whose context is the writer: a box
 * of tensor[index] in its dtype, dense. Thread-safe for boxes that do not overlap. Errors: also
 * SHEAF_E_NUMBER, for values that are not finite, in 8 bits those above 65504, too. */
sheaf_status *sheaf__bnb_put(void *writer, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                             int64_t cols, const void *src);

/* ---- a whole model ---- */

/* sheaf__bnb_of_model - a writer of `specs`, with those of them quantised that bitsandbytes
 * quantises (sheaf__is_quantisable()); their states have the dtype of the spec. */
sheaf_status *sheaf__bnb_of_model(sheaf__bnb_writer **out, const sheaf_safetensors_spec *specs,
                                  int64_t count, const sheaf_schema *schema, sheaf_quantize as);
/* sheaf__bnb_set_config - quantization_config into the text of a config.json (malloc'd, replaced),
 * for such a writer. transformers computes in the dtype of the quantised weights. */
sheaf_status *sheaf__bnb_set_config(char **json, const sheaf__bnb_writer *writer,
                                    const sheaf_schema *schema);
/* sheaf__bnb_config - the text of a quantization_config (malloc'd), as transformers writes it.
 *   compute  the type that transformers computes in
 *   skip     JSON of llm_int8_skip_modules; NULL: null, all but what bitsandbytes leaves itself */
sheaf_status *sheaf__bnb_config(char **out, const sheaf__quant *form, sheaf_dtype compute,
                                const char *skip);
