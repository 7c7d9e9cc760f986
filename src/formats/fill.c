/* fill.c - see fill.h. */
#include "formats/fill.h"

#include <assert.h>

#include "base/base.h"

sheaf_status *sheaf__check_range(const char *path, const char *name, int64_t begin, int64_t bytes,
                                 int64_t whole)
{
    if (begin >= 0 && bytes >= 0 && begin <= whole && bytes <= whole - begin)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: tensor '%s': bytes", path, name);
    return sheaf_found(sheaf_expected(st, "within 0 to %" PRId64, whole),
                       "%" PRId64 " from %" PRId64, bytes, begin);
}

sheaf_status *sheaf__fill_new(sheaf__fill_file *f, int64_t count)
{
    *f = (sheaf__fill_file){ .tensor = calloc((size_t)count + 1, sizeof *f->tensor) };
    if (f->tensor == NULL)
        return sheaf__no_memory("tensors of a file");
    f->count = count;
    return NULL;
}

sheaf_status *sheaf__fill_create(sheaf__fill_file *f, const char *path, const void *header,
                                 size_t size)
{
    sheaf_status *st = sheaf__file_create(&f->file, path);
    TRY(st, sheaf__file_reserve(&f->file, f->size));
    TRY(st, sheaf__file_write_at(&f->file, header, size, 0));
    return st;
}

/* begin + (begin + 1) + ... , `n` terms, mod 2^64. */
static uint64_t sum_of_positions(int64_t begin, int64_t n)
{
    const uint64_t b = (uint64_t)begin, m = (uint64_t)n;
    return b * m + (m % 2 == 0 ? m / 2 * (m - 1) : m * ((m - 1) / 2));
}

sheaf_status *sheaf__fill_write(sheaf__fill_file *f, int64_t index, int64_t begin, const void *src,
                                int64_t bytes)
{
    assert(index >= 0 && index < f->count);
    sheaf__fill *t = &f->tensor[index];
    sheaf_status *st = sheaf__check_range(f->file.path, t->name, begin, bytes, t->bytes);
    TRY(st, sheaf_in(sheaf__file_write_at(&f->file, src, (size_t)bytes, t->offset + begin),
                     "tensor '%s'", t->name));
    if (st != NULL)
        return st;
    t->written += bytes;
    t->positions += sum_of_positions(begin, bytes);
    return NULL;
}

sheaf_status *sheaf__fill_check(const sheaf__fill_file *f)
{
    for (int64_t i = 0; i < f->count; i++) {
        const sheaf__fill *t = &f->tensor[i];
        const int64_t written = t->written;
        if (written == t->bytes && t->positions == sum_of_positions(0, written))
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: tensor '%s' was not written as a whole",
                                      f->file.path, t->name);
        return sheaf_found(
            sheaf_expected(st, "%" PRId64 " bytes, each once", t->bytes),
            written == t->bytes ? "%" PRId64 " bytes, some twice" : "%" PRId64 " bytes", written);
    }
    return NULL;
}

sheaf_status *sheaf__fill_finish(sheaf__fill_file *f, sheaf_status *st)
{
    if (f->file.path != NULL) {
        TRY(st, sheaf__fill_check(f));
        TRY(st, sheaf__file_sync(&f->file));
        if (st != NULL)
            sheaf_status_free(sheaf__remove_tree(f->file.path));
        st = sheaf__first_of(st, sheaf__file_close(&f->file));
    }
    for (int64_t i = 0; i < f->count; i++)
        free(f->tensor[i].name);
    free(f->tensor);
    *f = (sheaf__fill_file){ 0 };
    return st;
}
