/* filled.h - a file whose tensors come in any order, from several threads: does what is written lie
 * inside, and did each tensor get each of its bytes once? */
#pragma once

#include "base/file.h"

/* A tensor of it. `written`, and the sum of the positions mod 2^64: one half written twice has the
 * right count but not the right sum. */
typedef struct sheaf__filled {
    const char *name;
    int64_t offset, bytes; /* in the file */
    _Atomic int64_t written;
    _Atomic uint64_t positions;
} sheaf__filled;

typedef struct sheaf__filled_file {
    sheaf_file file;
    int64_t count;
    sheaf__filled *tensor; /* [count], owned */
} sheaf__filled_file;

/* sheaf__inside - `bytes` from `begin` lie within the `whole` of a tensor. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__inside(const char *path, const char *name, int64_t begin, int64_t bytes,
                            int64_t whole);
/* sheaf__filled_write - bytes of a tensor, from byte `begin` of it. Thread-safe for ranges that do
 * not overlap. */
sheaf_status *sheaf__filled_write(sheaf__filled_file *f, int64_t index, int64_t begin,
                                  const void *src, int64_t bytes);
/* sheaf__filled_check - each byte of each tensor was written. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__filled_check(const sheaf__filled_file *f);
/* sheaf__filled_close - syncs and closes it after NULL, else closes and removes it. Gives `st`
 * back, or what failed then. */
sheaf_status *sheaf__filled_close(sheaf__filled_file *f, sheaf_status *st);
