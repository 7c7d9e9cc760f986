/* torch_legacy.c - files of torch before 1.6; see torch.h. */

#include "torch.h"
#include "base/base.h"

enum { PROTOCOL = 1001, HEADS = 3, FIRST_READ = 1 << 16, COUNT_BYTES = 8 };

bool sheaf__torch_is_legacy(const unsigned char head[SHEAF_TORCH_LEGACY_MAGIC_BYTES])
{
    static const unsigned char magic[12] = { 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                             0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
    const unsigned char *at =
        head + (head[2] == 0x95 ? 11 : 2); /* protocol 4 puts it into a frame */
    return head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && memcmp(at, magic, sizeof magic) == 0;
}

/* The bytes of the file from its start, as many as were needed so far. */
typedef struct window {
    const sheaf_torch *file;
    char *bytes;
    size_t size;
} window;

static sheaf_status *widen(window *w)
{
    size_t size = w->size == 0 ? FIRST_READ : w->size * 4;
    if (size > SHEAF_TORCH_MAX_PICKLE)
        size = SHEAF_TORCH_MAX_PICKLE;
    if ((int64_t)size > w->file->size)
        size = (size_t)w->file->size;
    char *bytes = realloc(w->bytes, size + 1);
    if (bytes == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", w->file->path);
    w->bytes = bytes;
    sheaf_status *st = sheaf__file_read_at(w->file->fd, bytes + w->size, size - w->size,
                                           (int64_t)w->size, w->file->path);
    if (st == NULL)
        w->size = size;
    return st;
}

/* The pickle at *at. What fails in a part of the file may be good in a larger part. */
static sheaf_status *read_one(sheaf_pickle_doc **out, window *w, size_t *at)
{
    for (;;) {
        size_t used = 0;
        sheaf_status *st = *at < w->size
                               ? sheaf__pickle_parse(out, &used, w->bytes + *at, w->size - *at)
                               : sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pickle"),
                                                "one more; the file is cut short");
        if (st == NULL) {
            *at += used;
            return NULL;
        }
        const sheaf_code code = sheaf_status_code(st);
        if (code == SHEAF_E_UNSAFE || code == SHEAF_E_MEMORY || (int64_t)w->size == w->file->size ||
            w->size == SHEAF_TORCH_MAX_PICKLE)
            return sheaf_in(st, "from byte %zu", *at);
        sheaf_status_free(st);
        st = widen(w);
        if (st != NULL)
            return st;
    }
}

static sheaf_status *check_heads(const sheaf_torch *file, sheaf_pickle_doc *const head[HEADS])
{
    int64_t protocol = 0, little = 0;
    if (!sheaf__pickle_int(&protocol, head[1]->root) || protocol != PROTOCOL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: protocol", file->path), "%d",
                           PROTOCOL),
            "%" PRId64, protocol);
    if (!sheaf__pickle_int(&little, sheaf__pickle_get(head[2]->root, "little_endian")) ||
        little != 1)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: byte order", file->path), "little"),
            "big");
    return NULL;
}

/* A storage of the file. */
typedef struct place {
    const char *key;
    int64_t element;       /* bytes of one, by the tensors that use it */
    int64_t offset, bytes; /* 0: not found */
} place;

/* By key, those that the value's pickle names; where several are views of one, the one that a
 * search finds counts. */
static place *used_storages(const sheaf_pickle_doc *doc)
{
    place *by = calloc((size_t)doc->nstorages + 1, sizeof *by);
    for (int64_t i = 0; by != NULL && i < doc->nstorages; i++)
        by[i] = (place){ .key = doc->storage[i].key, .element = doc->storage[i].element };
    if (by != NULL && doc->nstorages > 1)
        qsort(by, (size_t)doc->nstorages, sizeof *by, sheaf__by_name);
    return by;
}

