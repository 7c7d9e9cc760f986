/* byte_source.c - see byte_source.h. */
#include "data/byte_source.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/base.h"
#include "base/file.h"
#include "data/complaints.h"

enum { WINDOW = 1 << 20, RAW = 1 << 18 };
enum { PLAIN, GZIP, ZSTD };

/* ---- recognising a file ---- */

static const struct {
    const char *mark;
    size_t size;
    const char *what, *turn, *into; /* before the file, and before the name of what comes of it */
} others[] = {
    { "PAR1", 4, "a Parquet file",
      "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
      "orient=\"records\", lines=True, force_ascii=False)' ",
      " " },
    { "ARROW1", 6, "an Arrow file",
      "python3 -c 'import pandas, sys; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], "
      "orient=\"records\", lines=True, force_ascii=False)' ",
      " " },
    { "\xFD"
      "7zXZ\0",
      6, "a file that xz packed", "xz -dc ", " > " },
    { "BZh", 3, "a file that bzip2 packed", "bzip2 -dc ", " > " },
    { "PK\3\4", 4, "a zip archive", "unzip -p ", " > " },
    { ".csv", 0, "a table of comma-separated values", /* by its name */
      "python3 -c 'import csv, json, sys; [print(json.dumps(r)) for r in csv.DictReader(sys.stdin)]' <",
      " >" },
};

/* "DATA.parquet" becomes "DATA.jsonl". */
static sheaf_status *refuse(const char *path, size_t which)
{
    sheaf_text name = { 0 }, cure = { 0 };
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash == NULL ? path : slash, '.');
    sheaf__text_bytes(&name, path, dot == NULL ? strlen(path) : (size_t)(dot - path));
    sheaf__text_add(&name, sheaf__ends_with(path, ".jsonl") ? ".rows.jsonl" : ".jsonl");
    sheaf__text_add(&cure, "%s", others[which].turn);
    sheaf__text_word(&cure, path);
    sheaf__text_add(&cure, "%s", others[which].into);
    sheaf__text_word(&cure, name.at == NULL ? "out.jsonl" : name.at);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path);
    sheaf_expected(st, "JSON Lines or a JSON array, as it is or packed by gzip or zstd");
    sheaf_found(st, "%s", others[which].what);
    sheaf_try_this(st, "%s", cure.at == NULL ? "" : cure.at);
    sheaf__text_release(&name);
    sheaf__text_release(&cure);
    return st;
}

/* A frame, or a skippable one: pzstd writes one, with a size, in front of each. */
static bool is_zstd(const char *mark)
{
    return memcmp(mark, "\x28\xb5\x2f\xfd", 4) == 0 ||
           ((mark[0] & 0xf0) == 0x50 && memcmp(mark + 1, "\x2a\x4d\x18", 3) == 0);
}

static sheaf_status *recognise(sheaf__byte_source *s)
{
    char mark[8] = { 0 };
    const size_t n = s->size < 8 ? (size_t)s->size : 8;
    sheaf_status *st = sheaf__file_read_at(s->fd, mark, n, 0, s->path);
    if (st != NULL)
        return st;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].size > 0
                ? n >= others[i].size && memcmp(mark, others[i].mark, others[i].size) == 0
                : sheaf__ends_with(s->path, others[i].mark))
            return refuse(s->path, i);
    if (n >= 2 && memcmp(mark, "\x1f\x8b", 2) == 0)
        s->packing = GZIP;
    if (n >= 4 && is_zstd(mark))
        s->packing = ZSTD;
    return NULL;
}

/* ---- opening ---- */

static sheaf_status *start(sheaf__byte_source *s)
{
    z_stream *z = s->packing == GZIP ? calloc(1, sizeof *z) : NULL;
    s->window = malloc(WINDOW);
    s->raw = s->packing == PLAIN ? NULL : malloc(RAW);
    if (z != NULL && inflateInit2(z, 15 + 16) != Z_OK) {
        free(z);
        z = NULL;
    }
    s->unpacker = s->packing == ZSTD ? (void *)ZSTD_createDStream() : z;
    if (s->window == NULL || (s->packing != PLAIN && (s->raw == NULL || s->unpacker == NULL)))
        return sheaf__no_memory(s->path);
    s->inside = s->packing != PLAIN;
    s->at = s->end = s->window;
    return NULL;
}

sheaf_status *sheaf__byte_source_open(sheaf__byte_source *s, const char *path)
{
    *s = (sheaf__byte_source){ .path = path, .fd = -1 };
    sheaf_status *st = sheaf__file_open_read(&s->fd, &s->size, path);
    if (st != NULL && sheaf_status_errno(st) == ENOENT)
        return sheaf__path_hub(st, path);
    TRY(st, recognise(s));
    return TRY(st, start(s));
}

