/* safetensors.c - reading; see safetensors.h. */
#include "safetensors.h"

#include <unistd.h>

#include "fill.h"
#include "base/base.h"

enum { LENGTH_BYTES = 8 };

static sheaf_status *read_header(sheaf_safetensors *file, int64_t size)
{
    unsigned char raw[LENGTH_BYTES];
    if (size < LENGTH_BYTES)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "header length"), "8 bytes"),
                           "a file of %" PRId64 " bytes", size);
    sheaf_status *st = sheaf__file_read_at(file->fd, raw, sizeof raw, 0, file->path);
    if (st != NULL)
        return st;
    const uint64_t n = sheaf__little(raw, LENGTH_BYTES);
    if (n > SHEAF_SAFETENSORS_MAX_HEADER) {
        st = sheaf_fail(SHEAF_E_FORMAT, "header length");
        sheaf_found(sheaf_expected(st, "at most %d bytes", SHEAF_SAFETENSORS_MAX_HEADER),
                    "%" PRIu64, n);
        return sheaf_try_this(st, "this is probably not a safetensors file");
    }
    if (n > (uint64_t)size - LENGTH_BYTES)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "header length"),
                                          "at most the %" PRId64 " bytes that follow it",
                                          size - LENGTH_BYTES),
                           "%" PRIu64, n);
    char *text = malloc((size_t)n + 1);
    if (text == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a header of %" PRIu64 " bytes", n);
    text[n] = '\0';
    st = sheaf__file_read_at(file->fd, text, (size_t)n, LENGTH_BYTES, file->path);
    TRY(st, sheaf__safetensors_parse(&file->header, text, (size_t)n, size));
    free(text);
    return st;
}

sheaf_status *sheaf__safetensors_open(sheaf_safetensors **out, const char *path)
{
    int64_t size = 0;
    sheaf_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    }
    sheaf_status *st = sheaf__file_open_read(&file->fd, &size, path);
    if (st != NULL) {
        free(file->path);
        free(file);
        return st;
    }
    sheaf__file_mark(&file->mark, file->fd);
    st = read_header(file, size);
    if (st != NULL) {
        sheaf__safetensors_close(file);
        return sheaf_in(st, "%s", path);
    }
    *out = file;
    return NULL;
}

void sheaf__safetensors_close(sheaf_safetensors *file)
{
    if (file == NULL)
        return;
    sheaf__safetensors_header_release(&file->header);
    close(file->fd);
    free(file->path);
    free(file);
}

const sheaf_safetensors_entry *sheaf__safetensors_find(const sheaf_safetensors *file,
                                                       const char *name)
{
    const sheaf__named *found =
        SHEAF_FIND(const sheaf__named, name, file->header.by_name, file->header.count, name);
    return found == NULL ? NULL : &file->header.entry[found->index];
}

const char *sheaf__safetensors_metadata(const sheaf_safetensors *file, const char *key)
{
    for (int64_t i = 0; i < file->header.npairs; i++)
        if (strcmp(file->header.pair[i].key, key) == 0)
            return file->header.pair[i].value;
    return NULL;
}

sheaf_status *sheaf__safetensors_read(const sheaf_safetensors *file,
                                      const sheaf_safetensors_entry *entry, int64_t begin,
                                      void *dst, int64_t bytes)
{
    sheaf_status *st = sheaf__check_range(file->path, entry->name, begin, bytes, entry->bytes);
    TRY(st, sheaf_in(sheaf__file_read_at(file->fd, dst, (size_t)bytes, entry->offset + begin,
                                         file->path),
                     "tensor '%s'", entry->name));
    return st;
}

void sheaf__safetensors_view(int64_t *height, int64_t *width, int ndim, const int64_t *shape)
{
    *height = *width = 1;
    for (int i = 0; i < ndim; i++)
        *(i > 0 && i == ndim - 1 ? width : height) *= shape[i];
}

sheaf_status *sheaf__safetensors_check_box(const char *name, sheaf_dtype dtype, int ndim,
                                           const int64_t *shape, int64_t row0, int64_t rows,
                                           int64_t col0, int64_t cols)
{
    if (sheaf_dtype_bytes(dtype) == 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", name);
        return sheaf_found(sheaf_expected(st, "elements of whole bytes"), "%s",
                           sheaf_dtype_name(dtype));
    }
    int64_t height, width;
    sheaf__safetensors_view(&height, &width, ndim, shape);
    if (row0 >= 0 && rows >= 0 && row0 <= height && rows <= height - row0 && col0 >= 0 &&
        cols >= 0 && col0 <= width && cols <= width - col0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "tensor '%s': box outside of it", name);
    sheaf_expected(st, "inside [%" PRId64 ", %" PRId64 "]", height, width);
    return sheaf_found(st, "%" PRId64 " rows from %" PRId64 ", %" PRId64 " columns from %" PRId64,
                       rows, row0, cols, col0);
}
