/* put_tensors.h - a safetensors file made for a test. */
#pragma once

#include "tests/check.h"

#include "formats/safetensors.h"

/* data: of each tensor; NULL: all are zero. */
static inline void put_tensors(const char *path, const sheaf_safetensors_spec *spec, int64_t count,
                               const void *const *data)
{
    sheaf_safetensors_writer *w = NULL;
    CHECK_OK(sheaf__safetensors_begin(&w, path, spec, count, NULL, 0));
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes;
        CHECK_OK(sheaf__safetensors_bytes(&bytes, &spec[i]));
        void *zeros = data == NULL ? calloc(1, (size_t)bytes + 1) : NULL;
        CHECK_OK(sheaf__safetensors_write(w, i, 0, data == NULL ? zeros : data[i], bytes));
        free(zeros);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
}
