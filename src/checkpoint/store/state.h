/* state.h - what a training run saves: float32 tensors in slices, and a JSON text.
 *
 * The names are the caller's ("master/NAME", "exp_avg/NAME", "exp_avg_sq/NAME"),
 * distinct, in any order. Of a cut tensor a rank hands over the slices it owns,
 * each dense and row-major: the rows (axis 0) or columns (axis 1) of the slice, of
 * all parts one after the other. Every rank hands over all of a replicated tensor. */
#pragma once

#include <stdint.h>

#include "sheaf/cut.h"

typedef struct sheaf_state_tensor {
    const char *name;
    int ndim;             /* 1 or 2 */
    int64_t shape[2];     /* of the undivided tensor; shape[1] = 1 when ndim is 1 */
    const sheaf_cut *cut; /* NULL or nparts 0: replicated */
    float *const *slice;  /* [S] data of the slices of this rank, others NULL (one that holds no
                             rows may be NULL too); replicated: slice[0] alone */
} sheaf_state_tensor;

typedef struct sheaf_state {
    int slices;   /* S */
    int contract; /* version of the numeric contract */
    int64_t step; /* steps done */
    int64_t count;
    const sheaf_state_tensor *tensor;
    const char *progress; /* a JSON object: counters, settings, seed, hashes of data and base; no
                             rank count, host, path or time. The same text on every rank. Loading
                             ignores it: see sheaf_checkpoint_progress(). */
} sheaf_state;
