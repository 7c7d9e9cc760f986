/* convert.h - a checkpoint of any dialect becomes one of another: joined, divided, unpadded, in
 * another dtype.
 *
 * Tensors stream from the pieces of the catalog to the files of the target, in buffers of some
 * megabytes for each thread. A missing piece is an error before the first byte is written; the
 * output appears by one rename. */
#pragma once

#include <stdatomic.h>

#include "base/control.h"
#include "catalog/catalog.h"
#include "checkpoint/store/stream.h"
#include "dialects/common/coded_write.h"
#include "dialects/common/dialects.h"
#include "schema/schema.h"
#include "sheaf/checkpoint.h"
#include "sheaf/source.h"

/* sheaf_convert - sheaf_weights_convert() for sources that are not runs; options->threads 0 means
 * one thread. Warnings and notes of the reader go to events. */
sheaf_status *sheaf_convert(sheaf_weights_convert_report *report,
                            const sheaf_weights_convert_options *options);

/* ---- sources and targets of a conversion ---- */

/* sheaf__dtype_can - can values of `from` be rounded to `to`? F64, F32, BF16, F16 to F32, BF16,
 * F16; equal dtypes. */
bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to);
/* sheaf__dtype_convert - n numbers, rounded once, to nearest even; NaN stays NaN, denormals are
 * kept. False when a finite number became infinite. */
bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n);

/* sheaf__cast_source - `inner` (owned from now on, also after a failure) with floating-point
 * tensors in `dtype`; NULL keeps dtypes. Moments, quantized weights and their scales and zero
 * points keep theirs; `config` (may be NULL) is the model's, which may say that its weights are
 * quantized. Thread-safe. */
sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config);

/* sheaf__adapted_source - the tensors of `base`, with those that the adapter replaces (in the
 * base's dtype), and X.matrix_A.p, X.matrix_B.p for part p of each adapted layer X, in the
 * adapter's dtype.
 *   rank    out: r, the same for all layers
 *   base    owned from now on, also after a failure
 *   schema  of the model; must outlive the source
 * SAT's scale is 1 / r. Where the adapter's is 2^k / r, B is multiplied by 2^k, which is exact.
 * Errors: those of reading the adapter; SHEAF_E_UNSUPPORTED for what SAT cannot express, with the
 * advice to merge. */
sheaf_status *sheaf__adapted_source(sheaf_source **out, int64_t *rank, sheaf_source *base,
                                    const sheaf_schema *schema, const char *adapter,
                                    const sheaf_events *events);

/* A source written as sheaf's own checkpoint: a file for each slice, one for replicated tensors,
 * and the manifest, as training checkpoints have them. */
typedef struct sheaf_slices_write {
    sheaf_source *source;
    const sheaf_schema *schema; /* cut for `slices`; NULL: nothing is cut */
    int slices;
    int64_t step;         /* at least 0 */
    const char *progress; /* JSON object */
    int threads;
    const atomic_int *stop;
    const sheaf_events *events;
    _Atomic int64_t *done;
    int64_t total;
} sheaf_slices_write;

/* sheaf__slices_write - writes `dst` completely or not at all. Moments ("exp_avg.NAME") are cut as
 * NAME is. */
sheaf_status *sheaf__slices_write(const char *dst, const sheaf_slices_write *how);

/* ---- the state of a conversion ---- */

enum { SHEAF__CONVERT_SLICES = 8 }; /* default of --slices */

typedef struct sheaf__converter {
    const sheaf_weights_convert_options *o;
    sheaf_weights_convert_report *report;
    sheaf_catalog *catalog;       /* until a source takes it over */
    char *root, *config;          /* copies of the catalog's */
    const sheaf_dialect *dialect; /* of the catalog */
    unsigned file_names;          /* the catalog's */
    char *model;                  /* NULL = not recognised */
    int64_t step;
    int64_t lora_rank; /* of the adapter; 0 = none */
    bool has_config;   /* `parsed` and `schema` are set */
    sheaf_config parsed;
    sheaf_schema *schema;
    sheaf_source *source;       /* weights, buffers, requested moments, in the requested dtype */
    int64_t nweights, nmoments; /* numbers of its tensors */
    bool as_stored;             /* `source` keeps its dtypes: the writer changes them itself */
    sheaf__packer *quantising;  /* NULL: weights are written as they are */
    _Atomic int64_t done;
    int64_t total;
} sheaf__converter;

/* sheaf__convert_copy - sheaf__copy_all() as the options say, with the progress of `k`; `job` says
 * which tensors go where, the first five members. */
sheaf_status *sheaf__convert_copy(sheaf__converter *k, sheaf_copy_job job);
/* sheaf__convert_count - adds the tensors of k->source to the report. */
void sheaf__convert_count(sheaf__converter *k);
/* sheaf__convert_inside - k->source: the PEFT LoRA tensors of a checkpoint of the whole model,
 * under an adapter's names; k->config: its adapter_config.json, found beside the checkpoint or made
 * from --lora-alpha, names and shapes. */
sheaf_status *sheaf__convert_inside(sheaf__converter *k);

/* sheaf__convert_settle_codes - after k->catalog was read by `hints`: weights in 4 or 8 bits are
 * dequantised if --dequantize says so; else k->catalog becomes one of their files' tensors, where
 * the target `keeps` such weights, whose scales are checked. Errors: SHEAF_E_NUMBER; SHEAF_E_ARG,
 * SHEAF_E_UNSUPPORTED for options that do not fit what is there. */
sheaf_status *sheaf__convert_settle_codes(sheaf__converter *k, const sheaf_dialect_hints *hints,
                                          bool keeps);
/* sheaf__convert_quantise - k->quantising for the tensors that are to be written, which have the
 * dtypes of k->source. Errors: SHEAF_E_UNSUPPORTED for a model that is not known. */
sheaf_status *sheaf__convert_quantise(sheaf__converter *k, const sheaf_safetensors_spec *specs,
                                      int64_t count);

/* The writers of the targets. Each writes the whole output or leaves none. */
sheaf_status *sheaf__convert_to_hf(sheaf__converter *k);
sheaf_status *sheaf__convert_to_sat(sheaf__converter *k);
sheaf_status *sheaf__convert_to_sheaf(sheaf__converter *k);
sheaf_status *sheaf__convert_to_peft(sheaf__converter *k);
sheaf_status *sheaf__convert_to_gguf(sheaf__converter *k);
sheaf_status *sheaf__convert_to_gguf_lora(sheaf__converter *k);
sheaf_status *sheaf__convert_to_gguf_mmproj(sheaf__converter *k);

/* sheaf__convert_cast - k->source: `inner` (owned from now on, also after a failure) in the
 * requested dtype. */
static inline sheaf_status *sheaf__convert_cast(sheaf__converter *k, sheaf_source *inner)
{
    const bool keeps = k->as_stored || k->o->dtype == SHEAF_BOOL;
    return sheaf__cast_source(&k->source, inner, keeps ? NULL : &k->o->dtype, k->config);
}
