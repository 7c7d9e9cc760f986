/* lines.h - the lines of an untrusted file that may still grow. */
#pragma once

#include "base/base.h"

enum { SHEAF__LINE_MOST = 4 << 20 }; /* bytes of a line; that of a step of 64 ranks has 30 KB */

typedef struct sheaf__lines {
    int fd;
    int64_t number;  /* of the line at `line`, from 1 */
    int64_t offset;  /* of the file, behind its last whole line */
    sheaf_text line; /* without its line feed */
    bool whole;      /* false: the file ends before its line feed */
    bool too_long;   /* it has more than SHEAF__LINE_MOST bytes, and `line` only the first */
    char buffer[1 << 16];
    size_t at, end; /* the rest of the buffer */
} sheaf__lines;

/* sheaf__lines_open - close it also after a failure. Errors: SHEAF_E_IO. */
sheaf_status *sheaf__lines_open(sheaf__lines *lines, const char *path);
/* sheaf__lines_skip - before the first: goes on behind `number` lines, which end at `offset`, if
 * the last of them ends with these bytes. false: it does not, or the file cannot be read there. */
bool sheaf__lines_skip(sheaf__lines *lines, int64_t number, int64_t offset, const char *last,
                       size_t size);
/* sheaf__lines_next - *more false: the file has ended. Errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__lines_next(bool *more, sheaf__lines *lines);
void sheaf__lines_close(sheaf__lines *lines);
