/* safetensors.h - named tensors in one file.
 *
 *   bytes 0..7      n, the length of the header: u64, little endian, at most 100 000 000
 *   bytes 8..8+n    UTF-8 JSON: name -> {"dtype", "shape": [d...], "data_offsets": [begin, end]}
 *                   and optionally "__metadata__": {string: string}
 *   bytes 8+n..     tensor data, row-major, little endian; offsets count from here; the
 *                   tensors tile it without holes or overlaps, up to the end of the file
 *
 * The reader accepts and refuses what the official parser (safetensors 0.8.0) does; the few
 * differences, all refusals, are listed in docs/formats.md. Data is read with pread,
 * never mapped. The writer's bytes are those of the official one. */
#pragma once

#include "base/file.h"
#include "sheaf/source.h"

#define SHEAF_SAFETENSORS_MAX_DIMS 8
#define SHEAF_SAFETENSORS_MAX_HEADER 100000000

typedef struct sheaf_safetensors_entry {
    const char *name; /* borrowed from the header */
    sheaf_dtype dtype;
    int ndim; /* 0 = scalar */
    int64_t shape[SHEAF_SAFETENSORS_MAX_DIMS];
    int64_t offset; /* from the start of the file */
    int64_t bytes;
} sheaf_safetensors_entry;

typedef struct sheaf_safetensors_pair {
    char *key, *value;
} sheaf_safetensors_pair;

typedef struct sheaf__named {
    const char *name;
    int64_t index;
} sheaf__named;

/* A parsed header. Entries ascend by offset. */
typedef struct sheaf_safetensors_header {
    int64_t count;
    sheaf_safetensors_entry *entry;
    int64_t npairs; /* of __metadata__, sorted by key */
    sheaf_safetensors_pair *pair;
    sheaf__named *by_name; /* the entries, sorted by name */
} sheaf_safetensors_header;

/* sheaf__safetensors_parse - `text` is the header's JSON of `size` bytes in a file of `file_size`
 * bytes. Errors: SHEAF_E_FORMAT naming the defect; SHEAF_E_UNSUPPORTED for what C cannot hold. */
sheaf_status *sheaf__safetensors_parse(sheaf_safetensors_header *out, const char *text, size_t size,
                                       int64_t file_size);
void sheaf__safetensors_header_release(sheaf_safetensors_header *header);

/* The tensor as a matrix, see sheaf_source.read. */
void sheaf__safetensors_view(int64_t *height, int64_t *width, int ndim, const int64_t *shape);
sheaf_status *sheaf__safetensors_check_box(const char *name, sheaf_dtype dtype, int ndim,
                                           const int64_t *shape, int64_t row0, int64_t rows,
                                           int64_t col0, int64_t cols);

/* ---- an open file ---- */

typedef struct sheaf_safetensors {
    char *path; /* owned */
    int fd;
    sheaf_file_mark mark; /* before anything of it was read */
    sheaf_safetensors_header header;
} sheaf_safetensors;

sheaf_status *sheaf__safetensors_open(sheaf_safetensors **out, const char *path);
void sheaf__safetensors_close(sheaf_safetensors *file);
/* sheaf__safetensors_find - NULL when there is none. */
const sheaf_safetensors_entry *sheaf__safetensors_find(const sheaf_safetensors *file,
                                                       const char *name);
/* sheaf__safetensors_metadata - the value of a metadata key, or NULL. */
const char *sheaf__safetensors_metadata(const sheaf_safetensors *file, const char *key);
/* sheaf__safetensors_read - `bytes` from byte `begin` of the tensor. Thread-safe. */
sheaf_status *sheaf__safetensors_read(const sheaf_safetensors *file,
                                      const sheaf_safetensors_entry *entry, int64_t begin,
                                      void *dst, int64_t bytes);
/* ---- writing ---- */

typedef sheaf_source_entry sheaf_safetensors_spec; /* its name is borrowed during begin only */

typedef struct sheaf_safetensors_writer sheaf_safetensors_writer;

/* sheaf__safetensors_bytes - of one tensor. Errors: SHEAF_E_ARG when it overflows or is not whole
 * bytes. */
sheaf_status *sheaf__safetensors_bytes(int64_t *bytes, const sheaf_safetensors_spec *spec);
/* sheaf__safetensors_plan - what begin would write before the data without metadata (length and
 * header; malloc'd, `size` bytes) and where in the file each tensor would begin: offset[i], of
 * specs[i]. */
sheaf_status *sheaf__safetensors_plan(char **header, size_t *size, int64_t *offset,
                                      const sheaf_safetensors_spec *specs, int64_t count);
/* sheaf__safetensors_begin - creates `path`, claims its full size and writes the header.
 *   specs     in any order, names all different; index i of the calls below is specs[i]
 *   metadata  npairs of them, or none: {"format", "pt"} is what transformers requires */
sheaf_status *sheaf__safetensors_begin(sheaf_safetensors_writer **out, const char *path,
                                       const sheaf_safetensors_spec *specs, int64_t count,
                                       const sheaf_safetensors_pair *metadata, int64_t npairs);
/* sheaf__safetensors_begin_late - the same with late tensors, late[i] of specs[i]: one axis of
 * bytes, of at most this length; their contents come with sheaf__safetensors_late(). late NULL:
 * none. */
sheaf_status *sheaf__safetensors_begin_late(sheaf_safetensors_writer **out, const char *path,
                                            const sheaf_safetensors_spec *specs, const bool *late,
                                            int64_t count, const sheaf_safetensors_pair *metadata,
                                            int64_t npairs);
/* sheaf__safetensors_late - all of a late tensor, copied. Thread-safe for different tensors. */
sheaf_status *sheaf__safetensors_late(sheaf_safetensors_writer *writer, int64_t index,
                                      const void *src, int64_t bytes);
/* sheaf__safetensors_settle - after the last late tensor: their lengths stand in the header, so
 * that the file can be read. Finish calls it where it was not called. */
sheaf_status *sheaf__safetensors_settle(sheaf_safetensors_writer *writer);
/* sheaf__safetensors_size - of the whole file. */
int64_t sheaf__safetensors_size(const sheaf_safetensors_writer *writer);
/* sheaf__safetensors_write - `bytes` at byte `begin` of tensor `index`, in any order. Thread-safe
 * for ranges that do not overlap. */
sheaf_status *sheaf__safetensors_write(sheaf_safetensors_writer *writer, int64_t index,
                                       int64_t begin, const void *src, int64_t bytes);
/* sheaf__safetensors_write_box - rows [row0, row0 + rows) and columns [col0, col0 + cols) of a
 * tensor as a matrix (as sheaf_source.read), dense at `src`. Errors: SHEAF_E_ARG for a box
 * that is not inside; SHEAF_E_UNSUPPORTED for dtypes below a byte. */
sheaf_status *sheaf__safetensors_write_box(sheaf_safetensors_writer *writer, int64_t index,
                                           int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                           const void *src);
/* sheaf__safetensors_finish - fsync, close, free (in any case). Errors: SHEAF_E_LAYOUT when a
 * tensor did not get each of its bytes once: what was claimed reads as zeros and must not pass for
 * weights. */
sheaf_status *sheaf__safetensors_finish(sheaf_safetensors_writer *writer);
/* sheaf__safetensors_abandon - close and delete. Accepts NULL. */
void sheaf__safetensors_abandon(sheaf_safetensors_writer *writer);
