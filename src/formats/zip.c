/* zip.c - reading; see zip.h. */
#include "zip.h"

#include "base/base.h"

enum {
    LOCAL_BYTES = 30,
    RECORD_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MOST = 65535,
    NAME_MOST = 4096,
    PIECE = 1 << 20,
};
static const char LOCAL[] = "PK\3\4", RECORD[] = "PK\1\2", END[] = "PK\5\6", END64[] = "PK\6\6",
                  LOCATOR[] = "PK\6\7";

typedef struct reading {
    int fd;
    int64_t base, length; /* of the zip in the file */
    const char *path;
    int64_t end;       /* of the end record, in the zip */
    int64_t at, bytes; /* of the directory, in the zip */
    int64_t count;
} reading;

static sheaf_status *damaged(const reading *r, const char *what, const char *expected)
{
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: %s", r->path, what), "%s", expected);
    sheaf_found(st,
                r->base == 0 ? "a file of %" PRId64 " bytes" : "%" PRId64 " bytes of a larger file",
                r->length);
    return sheaf_try_this(
        st,
        "the file is cut short or damaged: compare its size with the original and fetch it again");
}

static sheaf_status *promised(const reading *r, int64_t bytes)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: zip directory", r->path);
    sheaf_expected(st, "%" PRId64 " bytes of entries and directory before the end record", bytes);
    sheaf_found(st, "%" PRId64 " bytes, in a file of %" PRId64, r->end, r->length);
    return sheaf_try_this(
        st, "bytes are missing or too many: compare the size with the original and fetch it again");
}

/* ---- the end records ---- */

/* The last end record whose comment reaches exactly to the end. */
static sheaf_status *find_end(reading *r, unsigned char end[END_BYTES])
{
    const int64_t window =
        r->length < END_BYTES + COMMENT_MOST ? r->length : END_BYTES + COMMENT_MOST;
    unsigned char *tail = malloc((size_t)window + 1);
    if (tail == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", r->path);
    sheaf_status *st =
        sheaf__file_read_at(r->fd, tail, (size_t)window, r->base + r->length - window, r->path);
    int64_t i = window - END_BYTES;
    while (st == NULL && i >= 0 &&
           (memcmp(tail + i, END, 4) != 0 ||
            i + END_BYTES + (int64_t)sheaf__little(tail + i + 20, 2) != window))
        i--;
    if (st == NULL && i < 0)
        st = damaged(r, "no zip directory at its end",
                     "an end record, the last thing that is written");
    if (st == NULL) {
        memcpy(end, tail + i, END_BYTES);
        r->end = r->length - window + i;
    }
    free(tail);
    return st;
}

/* Replaces what the end record says by what a zip64 end record says, where there is one. */
static sheaf_status *read_end64(reading *r, bool *found, uint64_t *count, uint64_t *bytes,
                                uint64_t *at)
{
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    if (r->end < LOCATOR_BYTES + END64_BYTES)
        return NULL;
    sheaf_status *st = sheaf__file_read_at(r->fd, locator, sizeof locator,
                                           r->base + r->end - LOCATOR_BYTES, r->path);
    if (st != NULL || memcmp(locator, LOCATOR, 4) != 0)
        return st;
    const uint64_t where = sheaf__little(locator + 8, 8),
                   most = (uint64_t)(r->end - LOCATOR_BYTES - END64_BYTES);
    if (where > most)
        return promised(r, where > INT64_MAX - END64_BYTES - LOCATOR_BYTES
                               ? INT64_MAX
                               : (int64_t)where + END64_BYTES + LOCATOR_BYTES);
    st = sheaf__file_read_at(r->fd, end, sizeof end, r->base + (int64_t)where, r->path);
    if (st == NULL && memcmp(end, END64, 4) != 0)
        st = damaged(r, "zip64 end record", "one where its locator says");
    if (st == NULL && (sheaf__little(end + 16, 4) != 0 || sheaf__little(end + 20, 4) != 0 ||
                       sheaf__little(end + 24, 8) != sheaf__little(end + 32, 8)))
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a zip file over several disks", r->path);
    if (st != NULL)
        return st;
    *count = sheaf__little(end + 32, 8), *bytes = sheaf__little(end + 40, 8),
    *at = sheaf__little(end + 48, 8);
    r->end = (int64_t)where;
    *found = true;
    return NULL;
}

static sheaf_status *read_ends(reading *r)
{
    unsigned char end[END_BYTES];
    bool wide = false;
    sheaf_status *st = find_end(r, end);
    if (st != NULL)
        return st;
    uint64_t count = sheaf__little(end + 10, 2), bytes = sheaf__little(end + 12, 4),
             at = sheaf__little(end + 16, 4);
    const bool disks = sheaf__little(end + 4, 2) % 0xffff != 0 ||
                       sheaf__little(end + 6, 2) % 0xffff != 0 ||
                       sheaf__little(end + 8, 2) != count;
    st = read_end64(r, &wide, &count, &bytes, &at);
    if (st != NULL)
        return st;
    if (!wide && disks)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a zip file over several disks", r->path);
    if (bytes > SHEAF_ZIP_MAX_DIRECTORY) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: zip directory", r->path),
                            "at most %" PRId64 " bytes", SHEAF_ZIP_MAX_DIRECTORY);
        return sheaf_found(st, "%" PRIu64, bytes);
    }
    if (at > INT64_MAX - bytes || at + bytes != (uint64_t)r->end)
        return promised(r, at > INT64_MAX - bytes ? INT64_MAX : (int64_t)(at + bytes));
    if (count > bytes / RECORD_BYTES)
        return damaged(r, "zip directory", "as many records as the end record says");
    r->at = (int64_t)at, r->bytes = (int64_t)bytes, r->count = (int64_t)count;
    return NULL;
}

