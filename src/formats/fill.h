/* fill.h - a file whose tensors are written in any order, from several threads: are writes within
 * bounds, and was each byte of each tensor written once? */
#pragma once

#include "base/file.h"

/* A tensor of it. `written`, and the sum of the positions mod 2^64: one half written twice has the
 * right count but not the right sum. */
typedef struct sheaf__fill {
    char *name;            /* owned */
    int64_t offset, bytes; /* in the file */
    _Atomic int64_t written;
    _Atomic uint64_t positions;
} sheaf__fill;

/* All zero: no file. */
typedef struct sheaf__fill_file {
    sheaf_file file;
    int64_t size; /* of the whole file */
    int64_t count;
    sheaf__fill *tensor; /* [count], owned */
} sheaf__fill_file;

/* sheaf__fill_new - for `count` tensors, whose names and places are still to be set. */
sheaf_status *sheaf__fill_new(sheaf__fill_file *f, int64_t count);
/* sheaf__fill_create - creates the file `path`, claims its size and writes its beginning. */
sheaf_status *sheaf__fill_create(sheaf__fill_file *f, const char *path, const void *header,
                                 size_t size);
/* sheaf__check_range - `bytes` from `begin` lie within the `whole` of a tensor. Errors:
 * SHEAF_E_ARG. */
sheaf_status *sheaf__check_range(const char *path, const char *name, int64_t begin, int64_t bytes,
                                 int64_t whole);
/* sheaf__fill_write - bytes of a tensor, from byte `begin` of it. Thread-safe for ranges that do
 * not overlap. */
sheaf_status *sheaf__fill_write(sheaf__fill_file *f, int64_t index, int64_t begin, const void *src,
                                int64_t bytes);
/* sheaf__fill_check - was each byte of each tensor written? Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__fill_check(const sheaf__fill_file *f);
/* sheaf__fill_finish - after `st` NULL: that check. Syncs and closes the file then; after a failure
 * closes and removes it. Releases `f`, of which there may be no file, and gives `st` back, or what
 * failed. */
sheaf_status *sheaf__fill_finish(sheaf__fill_file *f, sheaf_status *st);