static sheaf_status *cut_short(const sheaf_torch *file, const char *key, int64_t want, int64_t have)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: storage '%.120s'", file->path, key);
    sheaf_expected(st, "%" PRId64 " bytes", want);
    sheaf_found(st, "%" PRId64 " before the end of the file (%" PRId64 " bytes)",
                have < 0 ? 0 : have, file->size);
    return sheaf_try_this(
        st, "the file is cut short: compare its size with the original and fetch it again");
}

/* After the pickles: a count of elements and the elements, for each key of the list. */
static sheaf_status *walk(place *used, const sheaf_torch *file, const sheaf_pickle *keys,
                          int64_t at)
{
    for (int64_t i = 0; i < sheaf__pickle_count(keys); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_item(keys, i));
        unsigned char raw[COUNT_BYTES];
        if (key == NULL)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: list of storages", file->path),
                                  "keys");
        place *is = SHEAF_FIND(place, key, used, file->doc->nstorages, key);
        if (file->size - at < COUNT_BYTES)
            return cut_short(file, key, COUNT_BYTES, file->size - at);
        sheaf_status *st = sheaf__file_read_at(file->fd, raw, sizeof raw, at, file->path);
        if (st != NULL)
            return st;
        const uint64_t count = sheaf__little(raw, COUNT_BYTES);
        at += COUNT_BYTES;
        if (is == NULL)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: list of storages", file->path),
                                  "keys that the value uses");
        if (count > (uint64_t)(file->size - at) / (uint64_t)is->element)
            return cut_short(file, key,
                             count > INT64_MAX / 16 ? INT64_MAX : (int64_t)count * is->element,
                             file->size - at);
        is->offset = at;
        is->bytes = (int64_t)count * is->element;
        at += is->bytes;
    }
    return NULL;
}

static sheaf_status *match(sheaf_torch *file, const place *used)
{
    file->storage = calloc((size_t)file->doc->nstorages + 1, sizeof *file->storage);
    if (file->storage == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", file->path);
    for (int64_t i = 0; i < file->doc->nstorages; i++) {
        const sheaf_pickle_storage *want = &file->doc->storage[i];
        const place *is = SHEAF_FIND(const place, key, used, file->doc->nstorages, want->key);
        if (is->offset == 0 || want->within > is->bytes || want->bytes > is->bytes - want->within)
            return cut_short(file, want->key, want->within + want->bytes, is->bytes);
        if (want->whole != is->bytes) { /* torch.load() insists on it too */
            sheaf_status *st =
                sheaf_fail(SHEAF_E_FORMAT, "%s: storage '%.120s'", file->path, want->key);
            return sheaf_found(sheaf_expected(st, "%" PRId64 " bytes, by the pickle", want->whole),
                               "%" PRId64, is->bytes);
        }
        file->storage[i] =
            (sheaf_torch_storage){ is->offset + want->within, want->bytes, 0, false };
    }
    return NULL;
}

static sheaf_status *place_storages(sheaf_torch *file, const sheaf_pickle *keys, int64_t at)
{
    if (!sheaf__pickle_is(keys, SHEAF_PICKLE_LIST))
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: list of storages", file->path),
                              "a list");
    place *used = used_storages(file->doc);
    sheaf_status *st = used == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", file->path)
                                    : walk(used, file, keys, at);
    TRY(st, match(file, used));
    free(used);
    return st;
}

sheaf_status *sheaf__torch_read_legacy(sheaf_torch *file)
{
    window w = { .file = file };
    sheaf_pickle_doc *head[HEADS] = { NULL }, *keys = NULL;
    size_t at = 0;
    sheaf_status *st = widen(&w);
    for (int i = 0; st == NULL && i < HEADS; i++)
        st = read_one(&head[i], &w, &at);
    TRY(st, check_heads(file, head));
    TRY(st, read_one(&file->doc, &w, &at));
    TRY(st, read_one(&keys, &w, &at));
    TRY(st, place_storages(file, keys->root, (int64_t)at));
    for (int i = 0; i < HEADS; i++)
        sheaf__pickle_free(head[i]);
    sheaf__pickle_free(keys);
    free(w.bytes);
    return sheaf_in(st, "%s", file->path);
}