/* ---- the directory ---- */

static sheaf_status *entry_fails(const reading *r, sheaf_code code, const char *name,
                                 const char *what)
{
    return sheaf_fail(code, "%s: zip entry '%.120s': %s", r->path, name, what);
}

/* Sizes and place that do not fit 32 bits are in extra field 1, in this order. */
static sheaf_status *read_wide(const reading *r, const char *name, const unsigned char *extra,
                               size_t size, uint64_t *value[3])
{
    static const uint64_t full = 0xffffffff;
    if (*value[0] != full && *value[1] != full && *value[2] != full)
        return NULL;
    while (size >= 4) {
        const size_t length = (size_t)sheaf__little(extra + 2, 2);
        if (length > size - 4)
            break;
        if (sheaf__little(extra, 2) == 1) {
            const unsigned char *p = extra + 4, *end = p + length;
            for (int i = 0; i < 3; i++)
                if (*value[i] == full) {
                    if (end - p < 8)
                        return entry_fails(r, SHEAF_E_FORMAT, name, "its zip64 field is too short");
                    *value[i] = sheaf__little(p, 8);
                    p += 8;
                }
            return NULL;
        }
        extra += 4 + length;
        size -= 4 + length;
    }
    return NULL; /* exactly 2^32 - 1 is a size, too */
}

/* One record at `p` of at most `left` bytes; its name goes to *names. */
static sheaf_status *read_record(const reading *r, sheaf_zip_entry *entry, size_t *used,
                                 char **names, const unsigned char *p, size_t left)
{
    if (left < RECORD_BYTES || memcmp(p, RECORD, 4) != 0)
        return damaged(r, "zip directory", "one record after the other");
    const size_t name = (size_t)sheaf__little(p + 28, 2), extra = (size_t)sheaf__little(p + 30, 2);
    *used = RECORD_BYTES + name + extra + (size_t)sheaf__little(p + 32, 2);
    if (*used > left)
        return damaged(r, "zip directory", "one record after the other");
    if (name == 0 || name > NAME_MOST || memchr(p + RECORD_BYTES, '\0', name) != NULL)
        return damaged(r, "zip directory", "names of 1 to 4096 bytes without NUL");
    entry->name = memcpy(*names, p + RECORD_BYTES, name);
    (*names)[name] = '\0';
    *names += name + 1;
    uint64_t packed = sheaf__little(p + 20, 4), bytes = sheaf__little(p + 24, 4),
             header = sheaf__little(p + 42, 4);
    sheaf_status *st = read_wide(r, entry->name, p + RECORD_BYTES + name, extra,
                                 (uint64_t *[]){ &bytes, &packed, &header });
    if (st != NULL)
        return st;
    if (sheaf__little(p + 8, 2) & 1)
        return entry_fails(r, SHEAF_E_UNSUPPORTED, entry->name, "encrypted");
    if (sheaf__little(p + 10, 2) != 0)
        return sheaf_try_this(entry_fails(r, SHEAF_E_UNSUPPORTED, entry->name, "compressed"),
                              "torch.load() and torch.save() in Python, or unzip and 'zip -0 -r'");
    if (packed != bytes || header > (uint64_t)r->at || bytes > (uint64_t)r->at - header ||
        (uint64_t)r->at - header - bytes < LOCAL_BYTES) {
        st = sheaf_expected(entry_fails(r, SHEAF_E_FORMAT, entry->name, "its place"),
                            "inside the %" PRId64 " bytes before the directory", r->at);
        return sheaf_found(st, "%" PRIu64 " bytes (%" PRIu64 " stored) at %" PRIu64, bytes, packed,
                           header);
    }
    entry->header = r->base + (int64_t)header;
    entry->bytes = (int64_t)bytes;
    entry->crc = (uint32_t)sheaf__little(p + 16, 4);
    return NULL;
}

