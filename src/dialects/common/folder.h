/* folder.h - writes a folder of safetensors files that appears only when it is complete.
 *
 * All tensors are declared first, so the space of all shards is allocated before the first value is
 * computed; then boxes are written in any order, from any thread of the process. */
#pragma once

#include "base/output.h"
#include "formats/safetensors.h"

/* The metadata key for the fingerprint of an adapter's base. */
#define SHEAF__BASE_PRINT "sheaf.base"

typedef struct sheaf_folder sheaf_folder;

typedef struct sheaf_folder_options {
    /* "model": model.safetensors, or model-00001-of-00002.safetensors and an index */
    const char *stem;
    int64_t shard_bytes;    /* 0: never divide */
    bool replace;           /* see sheaf__output_begin() */
    const char *base_print; /* the value of SHEAF__BASE_PRINT; NULL: no such key */
    unsigned file_names; /* sheaf_hf_begin(): as a catalog's; 0: names are those of published files
                          */
    const bool *late;    /* parallel to the specs: sheaf__safetensors_begin_late(); NULL: none */
} sheaf_folder_options;

/* sheaf__folder_begin - shards are cut in the order of `specs`, as transformers does it: a shard
 * ends before the tensor that would make it larger than shard_bytes; a larger tensor has its own
 * shard. */
sheaf_status *sheaf__folder_begin(sheaf_folder **out, const char *dst,
                                  const sheaf_safetensors_spec *specs, int64_t count,
                                  const sheaf_folder_options *options);
/* sheaf__folder_write - rows [row0, row0 + rows) and columns [col0, col0 + cols) of specs[index] in
 * its dtype, dense, as sheaf_source.read counts them. Thread-safe for boxes that do not overlap. */
sheaf_status *sheaf__folder_write(sheaf_folder *folder, int64_t index, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, const void *src);
/* sheaf__folder_late - all bytes of a late tensor. Thread-safe for different tensors. */
sheaf_status *sheaf__folder_late(sheaf_folder *folder, int64_t index, const void *src,
                                 int64_t bytes);
/* sheaf__folder_settle - after the last late tensor: the folder can be opened. */
sheaf_status *sheaf__folder_settle(sheaf_folder *folder);
/* sheaf__folder_bytes - writes a small file; sheaf__folder_text - of a text. */
sheaf_status *sheaf__folder_bytes(sheaf_folder *folder, const char *name, const void *bytes,
                                  size_t size);
sheaf_status *sheaf__folder_text(sheaf_folder *folder, const char *name, const char *text);
/* sheaf__folder_copy - copies file `name` of the folder `from` with its permissions, if it exists
 * and the folder has none of this name yet. */
sheaf_status *sheaf__folder_copy(sheaf_folder *folder, const char *from, const char *name);
/* sheaf__folder_dir - borrowed: the folder of the files before commit. With all tensors written it
 * can be opened like the final folder. */
const char *sheaf__folder_dir(const sheaf_folder *folder);
/* sheaf__folder_sync - after the last write: checks that every tensor is complete, and syncs the
 * shards to disk. Commit calls it if it was not called. Errors: as commit. */
sheaf_status *sheaf__folder_sync(sheaf_folder *folder);
/* sheaf__folder_commit - frees in any case. Errors: SHEAF_E_LAYOUT when a tensor did not get all of
 * its bytes. On failure nothing is left. */
sheaf_status *sheaf__folder_commit(sheaf_folder *folder);
void sheaf__folder_abandon(sheaf_folder *folder); /* accepts NULL */
/* sheaf__folder_end - commits if `st` is NULL, else abandons; returns `st`, or the failure of the
 * commit. */
sheaf_status *sheaf__folder_end(sheaf_folder *folder, sheaf_status *st);

/* Rows [row0, row0 + rows) of tensor `index`, all columns, into dst. */
typedef sheaf_status *(*sheaf_folder_rows)(void *context, int64_t index, int64_t row0, int64_t rows,
                                           void *dst);
/* sheaf__folder_write_all - writes all tensors in turn, with at most `chunk` bytes (0: 16 MB; but
 * at least one row) from each call of `rows`. */
sheaf_status *sheaf__folder_write_all(sheaf_folder *folder, sheaf_folder_rows rows, void *context,
                                      size_t chunk);
