/* copy.h - a source in another dtype. */
#pragma once

#include "checkpoint/convert/convert.h"
#include "sheaf/source.h"

/* sheaf__dtype_can - is there a rounding from one to the other? F64, F32, BF16, F16 to F32, BF16,
 * F16; equal ones. */
bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to);
/* sheaf__dtype_convert - n numbers, rounded once, to nearest even; NaN stays NaN. Integer
 * arithmetic: denormals count, whatever the mode of the thread. False when a finite number became
 * infinite. */
bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n);

/* sheaf__cast_source - `inner` (owned from now on, also after a failure) with floating-point
 * tensors in `dtype`; NULL keeps dtypes. Moments and quantized weights keep theirs, and what they
 * are read with; `config`, which may be NULL, is the model's and may say that they are. read()
 * fails with SHEAF_E_STOPPED once *stop is not 0. Thread-safe. */
sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config, const atomic_int *stop);