void sheaf__byte_source_close(sheaf__byte_source *s)
{
    if (s->packing == ZSTD)
        ZSTD_freeDStream(s->unpacker);
    else if (s->unpacker != NULL) {
        inflateEnd(s->unpacker);
        free(s->unpacker);
    }
    if (s->path != NULL && s->fd >= 0)
        close(s->fd);
    free(s->window);
    free(s->raw);
    *s = (sheaf__byte_source){ .fd = -1 };
}

/* ---- reading ---- */

static const char cut_short[] = "its end in the middle of the packed data";

static sheaf_status *damaged(const sheaf__byte_source *s, const char *why)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s", s->path);
    sheaf_expected(st, "a whole file that %s packed", s->packing == GZIP ? "gzip" : "zstd");
    return sheaf_found(st, "%s near byte %" PRId64 " of %" PRId64, why,
                       s->offset - (int64_t)(s->raw_end - s->raw_at), s->size);
}

/* The packer chooses the memory that unpacking takes, up to 2 GiB. */
static sheaf_status *window_too_large(const sheaf__byte_source *s)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", s->path);
    sheaf_expected(st, "a file that zstd packed with a window of at most 128 MiB (--long=27)");
    sheaf_found(st, "a larger one");
    return sheaf__try_path(st, "pack it anew: zstd -dc --long=31 ", s->path,
                           " | zstd >NEW.jsonl.zst");
}

/* Unpacks into the window what it can of the raw bytes: *made bytes. */
static sheaf_status *inflate_some(size_t *made, sheaf__byte_source *s)
{
    z_stream *z = s->unpacker;
    if (!s->inside) { /* another member, or the zeros that some tapes append; zlib's own reader of
                         files would silently stop at anything else */
        if (s->raw[s->raw_at] == 0) {
            s->raw_at++;
            return NULL;
        }
        inflateReset(z);
        s->inside = true;
    }
    z->next_in = s->raw + s->raw_at;
    z->avail_in = (unsigned)(s->raw_end - s->raw_at);
    z->next_out = (unsigned char *)s->window;
    z->avail_out = WINDOW;
    const int code = inflate(z, Z_NO_FLUSH);
    s->raw_at = s->raw_end - z->avail_in;
    *made = WINDOW - z->avail_out;
    if (code == Z_MEM_ERROR)
        return sheaf__no_memory(s->path);
    if (code == Z_STREAM_END)
        s->inside = false;
    else if (code != Z_OK && code != Z_BUF_ERROR)
        return damaged(s, z->msg == NULL ? "damage" : z->msg);
    return NULL;
}

static sheaf_status *zstd_some(size_t *made, sheaf__byte_source *s)
{
    ZSTD_outBuffer out = { s->window, WINDOW, 0 };
    ZSTD_inBuffer in = { s->raw, s->raw_end, s->raw_at };
    const size_t code = ZSTD_decompressStream(s->unpacker, &out, &in);
    s->raw_at = in.pos;
    *made = out.pos;
    if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
        return window_too_large(s);
    if (ZSTD_isError(code))
        return damaged(s, ZSTD_getErrorName(code));
    s->inside = code != 0;
    return NULL;
}

/* At most `size` bytes of the file, fewer only at its end. */
static sheaf_status *read_file(size_t *n, sheaf__byte_source *s, void *to, size_t size)
{
    const int64_t left = s->size - s->offset;
    *n = left < (int64_t)size ? (size_t)left : size;
    sheaf_status *st = sheaf__file_read_at(s->fd, to, *n, s->offset, s->path);
    s->offset += (int64_t)*n;
    return st;
}

static sheaf_status *unpack(size_t *made, sheaf__byte_source *s)
{
    for (bool end = false; *made == 0;) {
        if (s->raw_at == s->raw_end && end)
            return s->inside ? damaged(s, cut_short) : NULL;
        if (s->raw_at == s->raw_end) {
            s->raw_at = 0;
            sheaf_status *st = read_file(&s->raw_end, s, s->raw, RAW);
            end = s->raw_end == 0; /* the unpacker's own buffer may fill one more window */
            if (st != NULL || (end && !s->inside))
                return st;
        }
        sheaf_status *st = s->packing == ZSTD ? zstd_some(made, s) : inflate_some(made, s);
        if (st != NULL)
            return st;
    }
    return NULL;
}

sheaf_status *sheaf__byte_source_fill(sheaf__byte_source *s)
{
    size_t n = 0;
    if (s->ended)
        return NULL;
    sheaf_status *st = s->packing == PLAIN ? read_file(&n, s, s->window, WINDOW) : unpack(&n, s);
    s->at = s->window;
    s->end = s->window + n;
    s->ended = st != NULL || n == 0;
    return st;
}
