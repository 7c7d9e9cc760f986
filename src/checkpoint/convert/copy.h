/* copy.h - sources of a conversion, and where one goes: in another dtype, with an adapter as SAT
 * has it, into slices. */
#pragma once

#include "checkpoint/convert/convert.h"
#include "schema/schema.h"
#include "sheaf/source.h"

/* sheaf__dtype_can - is there a rounding from one to the other? F64, F32, BF16, F16 to F32, BF16,
 * F16; equal ones. */
bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to);
/* sheaf__dtype_convert - n numbers, rounded once, to nearest even; NaN stays NaN, denormals count.
 * False when a finite number became infinite. */
bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n);

/* sheaf__cast_source - `inner` (owned from now on, also after a failure) with floating-point
 * tensors in `dtype`; NULL keeps dtypes. Moments and quantized weights keep theirs, and what they
 * are read with; `config`, which may be NULL, is the model's and may say that they are.
 * Thread-safe. */
sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config);

/* sheaf__adapted_source - what `base` has, tensors that the adapter holds whole in their places (in
 * the base's dtype), and X.matrix_A.p, X.matrix_B.p for part p of each adapted layer X, in the
 * adapter's dtype.
 *   rank    out: r, the same for all layers
 *   base    owned from now on, also after a failure
 *   schema  of the model; must outlive the source
 * SAT's scale is 1 / r. Where the adapter's is 2^k / r, B is multiplied by 2^k, which changes no
 * digit.
 * Errors: those of reading the adapter; SHEAF_E_UNSUPPORTED for what SAT cannot say, with the way
 * by a merge. */
sheaf_status *sheaf__adapted_source(sheaf_source **out, int64_t *rank, sheaf_source *base,
                                    const sheaf_schema *schema, const char *adapter,
                                    const sheaf_events *events);

/* A source as sheaf's own folder: a file for each slice, one for what is not cut, and the manifest;
 * what reads, verifies and compares training checkpoints reads it. */
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

/* sheaf__slices_write - complete at `dst`, or nothing. Moments ("exp_avg.NAME") are cut as NAME
 * is. */
sheaf_status *sheaf__slices_write(const char *dst, const sheaf_slices_write *how);
