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

enum { BEFORE = 2, AFTER = 1 }; /* entries around those of the tensors */

struct sheaf_torch_writer {
    sheaf__fill_file file;
    int64_t entries;
    _Atomic uint32_t *parts; /* of the CRC-32 of each tensor */
    sheaf_zip_entry *entry;  /* entry BEFORE + i is tensor i */
    int64_t directory;       /* its offset */
};

/* Ends the writer, and the file as sheaf__fill_finish(). */
static sheaf_status *end(sheaf_torch_writer *w, sheaf_status *st)
{
    st = sheaf__fill_finish(&w->file, st);
    free(w->parts);
    free(w->entry);
    free(w);
    return st;
}

/* Names, sizes and places of all entries. `pickle` bytes are the size of data.pkl. */
static sheaf_status *place(sheaf_torch_writer *w, const sheaf_pickle_doc *doc, size_t pickle)
{
    sheaf_status *st = NULL;
    int64_t at = 0;
    w->entry[0] = (sheaf_zip_entry){ .name = "archive/data.pkl", .bytes = (int64_t)pickle };
    w->entry[1] = (sheaf_zip_entry){ .name = "archive/byteorder", .bytes = 6 };
    w->entry[w->entries - 1] = (sheaf_zip_entry){ .name = "archive/version", .bytes = 2 };
    for (int64_t i = 0; st == NULL && i < w->entries; i++) {
        sheaf_zip_entry *e = &w->entry[i];
        sheaf__fill *t = e->name == NULL ? &w->file.tensor[i - BEFORE] : NULL;
        if (t != NULL) {
            if (asprintf(&t->name, "archive/data/%" PRId64, i - BEFORE) < 0)
                t->name = NULL;
            if (t->name == NULL)
                return sheaf__no_memory("names");
            e->name = t->name;
            e->bytes = t->bytes = doc->storage[doc->tensor[i - BEFORE].storage].bytes;
        }
        e->header = at;
        st = sheaf__zip_place(e);
        at = e->offset + e->bytes;
        if (t != NULL)
            t->offset = e->offset;
    }
    w->directory = at;
    return st;
}

static sheaf_status *write_small(sheaf_torch_writer *w, int64_t entry, const char *bytes)
{
    sheaf_zip_entry *e = &w->entry[entry];
    e->crc = sheaf__crc32(0, bytes, (size_t)e->bytes);
    return sheaf__file_write_at(&w->file.file, bytes, (size_t)e->bytes, e->offset);
}

/* Of the whole file: the directory is as large as it will be with the checksums. */
static sheaf_status *measure(sheaf_torch_writer *w)
{
    char *tail = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__zip_tail(&tail, &size, w->entry, w->entries, w->directory);
    free(tail);
    w->file.size = w->directory + (int64_t)size;
    return st;
}

/* Nothing of the file is there yet; `pickle` bytes are the size of data.pkl. */
static sheaf_status *plan_file(sheaf_torch_writer *w, const sheaf_pickle_doc *doc, size_t pickle)
{
    const int64_t count = doc->ntensors;
    sheaf_status *st = sheaf__fill_new(&w->file, count);
    w->entries = BEFORE + count + AFTER;
    w->parts = calloc((size_t)count + 1, sizeof *w->parts);
    w->entry = calloc((size_t)w->entries, sizeof *w->entry);
    if (st == NULL && (w->parts == NULL || w->entry == NULL))
        st = sheaf__no_memory("entries");
    TRY(st, place(w, doc, pickle));
    TRY(st, measure(w));
    return st;
}

sheaf_status *sheaf__torch_begin(sheaf_torch_writer **out, const char *path,
                                 const sheaf_pickle_doc *doc)
{
    char *pickle = NULL;
    size_t size = 0;
    sheaf_torch_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory(path);
    sheaf_status *st = sheaf__pickle_encode(&pickle, &size, doc);
    TRY(st, plan_file(w, doc, size));
    st = sheaf_in(st, "%s", path);
    TRY(st, sheaf__fill_create(&w->file, path, NULL, 0));
    TRY(st, write_small(w, 0, pickle));
    TRY(st, write_small(w, 1, "little"));
    TRY(st, write_small(w, w->entries - 1, "3\n"));
    free(pickle);
    if (st != NULL)
        return end(w, st);
    *out = w;
    return NULL;
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
    return end(w, TRY(st, write_headers(w)));
}

void sheaf__torch_abandon(sheaf_torch_writer *w)
{
    if (w != NULL)
        sheaf_status_free(end(w, sheaf_fail(SHEAF_E_STOPPED, "abandoned")));
}
