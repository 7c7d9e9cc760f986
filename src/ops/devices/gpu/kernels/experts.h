/* experts.h - arguments of kernels of a mixture of experts. */
#pragma once

#include "ops/tensor/experts.h"

enum { CHOICE_THREADS = 256 };

/* A block of a choice has this many rows, so many floats apart in shared memory, then a float for
 * each: 96 KiB at most, if a row needs no more. */
SHEAF__SHARED_FN int32_t choice_pitch(int64_t experts)
{
    return (int32_t)experts | 1;
}
SHEAF__SHARED_FN int32_t choice_rows(int64_t experts)
{
    int32_t rows = 32;
    while (rows > 1 && rows * (choice_pitch(experts) + 1) > 24 << 10)
        rows /= 2;
    return rows;
}

/* A block has a row. Its first thread adds up the products that the others have made. */
enum { SHARE_MAKERS = 128, SHARE_THREADS = SHARE_MAKERS + 32 };
enum { SHARE_CHUNK = 8 * SHARE_MAKERS }; /* columns; in shared memory twice */
