/* torch.c - opening and reading; see torch.h. */
#include "torch.h"

#include <unistd.h>

#include "zip.h"
#include "base/base.h"

enum { TAR_MARK = 257, HEAD_BYTES = TAR_MARK + 5, KEY_MOST = 512, SMALL_ENTRY = 4096 };

/* ---- zip files ---- */

/* The name "TOP/rest" in `buffer`, TOP being the folder of the first entry; "" when that is too
 * long. */
static const char *inside(char buffer[2 * KEY_MOST], const sheaf_zip *zip, const char *rest)
{
    const int top = zip->first == NULL ? 0 : (int)strcspn(zip->first, "/");
    const int n = top > KEY_MOST ? -1
                                 : snprintf(buffer, 2 * KEY_MOST, "%.*s/%s", top,
                                            top > 0 ? zip->first : "", rest);
    if (n < 0 || n >= 2 * KEY_MOST)
        *buffer = '\0';
    return buffer;
}

static sheaf_status *check_byte_order(const sheaf_torch *file, const sheaf_zip *zip)
{
    char buffer[2 * KEY_MOST], *text = NULL;
    size_t size = 0;
    const sheaf_zip_entry *entry = sheaf__zip_find(zip, inside(buffer, zip, "byteorder"));
    if (entry == NULL)
        return NULL;
    sheaf_status *st = sheaf__zip_read(&text, &size, zip, entry, file->fd, SMALL_ENTRY, file->path);
    if (st == NULL && strcmp(text, "little") != 0)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: byte order", file->path), "little"),
            "%.120s", text);
    free(text);
    return st;
}

static sheaf_status *read_pickle(sheaf_torch *file, const sheaf_zip *zip)
{
    char buffer[2 * KEY_MOST], *text = NULL;
    size_t size = 0;
    if (sheaf__zip_find(zip, inside(buffer, zip, "constants.pkl")) != NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a TorchScript program", file->path);
        return sheaf_try_this(st,
                              "in Python: torch.save(torch.jit.load(FILE).state_dict(), OTHER)");
    }
    const sheaf_zip_entry *entry = sheaf__zip_find(zip, inside(buffer, zip, "data.pkl"));
    if (entry == NULL) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_FORMAT, "%s: a zip file, but not one of torch.save()", file->path);
        return sheaf_found(sheaf_expected(st, "an entry data.pkl in the folder of the first entry"),
                           "%" PRId64 " entries", zip->count);
    }
    sheaf_status *st =
        sheaf__zip_read(&text, &size, zip, entry, file->fd, SHEAF_TORCH_MAX_PICKLE, file->path);
    TRY(st, sheaf_in(sheaf__pickle_parse(&file->doc, NULL, text, size), "%s", file->path));
    free(text);
    return st;
}

/* Finds the entry of each storage; the pickle promises at most as many bytes as it has. */
static sheaf_status *place_storages(sheaf_torch *file, const sheaf_zip *zip)
{
    file->storage = calloc((size_t)file->doc->nstorages + 1, sizeof *file->storage);
    if (file->storage == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", file->path);
    for (int64_t i = 0; i < file->doc->nstorages; i++) {
        const sheaf_pickle_storage *want = &file->doc->storage[i];
        char name[KEY_MOST], capacity[2 * KEY_MOST];
        const int n = snprintf(name, sizeof name, "data/%s", want->key);
        const sheaf_zip_entry *entry =
            n >= KEY_MOST ? NULL : sheaf__zip_find(zip, inside(capacity, zip, name));
        if (entry == NULL)
            return sheaf_expected(
                sheaf_fail(SHEAF_E_FORMAT, "%s: storage '%.120s'", file->path, want->key),
                "an entry data/%.120s in the zip file", want->key);
        if (want->within != 0 || want->bytes != entry->bytes) { /* torch.load() insists on it too */
            sheaf_status *st =
                sheaf_fail(SHEAF_E_FORMAT, "%s: storage '%.120s'", file->path, want->key);
            return sheaf_found(sheaf_expected(st, "%" PRId64 " bytes, by the pickle", want->whole),
                               "an entry of %" PRId64, entry->bytes);
        }
        file->storage[i] =
            (sheaf_torch_storage){ entry->offset, entry->bytes, entry->crc, zip->has_crc };
    }
    return NULL;
}

static sheaf_status *read_zip(sheaf_torch *file, int64_t base, int64_t length)
{
    sheaf_zip zip = { 0 };
    sheaf_status *st = sheaf__zip_open(&zip, file->fd, base, length, file->path);
    TRY(st, check_byte_order(file, &zip));
    TRY(st, read_pickle(file, &zip));
    TRY(st, place_storages(file, &zip));
    sheaf__zip_release(&zip);
    return st;
}

/* ---- opening ---- */

static sheaf_status *open_file(sheaf_torch **out, const char *path)
{
    sheaf_torch *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    }
    file->fd = -1;
    sheaf_status *st = sheaf__file_open_read(&file->fd, &file->size, path);
    if (st != NULL)
        sheaf__torch_close(file);
    else {
        sheaf__file_mark(&file->mark, file->fd);
        *out = file;
    }
    return st;
}

/* The first bytes, padded with zeros. */
static sheaf_status *read_head(unsigned char head[HEAD_BYTES], const sheaf_torch *file, int64_t at,
                               int64_t length)
{
    memset(head, 0, HEAD_BYTES);
    return sheaf__file_read_at(file->fd, head, length < HEAD_BYTES ? (size_t)length : HEAD_BYTES,
                               at, file->path);
}

