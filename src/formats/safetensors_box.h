/* safetensors_box.h - what reading and writing of boxes share. */
#pragma once

#include "sheaf/dtype.h"

/* The tensor as a matrix, see sheaf_source.read. */
void sheaf__safetensors_view(int64_t *height, int64_t *width, int ndim, const int64_t *shape);
sheaf_status *sheaf__safetensors_check_box(const char *name, sheaf_dtype dtype, int ndim,
                                           const int64_t *shape, int64_t row0, int64_t rows,
                                           int64_t col0, int64_t cols);
