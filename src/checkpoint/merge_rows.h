/* merge_rows.h - the arithmetic of a merge, some rows of one tensor at a time. */
#ifndef SHEAF_CHECKPOINT_MERGE_ROWS_H
#define SHEAF_CHECKPOINT_MERGE_ROWS_H

#include "checkpoint/merge.h"
#include "lora/adapter.h"
#include "ops/kernels.h"
#include "sheaf/source.h"

/* Where one tensor of the output comes from. */
typedef struct sheaf__merge_tensor {
    const char *name;              /* in the output */
    const char *base_name;         /* in the base: another one for an untied head */
    const char *whole;             /* name in the adapter of a tensor that replaces the base's, or NULL */
    const sheaf_lora_module *module; /* or NULL */
    bool saved;                    /* `whole` was trained (not just PEFT's copy of the base) */
    sheaf_dtype base_dtype, whole_dtype, out_dtype;
    int ndim;
    int64_t shape[8];
    int64_t rows, cols;
    int64_t chunk;                 /* rows that one task takes */
} sheaf__merge_tensor;

/* What one chunk did. */
typedef struct sheaf__merge_stats {
    int64_t elements_changed;
    double change_squares, base_squares;
} sheaf__merge_stats;

typedef struct sheaf__merge_rows {
    sheaf_source *base, *adapter;
    const sheaf__kernels *kernels;
    sheaf_merge_mode mode;
    float *a;        /* of the module at hand: [rank, cols] float32, and packed */
    float *packed;
} sheaf__merge_rows;

/* Scratch of one thread; all zero is empty. */
typedef struct sheaf__merge_scratch {
    void *stored, *whole, *was; /* as in the files, and the base in the output's dtype */
    float *w, *d, *b;
    void *b_stored;
    void *out;
} sheaf__merge_scratch;

/* Room for `elements` of any tensor and `rank` numbers for each of `rows` rows. */
sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s, int64_t elements, int64_t rank_floats);
void sheaf__merge_scratch_release(sheaf__merge_scratch *s);

/* sheaf__merge_load_a - A of the tensor's module, for the rows that follow; nothing to do
 * for a tensor without one. */
sheaf_status *sheaf__merge_load_a(sheaf__merge_rows *m, const sheaf__merge_tensor *t);
/* sheaf__merge_make - rows [row0, row0 + rows) as they are to be written, in s->out.
 *   plain  compute by the definition instead of the fast kernels (for the check)
 *   stats  may be NULL */
sheaf_status *sheaf__merge_make(sheaf__merge_scratch *s, const sheaf__merge_rows *m, const sheaf__merge_tensor *t,
                                int64_t row0, int64_t rows, bool plain, sheaf__merge_stats *stats);

#endif