static sheaf_status *read_directory(sheaf_zip *zip, const reading *r)
{
    unsigned char *raw = malloc((size_t)r->bytes + 1);
    zip->entry = calloc((size_t)r->count + 1, sizeof *zip->entry);
    zip->names = malloc((size_t)r->bytes + 1); /* a record is longer than its name and a NUL */
    sheaf_status *st =
        raw == NULL || zip->entry == NULL || zip->names == NULL
            ? sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory for a directory of %" PRId64 " bytes",
                         r->path, r->bytes)
            : sheaf__file_read_at(r->fd, raw, (size_t)r->bytes, r->base + r->at, r->path);
    char *names = zip->names;
    size_t at = 0, used = 0;
    for (int64_t i = 0; st == NULL && i < r->count; i++, at += used) {
        st = read_record(r, &zip->entry[i], &used, &names, raw + at, (size_t)r->bytes - at);
        if (st == NULL && zip->entry[i].crc != 0)
            zip->has_crc = true;
    }
    if (st == NULL && at != (size_t)r->bytes)
        st = damaged(r, "zip directory", "as many records as the end record says");
    free(raw);
    zip->count = st == NULL ? r->count : 0;
    zip->first = zip->count > 0 ? zip->entry[0].name : NULL;
    return st;
}

/* ---- the entries ---- */

static sheaf_status *read_local(const reading *r, sheaf_zip_entry *entry)
{
    unsigned char local[LOCAL_BYTES + NAME_MOST];
    const size_t name = strlen(entry->name);
    sheaf_status *st = sheaf__file_read_at(r->fd, local, LOCAL_BYTES, entry->header, r->path);
    if (st != NULL)
        return st;
    if (memcmp(local, LOCAL, 4) != 0 || sheaf__little(local + 26, 2) != name)
        return entry_fails(r, SHEAF_E_FORMAT, entry->name,
                           "no header of its own where the directory says");
    entry->offset =
        entry->header + LOCAL_BYTES + (int64_t)name + (int64_t)sheaf__little(local + 28, 2);
    const int64_t capacity = r->base + r->at - entry->offset;
    if (capacity < 0 || entry->bytes > capacity) {
        st = sheaf_expected(entry_fails(r, SHEAF_E_FORMAT, entry->name, "its bytes"),
                            "%" PRId64 " before the directory", entry->bytes);
        return sheaf_found(st, "%" PRId64, capacity < 0 ? 0 : capacity);
    }
    st =
        sheaf__file_read_at(r->fd, local + LOCAL_BYTES, name, entry->header + LOCAL_BYTES, r->path);
    if (st == NULL && memcmp(local + LOCAL_BYTES, entry->name, name) != 0)
        st = entry_fails(r, SHEAF_E_FORMAT, entry->name, "its header has another name");
    if (st == NULL && sheaf__little(local + 8, 2) != 0)
        st = entry_fails(r, SHEAF_E_UNSUPPORTED, entry->name, "compressed");
    return st;
}

static int by_header(const void *pa, const void *pb)
{
    const sheaf_zip_entry *a = pa, *b = pb;
    return a->header < b->header ? -1 : a->header > b->header;
}

