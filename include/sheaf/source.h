/* source.h - where the values of logical tensors come from. A dialect makes one
 * (Hugging Face folder), a checkpoint makes another; models only read. */
#pragma once

#include <stdint.h>

#include "sheaf/dtype.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_source_entry {
    const char *name; /* canonical, borrowed from the source */
    sheaf_dtype dtype;
    int ndim;
    int64_t shape[8];
} sheaf_source_entry;

struct sheaf__quantised_source;
typedef struct sheaf_source sheaf_source;
struct sheaf_source {
    /* NULL when there is no such tensor. */
    const sheaf_source_entry *(*find)(sheaf_source *self, const char *name);
    int64_t (*count)(sheaf_source *self);
    const sheaf_source_entry *(*entry)(sheaf_source *self, int64_t index);
    /* Reads a box of a tensor in its stored dtype, row-major, dense: rows [row0, row0 + rows),
     * columns [col0, col0 + cols). The columns are the last axis and the rows all before it; of a
     * tensor with one axis its elements are rows of one column; a scalar is one by one.
     * Reads only those bytes (with pread, no mapping). Thread-safe. */
    sheaf_status *(*read)(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                          int64_t col0, int64_t cols, void *dst);
    void (*close)(sheaf_source *self);
    /* Of tensors that are stored in 4 or 8 bits with scales; their entry has the type that read()
     * gives dequantised values in. NULL: there are none. Private (ops/quant/quant.h). */
    const struct sheaf__quantised_source *quantised;
};

#ifdef __cplusplus
}
#endif
