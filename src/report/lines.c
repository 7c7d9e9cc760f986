/* lines.c - see lines.h. */
#include "report/lines.h"

#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

typedef struct lines {
    int fd;
    int64_t number;  /* of the line at `line`, from 1 */
    int64_t offset;  /* of the file, behind its last whole line */
    sheaf_text line; /* without its line feed */
    bool whole;      /* false: the file ends before its line feed */
    bool too_long;   /* it has more than SHEAF__LINE_MOST bytes, and `line` only the first */
    char buffer[1 << 16];
    size_t at, end; /* the rest of the buffer */
} lines;

/* Before the first: goes on where `at` is, if the last line there ends as it did. */
static bool skip(lines *lines, const sheaf__lines_at *at)
{
    char found[SHEAF__LINE_LAST + 1];
    const size_t size = at->nlast;
    const off_t from = (off_t)(at->end - (int64_t)size - 1);
    if (at->end == 0 || pread(lines->fd, found, size + 1, from) != (ssize_t)size + 1 ||
        memcmp(found, at->last, size) != 0 || found[size] != '\n' ||
        lseek(lines->fd, (off_t)at->end, SEEK_SET) != (off_t)at->end)
        return false;
    lines->number = at->lines;
    lines->offset = at->end;
    return true;
}

static sheaf_status *refill(lines *lines)
{
    ssize_t n;
    do
        n = read(lines->fd, lines->buffer, sizeof lines->buffer);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "reading"), errno);
    lines->at = 0;
    lines->end = (size_t)n;
    return NULL;
}

/* *more false: the file has ended. */
static sheaf_status *next(bool *more, lines *lines)
{
    lines->line.size = 0;
    lines->whole = lines->too_long = false;
    lines->number++;
    sheaf__text_bytes(&lines->line, "", 0);
    int64_t bytes = 0;
    for (bool any = false;; any = true) {
        if (lines->at == lines->end) {
            sheaf_status *st = refill(lines);
            if (st != NULL)
                return st;
        }
        *more = any || lines->end > 0;
        if (lines->end == 0)
            break;
        const char *begin = lines->buffer + lines->at, *feed;
        size_t n = lines->end - lines->at;
        if ((feed = memchr(begin, '\n', n)) != NULL)
            n = (size_t)(feed - begin);
        const size_t room = SHEAF__LINE_MOST - lines->line.size;
        lines->too_long = lines->too_long || n > room;
        sheaf__text_bytes(&lines->line, begin, n > room ? room : n);
        lines->at += n + (feed != NULL);
        bytes += (int64_t)n + (feed != NULL);
        lines->whole = feed != NULL;
        if (lines->whole) {
            lines->offset += bytes;
            break;
        }
    }
    return lines->line.failed ? sheaf__no_memory("a line") : NULL;
}

/* Begin of the next reading. */
static void note_end(sheaf__lines_at *at, const lines *lines)
{
    const size_t size = lines->too_long ? 0 : lines->line.size;
    at->end = lines->offset;
    at->lines = lines->number;
    at->nlast = size < sizeof at->last ? size : sizeof at->last;
    memcpy(at->last, lines->line.at + (size - at->nlast), at->nlast);
}

static sheaf_status *read_lines(sheaf__lines_at *at, lines *lines,
                                const sheaf__lines_reader *reader)
{
    for (bool more;;) {
        json_t *value = NULL;
        sheaf_status *st = next(&more, lines);
        if (st != NULL || !more)
            return st;
        if (!lines->whole) {
            at->cut = true;
            continue;
        }
        note_end(at, lines);
        if (!lines->too_long)
            st = sheaf__json_parse_line(&value, lines->line.at, lines->line.size);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY) {
            sheaf_status_free(st);
            st = NULL;
        }
        TRY(st, reader->take(reader->self, value, lines->number,
                             lines->too_long ? "too long" : "no JSON"));
        json_decref(value);
        if (st != NULL)
            return st;
    }
}

static void begin(sheaf__lines_at *at, const sheaf__lines_reader *reader)
{
    *at = (sheaf__lines_at){ 0 };
    reader->begin(reader->self);
}

sheaf_status *sheaf__lines_read(sheaf__lines_at *at, const char *path,
                                const sheaf__lines_reader *reader)
{
    const bool none = sheaf__path_kind(path) == SHEAF_PATH_NONE;
    lines *lines = none ? NULL : calloc(1, sizeof *lines);
    int64_t size; /* it may grow */
    sheaf_status *st = NULL;
    if (!none)
        st =
            lines == NULL ? sheaf__no_memory(path) : sheaf__file_open_read(&lines->fd, &size, path);
    const bool open = st == NULL && !none;
    if (!open || !skip(lines, at))
        begin(at, reader);
    at->cut = false;
    if (open) {
        st = sheaf_in(read_lines(at, lines, reader), "%s", path);
        close(lines->fd);
        sheaf__text_release(&lines->line);
    }
    free(lines);
    if (st != NULL)
        begin(at, reader); /* a line may be taken in part */
    return st;
}
