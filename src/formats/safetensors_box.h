/* safetensors_box.h - what reading and writing of boxes share; torch_write.c, too. */
#pragma once

#include "sheaf/dtype.h"

/* The tensor as a matrix, see sheaf_source.read. */
void sheaf__safetensors_view(int64_t *height, int64_t *width, int ndim, const int64_t *shape);
sheaf_status *sheaf__safetensors_check_box(const char *name, sheaf_dtype dtype, int ndim,
                                           const int64_t *shape, int64_t row0, int64_t rows,
                                           int64_t col0, int64_t cols);

/* begin + (begin + 1) + ... , `n` terms, mod 2^64: bytes written twice and others not at all show.
 */
static inline uint64_t sheaf__sum_of_positions(int64_t begin, int64_t n)
{
    const uint64_t b = (uint64_t)begin, m = (uint64_t)n;
    return b * m + (m % 2 == 0 ? m / 2 * (m - 1) : m * ((m - 1) / 2));
}
