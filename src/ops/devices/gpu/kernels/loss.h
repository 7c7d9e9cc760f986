/* loss.h - arguments of kernels on logits. */
#pragma once

#include "ops/tensor/loss.h"
#include "sheaf/cut.h"

/* A block has a row: few rows come at a time, so it has many threads. */
enum { ROW_MAX_THREADS = 512 };

/* Blocks in y are slices. A block's first warp adds up what the others have made of the columns. */
enum { ROW_SUMS_MAKERS = 256, ROW_SUMS_THREADS = ROW_SUMS_MAKERS + 32 };
enum { ROW_SUMS_CHUNK = 8 * ROW_SUMS_MAKERS }; /* columns; in shared memory twice, or four times */

typedef struct row_sums_arguments {
    sheaf__logits l;
    const float *max;
    float *exponentials, *logits; /* [slices][ld]; logits: or NULL */
    int64_t ld;
    int64_t begin[SHEAF_MAX_SLICES], extent[SHEAF_MAX_SLICES];
} row_sums_arguments;

/* Blocks in y are GRADIENT_COLUMNS columns each. */
enum { GRADIENT_THREADS = 256, GRADIENT_COLUMNS = 8 * GRADIENT_THREADS };

/* of each row what it loses, then minus the word that is first, or 0 */
typedef struct losses_arguments {
    sheaf__losses of;
    float *loss;
} losses_arguments;
