/* torch_write.c - writing; see torch.h.
 *
 * Entries, all under "archive": data.pkl, byteorder, data/0 .. data/N-1 (one storage per tensor),
 * version; then the directory. All places are known at the beginning, so bytes come in any order.
 * Their CRC-32 is joined from the parts as they are written (zip.h); the headers follow at the
 * end. */
#include "base/base.h"
#include "formats/torch.h"
#include "fill.h"
#include "zip.h"

enum { BEFORE = 2, AFTER = 1, NAME_BYTES = 48 }; /* entries around those of the tensors */

struct sheaf_torch_writer {
    sheaf__fill_file file;
    int64_t entries;
    _Atomic uint32_t *parts; /* of the CRC-32 of each tensor */
    sheaf_zip_entry *entry;  /* entry BEFORE + i is tensor i */
    char *names;
    int64_t directory; /* its offset */
};

static void writer_free(sheaf_torch_writer *w)
{
    free(w->file.tensor);
    free(w->parts);
    free(w->entry);
    free(w->names);
    free(w);
}

static sheaf_status *writer_new(sheaf_torch_writer **out, const char *path, int64_t count)
{
    sheaf_torch_writer *w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->file.count = count;
        w->entries = BEFORE + count + AFTER;
        w->file.tensor = calloc((size_t)count + 1, sizeof *w->file.tensor);
        w->parts = calloc((size_t)count + 1, sizeof *w->parts);
        w->entry = calloc((size_t)w->entries, sizeof *w->entry);
        w->names = calloc((size_t)w->entries, NAME_BYTES);
    }
    if (w == NULL || w->file.tensor == NULL || w->parts == NULL || w->entry == NULL ||
        w->names == NULL) {
        if (w != NULL)
            writer_free(w);
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    }
    *out = w;
    return NULL;
}

/* Names, sizes and places of all entries. `pickle` bytes are the size of data.pkl. */
static sheaf_status *place(sheaf_torch_writer *w, const sheaf_pickle_doc *doc, size_t pickle)
{
    int64_t at = 0;
    for (int64_t i = 0; i < w->entries; i++) {
        sheaf_zip_entry *e = &w->entry[i];
        char *name = w->names + i * NAME_BYTES;
        if (i < BEFORE || i >= BEFORE + w->file.count) {
            e->bytes = i == 0 ? (int64_t)pickle : i == 1 ? 6 : 2;
            snprintf(name, NAME_BYTES, "archive/%s",
                     i == 0   ? "data.pkl"
                     : i == 1 ? "byteorder"
                              : "version");
        } else {
            e->bytes = doc->storage[doc->tensor[i - BEFORE].storage].bytes;
            snprintf(name, NAME_BYTES, "archive/data/%" PRId64, i - BEFORE);
        }
        e->name = name;
        e->header = at;
        sheaf_status *st = sheaf__zip_place(e);
        if (st != NULL)
            return st;
        at = e->offset + e->bytes;
        if (i >= BEFORE && i < BEFORE + w->file.count) {
            sheaf__fill *t = &w->file.tensor[i - BEFORE];
            t->name = e->name;
            t->offset = e->offset;
            t->bytes = e->bytes;
        }
    }
    w->directory = at;
    return NULL;
}

static sheaf_status *write_small(sheaf_torch_writer *w, int64_t entry, const char *bytes)
{
    sheaf_zip_entry *e = &w->entry[entry];
    e->crc = sheaf__crc32(0, bytes, (size_t)e->bytes);
    return sheaf__file_write_at(&w->file.file, bytes, (size_t)e->bytes, e->offset);
}

/* A writer without a file, and data.pkl. */
static sheaf_status *plan_file(sheaf_torch_writer **out, char **pickle, const char *path,
                               const sheaf_pickle_doc *doc)
{
    size_t size = 0;
    sheaf_torch_writer *w = NULL;
    sheaf_status *st = sheaf_in(sheaf__pickle_encode(pickle, &size, doc), "%s", path);
    TRY(st, writer_new(&w, path, doc->ntensors));
    if (st == NULL && (st = sheaf_in(place(w, doc, size), "%s", path)) != NULL)
        writer_free(w);
    if (st == NULL)
        *out = w;
    return st;
}

/* The directory is as large as it will be with the checksums. */
static sheaf_status *whole_size(int64_t *bytes, const sheaf_torch_writer *w)
{
    char *tail = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__zip_tail(&tail, &size, w->entry, w->entries, w->directory);
    free(tail);
    *bytes = w->directory + (int64_t)size;
    return st;
}

static sheaf_status *create(sheaf_torch_writer *w, const char *path, const char *pickle)
{
    int64_t bytes = 0;
    sheaf_status *st = sheaf__file_create(&w->file.file, path);
    if (st != NULL) {
        writer_free(w);
        return st;
    }
    st = whole_size(&bytes, w);
    TRY(st, sheaf__file_reserve(&w->file.file, bytes));
    TRY(st, write_small(w, 0, pickle));
    TRY(st, write_small(w, 1, "little"));
    TRY(st, write_small(w, w->entries - 1, "3\n"));
    if (st != NULL)
        sheaf__torch_abandon(w);
    return st;
}

sheaf_status *sheaf__torch_begin(sheaf_torch_writer **out, const char *path,
                                 const sheaf_pickle_doc *doc)
{
    char *pickle = NULL;
    sheaf_torch_writer *w = NULL;
    sheaf_status *st = plan_file(&w, &pickle, path, doc);
    TRY(st, create(w, path, pickle));
    free(pickle);
    if (st == NULL)
        *out = w;
    return st;
}

/* ---- content ---- */

sheaf_status *sheaf__torch_write(sheaf_torch_writer *w, int64_t index, int64_t begin,
                                 const void *src, int64_t bytes)
{
    sheaf_status *st = sheaf__fill_write(&w->file, index, begin, src, bytes);
    if (st == NULL && bytes > 0)
        w->parts[index] ^=
            sheaf__crc32_part(src, (size_t)bytes, w->file.tensor[index].bytes - begin - bytes);
    return st;
}

static sheaf_status *write_headers(sheaf_torch_writer *w)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i <= w->entries; i++) {
        char *bytes = NULL;
        size_t size = 0;
        const bool tail = i == w->entries;
        st = tail ? sheaf__zip_tail(&bytes, &size, w->entry, w->entries, w->directory)
                  : sheaf__zip_local(&bytes, &size, &w->entry[i]);
        TRY(st, sheaf__file_write_at(&w->file.file, bytes, size,
                                     tail ? w->directory : w->entry[i].header));
        free(bytes);
    }
    return st;
}

sheaf_status *sheaf__torch_finish(sheaf_torch_writer *w)
{
    sheaf_status *st = sheaf__fill_check(&w->file);
    for (int64_t i = 0; i < w->file.count; i++)
        w->entry[BEFORE + i].crc = sheaf__crc32_whole(w->parts[i], w->entry[BEFORE + i].bytes);
    TRY(st, write_headers(w));
    st = sheaf__fill_close(&w->file, st);
    writer_free(w);
    return st;
}

void sheaf__torch_abandon(sheaf_torch_writer *w)
{
    if (w == NULL)
        return;
    sheaf_status_free(sheaf__fill_close(&w->file, sheaf_fail(SHEAF_E_STOPPED, "abandoned")));
    writer_free(w);
}
