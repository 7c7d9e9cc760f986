/* fill.h - a file whose tensors are written in any order, from several threads: are writes within
 * bounds, and was each byte of each tensor written once? */
#pragma once

#include "base/file.h"

/* A tensor of it. `written`, and the sum of the positions mod 2^64: one half written twice has the
 * right count but not the right sum. */
typedef struct sheaf__fill {
    const char *name;
    int64_t offset, bytes; /* in the file */
    _Atomic int64_t written;
    _Atomic uint64_t positions;
} sheaf__fill;

typedef struct sheaf__fill_file {
    sheaf_file file;
    int64_t count;
    sheaf__fill *tensor; /* [count], owned */
} sheaf__fill_file;

/* sheaf__check_range - `bytes` from `begin` lie within the `whole` of a tensor. Errors:
 * SHEAF_E_ARG. */
sheaf_status *sheaf__check_range(const char *path, const char *name, int64_t begin, int64_t bytes,
                                 int64_t whole);
/* sheaf__fill_write - bytes of a tensor, from byte `begin` of it. Thread-safe for ranges that do
 * not overlap. */
sheaf_status *sheaf__fill_write(sheaf__fill_file *f, int64_t index, int64_t begin, const void *src,
                                int64_t bytes);
/* sheaf__fill_check - each byte of each tensor was written. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__fill_check(const sheaf__fill_file *f);
/* sheaf__fill_close - syncs and closes it after NULL, else closes and removes it. Gives `st`
 * back, or what failed then. */
sheaf_status *sheaf__fill_close(sheaf__fill_file *f, sheaf_status *st);
