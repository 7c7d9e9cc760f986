/* byte_source.h - the bytes of a file, unpacked where gzip or zstd packed it.
 *
 * The first bytes of a file decide how it is packed, never its name. Only a window of the unpacked
 * bytes is in memory. Consecutive members (gzip) or frames (zstd) are one text, as for gzip -d and
 * zstd -d. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__byte_source {
    const char *path; /* borrowed */
    const char *at,   /* unpacked and not consumed yet; the caller advances `at` */
        *end;
    bool ended;           /* the window is the last one */
    int fd;               /* the rest is private */
    int64_t size, offset; /* of the file; bytes read so far */
    int packing;
    char *window;
    unsigned char *raw; /* [.. raw_end) of a packed file */
    size_t raw_at, raw_end;
    void *unpacker;
    bool inside; /* a member or frame is not complete */
} sheaf__byte_source;

/* sheaf__byte_source_open - errors (with the path before): SHEAF_E_IO; SHEAF_E_UNSUPPORTED for
 * known formats that are not read (Parquet, zip, xz, ...), with the command that converts them.
 * Close also after a failure. */
sheaf_status *sheaf__byte_source_open(sheaf__byte_source *out, const char *path);
/* sheaf__byte_source_fill - the next window, when at == end. Errors: SHEAF_E_IO; SHEAF_E_FORMAT for
 * a file that is damaged or cut short; SHEAF_E_MEMORY. */
sheaf_status *sheaf__byte_source_fill(sheaf__byte_source *source);
void sheaf__byte_source_close(sheaf__byte_source *source);
