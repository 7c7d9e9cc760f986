/* copy.h - streaming tensors out of a source, between the files of convert. */
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
 * tensors in `dtype`; NULL keeps dtypes. Quantized weights keep theirs, and what they are read
 * with; `config`, which may be NULL, is the model's and may say that they are. read() fails with
 * SHEAF_E_STOPPED once *stop is not 0. Thread-safe. */
sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config, const atomic_int *stop);

/* sheaf__both_sources - the tensors of two sources that have no name in common; both stay the
 * caller's. */
sheaf_status *sheaf__both_sources(sheaf_source **out, sheaf_source *one, sheaf_source *two);

/* One tensor to be copied. */
typedef struct sheaf_copy {
    const sheaf_source_entry *entry; /* borrowed */
    int64_t index;                   /* for the writer */
} sheaf_copy;

typedef struct sheaf_copying {
    sheaf_source *source;
    const sheaf_copy *copy;
    int64_t count;
    /* put - a box of the tensor's view (sheaf_source.read), dense. Called from several threads. */
    sheaf_status *(*put)(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                         int64_t cols, const void *src);
    void *context;
    int threads;
    const sheaf_events *events;
    _Atomic int64_t *done; /* bytes, over several calls */
    int64_t total;
    const char *what; /* of the progress: "bytes converted" */
} sheaf_copying;

/* sheaf__copy_all - every byte of every tensor once, in the order of the list. */
sheaf_status *sheaf__copy_all(const sheaf_copying *copying);

/* sheaf__copy_progress - adds to *done, and emits an event now and then. */
void sheaf__copy_progress(const sheaf_events *events, const char *what, _Atomic int64_t *done,
                          int64_t bytes, int64_t total);

int64_t sheaf__entry_bytes(const sheaf_source_entry *entry);
