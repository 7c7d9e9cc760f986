/* experts.h - arguments of kernels of a mixture of experts. */
#pragma once

#include "ops/tensor/experts.h"

enum { CHOICE_THREADS = 256, CHOICE_ROWS = 32 };

/* A block has `rows` rows, CHOICE_ROWS at most, `pitch` floats apart in shared memory, then a float
 * for each. */
typedef struct choice_arguments {
    sheaf__choice of;
    int32_t rows, pitch;
} choice_arguments;

/* A block has a row. Its first thread adds up the products that the others have made. */
enum { SHARE_MAKERS = 128, SHARE_THREADS = SHARE_MAKERS + 32 };
enum { SHARE_CHUNK = 8 * SHARE_MAKERS }; /* columns; in shared memory twice */
