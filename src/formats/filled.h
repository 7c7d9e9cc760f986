/* filled.h - tensors of a file whose bytes come in any order: do they lie inside, and did each
 * tensor get each of its bytes once? */
#pragma once

#include <stdint.h>

#include "sheaf/status.h"

/* Bytes written, and the sum of their positions mod 2^64: one half written twice has the right
 * count but not the right sum. All zero at first. */
typedef struct sheaf__filled {
    _Atomic int64_t written;
    _Atomic uint64_t positions;
} sheaf__filled;

/* sheaf__inside - `bytes` from `begin` lie within the `whole` of a tensor. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__inside(const char *path, const char *name, int64_t begin, int64_t bytes,
                            int64_t whole);
/* sheaf__filled_add - these bytes were written. Thread-safe. */
void sheaf__filled_add(sheaf__filled *filled, int64_t begin, int64_t bytes);
/* sheaf__filled_check - each of the `whole` was. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__filled_check(const sheaf__filled *filled, const char *path, const char *name,
                                  int64_t whole);
