/* packed.h - weights in tests of operations on each device (same.h): the host's is in panels, that
 * of a device may be row by row. */
#pragma once

#include "ops/matmul/matmul_private.h"
#include "tests/devices/same.h"

/* W, which takes the bytes of its panels and nothing else. */
static inline sheaf__packed packed_take(int64_t n, int64_t k, sheaf_dtype dtype)
{
    sheaf__packed w = { .dtype = dtype, .n = n, .k = k };
    char *at = same_blank((int64_t)sheaf__packed_size(&w) + 64, SHEAF_U8);
    w.ahead = at + (64 - (uintptr_t)at % 64) % 64;
    return w;
}

static inline size_t packed_row_bytes(const sheaf__packed *w)
{
    return (size_t)w->k * sheaf_dtype_bytes(w->dtype);
}

/* W or a part of it on the device of the loop; filled: with what the host's has. */
static inline sheaf__packed packed_there(sheaf__device *device, const sheaf__packed *w, bool filled)
{
    sheaf__packed there = *w;
    there.ahead = SAME(w->ahead);
    there.code = SAME(w->code);
    if (!device->class->row_major)
        return there;
    there.code = NULL;
    there.row_major = true;
    char *row = malloc(packed_row_bytes(w) + 1);
    for (int64_t r = 0; r < w->n && filled; r++) {
        sheaf__packed_row(row, w, r);
        CHECK_OK(sheaf__upload(device, mm_row_at(&there, r), row, packed_row_bytes(w)));
    }
    free(row);
    return there;
}

/* After the operation: the whole w has the rows of `want`, which is in panels, and no byte behind
 * them was written; it is given `want`'s panels, for same_check(). */
static inline void packed_seen(sheaf__device *device, const sheaf__packed *there,
                               const sheaf__packed *w, const sheaf__packed *want)
{
    const size_t bytes = sheaf__packed_size(want), row = packed_row_bytes(want);
    if (!there->row_major)
        return;
    char *got = malloc(bytes + 1), *rows = malloc(bytes + 1);
    memcpy(rows, w->ahead, bytes);
    for (int64_t r = 0; r < want->n; r++)
        sheaf__packed_row(rows + (size_t)r * row, want, r);
    CHECK_OK(sheaf__download(device, got, there->ahead, bytes));
    CHECK_BYTES("rows of a weight", got, rows, bytes);
    CHECK_OK(sheaf__upload(device, there->ahead, want->ahead, bytes));
    free(got);
    free(rows);
}
