/* rows.h - the arithmetic of a merge, a tile of one tensor at a time.
 *
 * A tensor is seen as rows of its first axis, everything behind it being columns, so that
 * its change is always L R with a left factor of some columns a row: of W [out, in] L is B
 * and R is A; of a table or a Conv1D weight [in, out] L is the transpose of A and R that of B. */
#pragma once

#include <stdatomic.h>

#include "checkpoint/merge/merge.h"
#include "lora/delta.h"
#include "ops/kernels.h"
#include "sheaf/source.h"

enum {
    SHEAF__MERGE_TILE = 1 << 16,  /* elements of a tile */
    SHEAF__MERGE_LEFT = 1 << 16,  /* numbers of left factors of a tile */
    SHEAF__MERGE_RIGHT = 1 << 22, /* numbers of right factors of a panel of columns */
    SHEAF__MERGE_RANKS = 1 << 16, /* the most that the ranks of one tensor may add up to */
};

typedef struct sheaf__merge_pick {
    int64_t row, from;
} sheaf__merge_pick; /* a trained row, and where it lies */

/* What one adapter does to one tensor. Entries are borrowed from the adapter. */
typedef struct sheaf__merge_step {
    enum { SHEAF__MERGE_DELTA, SHEAF__MERGE_BIAS, SHEAF__MERGE_PICKS } kind;
    int number; /* of the adapter, from 0 */
    sheaf_source *adapter;
    const sheaf_source_entry *a, *b, *magnitude; /* magnitude: DoRA, else NULL */
    const sheaf_source_entry *values;            /* of a bias on B, or of trained rows */
    int64_t rank;
    float scale;
    bool across;   /* the tensor is stored [in, out] */
    bool square;   /* both ways fit, so `across` is a decision */
    bool rounded;  /* PEFT rounds the change of a table before it adds it */
    float *factor; /* DoRA: magnitude over norm of each row, or column where `across`; owned */
    int64_t npicks;
    sheaf__merge_pick *pick; /* ascending by row */
} sheaf__merge_step;

/* Where one tensor of the output comes from. */
typedef struct sheaf__merge_tensor {
    const char *name; /* in the output; borrowed from the base or the plan */
    const sheaf_source_entry *base;
    sheaf_source *whole_from; /* the adapter that has a tensor in place of the base's, or NULL */
    const sheaf_source_entry *whole;
    int whole_number; /* of that adapter */
    bool saved;       /* `whole` was trained (not just PEFT's copy of the base) */
    bool table;       /* has a row for each token, as far as is known */
    bool made;        /* the files hold it under another name, whose entry `base` is */
    bool twice;       /* they hold it under this name too */
    sheaf_dtype out_dtype;
    int ndim;
    int64_t shape[8];
    int64_t rows, cols;
    int nsteps;
    sheaf__merge_step *step; /* in the order of the adapters */
    int64_t ranks;           /* of all steps together */
    int64_t panel, chunk;    /* columns and rows of a tile */
} sheaf__merge_tensor;

/* sheaf__merge_make_tensor - of an entry of the base, nothing done to it yet. */
sheaf__merge_tensor sheaf__merge_make_tensor(const char *name, const sheaf_source_entry *entry);
void sheaf__merge_release_tensor(sheaf__merge_tensor *tensor);
/* sheaf__merge_touched - does anything happen to the tensor beside being copied? */
bool sheaf__merge_touched(const sheaf__merge_tensor *t);
/* What all threads share while they work on one tensor. */
typedef struct sheaf__merge_rows {
    sheaf_source *base;
    const sheaf__kernels *kernels;
    void (*delta)(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                  int64_t rank, int64_t block);
    sheaf_weights_merge_mode mode;
    sheaf_peft_cpu cpu; /* whose order of sums counts; never SHEAF_PEFT_CPU_THIS */
    const sheaf__merge_tensor *t;
    int64_t col0, cols; /* the panel at hand */
    float *right;       /* the panel's right factors, packed, one step after another */
    void *stored;       /* for reading them */
    float *numbers;
    atomic_bool *other_copy; /* set when PEFT's copy of the base is not what the base holds */
} sheaf__merge_rows;

sheaf_status *sheaf__merge_rows_init(sheaf__merge_rows *m, sheaf_source *base,
                                     sheaf_weights_merge_mode mode, sheaf_peft_cpu cpu);
/* sheaf__merge_has_kernel - is it of a convolution whose kernel has more than one element? */
bool sheaf__merge_has_kernel(const sheaf__merge_step *step);
void sheaf__merge_rows_release(sheaf__merge_rows *m);
/* sheaf__merge_rows_panel - right factors for the columns from `col0` of m->t; its panel
 * follows. */
sheaf_status *sheaf__merge_rows_panel(sheaf__merge_rows *m, int64_t col0);

/* Scratch of one thread; all zero is empty. */
typedef struct sheaf__merge_scratch {
    void *stored, *was, *out; /* a tile as read, the base's in the output's dtype, the result */
    float *w, *d, *left;
    void *left_stored;
    double *sums; /* [tile] for checks; it begins the memory of all */
} sheaf__merge_scratch;

sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s);
void sheaf__merge_scratch_release(sheaf__merge_scratch *s);

/* sheaf__merge_tile - rows [row0, row0 + rows) of the panel as they are to be written, in
 * s->out. */
sheaf_status *sheaf__merge_tile(sheaf__lora_change *change, sheaf__merge_scratch *s,
                                sheaf__merge_rows *m, int64_t row0, int64_t rows);
/* sheaf__merge_sum - the same up to step `step`, which has no factor yet: float32 in s->w. */
sheaf_status *sheaf__merge_sum(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                               int64_t rows, int step);
/* sheaf__merge_left - the left factors of a step for some rows, [rows, rank] in s->left. */
sheaf_status *sheaf__merge_left(sheaf__merge_scratch *s, const sheaf__merge_rows *m,
                                const sheaf__merge_step *step, int64_t row0, int64_t rows);
/* sheaf__merge_start - the tensor before all steps, as the mode takes it: a tile as float32 in
 * s->w. */
sheaf_status *sheaf__merge_start(sheaf__merge_scratch *s, sheaf__merge_rows *m, int64_t row0,
                                 int64_t rows);