static sheaf_status *check_entries(sheaf_zip *zip, const reading *r)
{
    sheaf_status *st = NULL;
    if (zip->count > 1)
        qsort(zip->entry, (size_t)zip->count, sizeof *zip->entry, by_header);
    for (int64_t i = 0; st == NULL && i < zip->count; i++)
        st = read_local(r, &zip->entry[i]);
    for (int64_t i = 1; st == NULL && i < zip->count; i++)
        if (zip->entry[i - 1].offset + zip->entry[i - 1].bytes > zip->entry[i].header)
            st = sheaf_found(
                entry_fails(r, SHEAF_E_FORMAT, zip->entry[i].name, "it overlaps another entry"),
                "'%.120s'", zip->entry[i - 1].name);
    if (st == NULL && zip->count > 1)
        qsort(zip->entry, (size_t)zip->count, sizeof *zip->entry, sheaf__by_name);
    for (int64_t i = 1; st == NULL && i < zip->count; i++)
        if (strcmp(zip->entry[i - 1].name, zip->entry[i].name) == 0)
            st = entry_fails(r, SHEAF_E_FORMAT, zip->entry[i].name, "the name occurs twice");
    return st;
}

sheaf_status *sheaf__zip_open(sheaf_zip *out, int fd, int64_t base, int64_t length,
                              const char *path)
{
    reading r = { fd, base, length, path, 0, 0, 0, 0 };
    sheaf_zip zip = { 0 };
    sheaf_status *st = read_ends(&r);
    TRY(st, read_directory(&zip, &r));
    TRY(st, check_entries(&zip, &r));
    if (st != NULL)
        sheaf__zip_release(&zip);
    else
        *out = zip;
    return st;
}

void sheaf__zip_release(sheaf_zip *zip)
{
    free(zip->entry);
    free(zip->names);
    *zip = (sheaf_zip){ 0 };
}

const sheaf_zip_entry *sheaf__zip_find(const sheaf_zip *zip, const char *name)
{
    return SHEAF_FIND(const sheaf_zip_entry, name, zip->entry, zip->count, name);
}

/* ---- bytes ---- */

static sheaf_status *bad_sum(const char *path, const char *name, uint32_t want, uint32_t got)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_FORMAT, "%s: zip entry '%.120s': its bytes are damaged", path, name);
    sheaf_found(sheaf_expected(st, "CRC-32 %08" PRIx32, want), "%08" PRIx32, got);
    return sheaf_try_this(st, "fetch or copy the file again");
}

sheaf_status *sheaf__zip_read(char **out, size_t *size, const sheaf_zip *zip,
                              const sheaf_zip_entry *entry, int fd, size_t limit, const char *path)
{
    if ((uint64_t)entry->bytes > limit) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_FORMAT, "%s: zip entry '%.120s': size", path, entry->name);
        return sheaf_found(sheaf_expected(st, "at most %zu bytes", limit), "%" PRId64,
                           entry->bytes);
    }
    char *bytes = malloc((size_t)entry->bytes + 1);
    if (bytes == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory for %" PRId64 " bytes", path,
                          entry->bytes);
    sheaf_status *st = sheaf__file_read_at(fd, bytes, (size_t)entry->bytes, entry->offset, path);
    if (st == NULL && zip->has_crc) {
        const uint32_t crc = sheaf__crc32(0, bytes, (size_t)entry->bytes);
        if (crc != entry->crc)
            st = bad_sum(path, entry->name, entry->crc, crc);
    }
    if (st != NULL) {
        free(bytes);
        return st;
    }
    bytes[entry->bytes] = '\0';
    *out = bytes;
    *size = (size_t)entry->bytes;
    return NULL;
}

sheaf_status *sheaf__zip_check(int fd, const char *path, const char *name, int64_t offset,
                               int64_t bytes, uint32_t want)
{
    char *piece = malloc(PIECE);
    if (piece == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    sheaf_status *st = NULL;
    uint32_t crc = 0;
    for (int64_t done = 0; st == NULL && done < bytes; done += PIECE) {
        const size_t n = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
        st = sheaf__file_read_at(fd, piece, n, offset + done, path);
        if (st == NULL)
            crc = sheaf__crc32(crc, piece, n);
    }
    free(piece);
    return st != NULL || crc == want ? st : bad_sum(path, name, want, crc);
}