static sheaf_status *refuse(const sheaf_torch *file, const unsigned char head[HEAD_BYTES])
{
    if (memcmp(head + TAR_MARK, "ustar", 5) == 0) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a tar file, as torch 0.1 wrote them", file->path);
        return sheaf_try_this(st,
                              "in Python: torch.save(torch.load(FILE), OTHER) with a newer torch");
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: not a file of torch.save()", file->path);
    sheaf_expected(st, "a zip file (50 4b 03 04) or a legacy file (80 02 8a 0a 6c fc 9c 46)");
    if (file->size == 0)
        return sheaf_found(st, "an empty file");
    return sheaf_found(st, "%02x %02x %02x %02x %02x %02x %02x %02x first, in %" PRId64 " bytes",
                       head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7],
                       file->size);
}

/* The whole file, in either form. */
static sheaf_status *read_whole(sheaf_torch *file)
{
    unsigned char head[HEAD_BYTES];
    sheaf_status *st = read_head(head, file, 0, file->size);
    if (st != NULL)
        return st;
    file->legacy = sheaf__torch_is_legacy(head);
    return file->legacy                 ? sheaf__torch_read_legacy(file)
           : memcmp(head, "PK", 2) == 0 ? read_zip(file, 0, file->size)
                                        : refuse(file, head);
}

sheaf_status *sheaf__torch_open(sheaf_torch **out, const char *path)
{
    return sheaf__torch_open_at(out, path, 0, -1);
}

sheaf_status *sheaf__torch_open_at(sheaf_torch **out, const char *path, int64_t offset,
                                   int64_t length)
{
    sheaf_torch *file = NULL;
    sheaf_status *st = open_file(&file, path);
    if (st != NULL)
        return st;
    if (length == -1)
        st = read_whole(file);
    else if (offset < 0 || length < 0 || offset > file->size || length > file->size - offset)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: an item", path),
                                        "%" PRId64 " bytes at %" PRId64, length, offset),
                         "a file of %" PRId64, file->size);
    else
        st = sheaf_in(read_zip(file, offset, length), "item at byte %" PRId64, offset);
    if (st != NULL)
        sheaf__torch_close(file);
    else
        *out = file;
    return st;
}

bool sheaf__torch_is(const char *path)
{
    unsigned char head[HEAD_BYTES];
    sheaf_torch *file = NULL;
    sheaf_status *st = open_file(&file, path);
    TRY(st, read_head(head, file, 0, file->size));
    const bool is = st == NULL && (sheaf__torch_is_legacy(head) || memcmp(head, "PK\3\4", 4) == 0);
    sheaf_status_free(st);
    sheaf__torch_close(file);
    return is;
}

void sheaf__torch_close_file(sheaf_torch *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

void sheaf__torch_close(sheaf_torch *file)
{
    if (file == NULL)
        return;
    sheaf__torch_close_file(file);
    sheaf__pickle_free(file->doc);
    free(file->storage);
    free(file->path);
    free(file);
}

/* ---- data ---- */

int64_t sheaf__torch_offset(const sheaf_torch *file, const sheaf_pickle_tensor *tensor)
{
    return file->storage[tensor->storage].offset +
           tensor->offset * (int64_t)sheaf_dtype_bytes(tensor->dtype);
}

/* Row-major and without gaps: one read. */
static bool is_dense(const sheaf_pickle_tensor *t)
{
    int64_t step = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->stride[d] != step)
            return false;
        step *= t->shape[d];
    }
    return true;
}

sheaf_status *sheaf__torch_read(const sheaf_torch *file, const sheaf_pickle_tensor *t, void *dst,
                                size_t bytes)
{
    const size_t each = sheaf_dtype_bytes(t->dtype);
    int64_t size = (int64_t)each, at[SHEAF_PICKLE_MAX_DIMS] = { 0 };
    bool over = false;
    for (int d = 0; d < t->ndim; d++)
        over |= __builtin_mul_overflow(size, t->shape[d], &size);
    if (over || (uint64_t)size != bytes)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: room for a tensor", file->path),
                           "%" PRId64 " bytes", size),
            "%zu", bytes);
    const int64_t offset = sheaf__torch_offset(file, t);
    if (is_dense(t))
        return sheaf__file_read_at(file->fd, dst, bytes, offset, file->path);
    sheaf_status *st = NULL;
    char *to = dst;
    for (size_t done = 0; st == NULL && done < bytes; done += each) {
        int64_t element = 0;
        for (int d = 0; d < t->ndim; d++)
            element += at[d] * t->stride[d];
        st = sheaf__file_read_at(file->fd, to + done, each, offset + element * (int64_t)each,
                                 file->path);
        for (int d = t->ndim - 1; d >= 0 && ++at[d] == t->shape[d]; d--)
            at[d] = 0;
    }
    return st;
}

sheaf_status *sheaf__torch_check_data(const sheaf_torch *file)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < file->doc->nstorages; i++) {
        const sheaf_torch_storage *s = &file->storage[i];
        char name[KEY_MOST + 8];
        snprintf(name, sizeof name, "data/%.*s", KEY_MOST, file->doc->storage[i].key);
        if (s->has_crc)
            st = sheaf__zip_check(file->fd, file->path, name, s->offset, s->bytes, s->crc);
    }
    return st;
}
