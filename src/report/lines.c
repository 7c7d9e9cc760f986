/* lines.c - see lines.h. */
#include "report/lines.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "base/file.h"

sheaf_status *sheaf__lines_open(sheaf__lines *lines, const char *path)
{
    int64_t size; /* it may grow */
    *lines = (sheaf__lines){ .fd = -1 };
    return sheaf__file_open_read(&lines->fd, &size, path);
}

bool sheaf__lines_skip(sheaf__lines *lines, int64_t number, int64_t offset, const char *last,
                       size_t size)
{
    char found[512];
    const off_t at = (off_t)(offset - (int64_t)size - 1);
    assert(size < sizeof found);
    if (pread(lines->fd, found, size + 1, at) != (ssize_t)size + 1 ||
        memcmp(found, last, size) != 0 || found[size] != '\n' ||
        lseek(lines->fd, (off_t)offset, SEEK_SET) != (off_t)offset)
        return false;
    lines->number = number;
    lines->offset = offset;
    return true;
}

static sheaf_status *refill(sheaf__lines *lines)
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

sheaf_status *sheaf__lines_next(bool *more, sheaf__lines *lines)
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

void sheaf__lines_close(sheaf__lines *lines)
{
    if (lines->fd >= 0)
        close(lines->fd);
    sheaf__text_release(&lines->line);
    lines->fd = -1;
}
