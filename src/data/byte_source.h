/* byte_source.h - the bytes of a file, unpacked where gzip or zstd packed it.
 *
 * What a file is its first bytes tell, never its name. A window of it is held at a time, however
 * large it is. Several members (gzip) or frames (zstd) one after the other are one text, as gzip -d
 * and zstd -d have it. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__byte_source {
    const char *path; /* borrowed */
    const char *at,   /* what is unpacked and not yet taken; the caller moves `at` on */
        *end;
    bool ended;           /* nothing comes after it */
    int fd;               /* the rest is private */
    int64_t size, offset; /* of the file; read so far */
    int packing;
    char *window;
    unsigned char *raw; /* [.. raw_end) of a packed file */
    size_t raw_at, raw_end;
    void *unpacker;
    bool inside; /* of a member or frame */
} sheaf__byte_source;

/* sheaf__byte_source_open - errors (with the path before): SHEAF_E_IO; SHEAF_E_UNSUPPORTED for
 * forms that are known and not read (Parquet, zip, xz, ...) with the command that turns them. Close
 * also after a failure. */
sheaf_status *sheaf__byte_source_open(sheaf__byte_source *out, const char *path);
/* sheaf__byte_source_fill - the next window, when at == end. Errors: SHEAF_E_IO; SHEAF_E_FORMAT for
 * a file that is damaged or cut short; SHEAF_E_MEMORY. */
sheaf_status *sheaf__byte_source_fill(sheaf__byte_source *source);
void sheaf__byte_source_close(sheaf__byte_source *source);
