/* zip.h - the directory of a zip file whose entries are stored, as PyTorch writes them.
 *
 *   local header, name, extra field, bytes [, data descriptor]   for each entry
 *   central directory: one record for each entry (name, CRC-32, sizes, place of the local header)
 *   [zip64 end record, zip64 locator]   end record
 *
 * Read by the central directory, from the end. Accepted: zip64, data descriptors, comments, any
 * extra fields. Refused: compressed or encrypted entries, several disks, a name twice, entries that
 * overlap or lie outside, a local header with another name. Numbers are little endian. */
#pragma once

#include <zlib.h>

#include "base/base.h"
#include "base/file.h"

#define SHEAF_ZIP_MAX_DIRECTORY ((int64_t)256 << 20)

typedef struct sheaf_zip_entry {
    const char *name; /* borrowed from the zip */
    int64_t header;   /* of its local header, from the start of the file */
    int64_t offset;   /* of its bytes */
    int64_t bytes;
    uint32_t crc;
} sheaf_zip_entry;

typedef struct sheaf_zip {
    int64_t count;
    sheaf_zip_entry *entry; /* by name */
    const char *first;      /* name of the first one in the directory; NULL = none */
    bool has_crc;           /* false: every entry says 0, as a writer does that computes none */
    char *names;
} sheaf_zip;

/* sheaf__zip_open - reads the directory of the zip file in `length` bytes of `fd` from `base`. The
 * zip keeps no descriptor. Errors: SHEAF_E_IO, SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY;
 * they start with `path`. */
sheaf_status *sheaf__zip_open(sheaf_zip *out, int fd, int64_t base, int64_t length,
                              const char *path);
void sheaf__zip_release(sheaf_zip *zip);
/* sheaf__zip_find - NULL when there is none. */
const sheaf_zip_entry *sheaf__zip_find(const sheaf_zip *zip, const char *name);
/* sheaf__zip_read - a whole entry, malloc'd, its CRC-32 checked (where the zip has any). Errors:
 * SHEAF_E_FORMAT, also for more than `limit` bytes. */
sheaf_status *sheaf__zip_read(char **out, size_t *size, const sheaf_zip *zip,
                              const sheaf_zip_entry *entry, int fd, size_t limit, const char *path);
/* sheaf__zip_check - the CRC-32 of `bytes` from `offset` is `crc`, read in pieces. `name` is for
 * messages. */
sheaf_status *sheaf__zip_check(int fd, const char *path, const char *name, int64_t offset,
                               int64_t bytes, uint32_t crc);

/* ---- writing: the bytes of the records ---- */

/* The records of an entry; header and offset count from the start of the file. */
enum { SHEAF_ZIP_ALIGNMENT = 64 };

/* sheaf__zip_place - where the entry's bytes begin when its local header is at entry->header: the
 * next multiple of 64 that leaves space for name and extra field. Sets entry->offset. */
sheaf_status *sheaf__zip_place(sheaf_zip_entry *entry);
/* sheaf__zip_local - local header, name and padding: entry->offset - entry->header bytes,
 * malloc'd. */
sheaf_status *sheaf__zip_local(char **out, size_t *size, const sheaf_zip_entry *entry);
/* sheaf__zip_tail - directory, zip64 records (as torch, always) and end record of `count` entries,
 * to be written at `at`. malloc'd. */
sheaf_status *sheaf__zip_tail(char **out, size_t *size, const sheaf_zip_entry *entry, int64_t count,
                              int64_t at);

/* ---- CRC-32, also of an entry whose parts come in any order ----
 *
 * The sum is linear: with every byte but one range's zero and neither the first nor the last
 * inversion, the parts of the ranges join by exclusive or. zlib's sums are inverted at both ends,
 * and crc32_combine(sum, 0, n) shifts a sum by n zero bytes. */

/* sheaf__crc32 - the sum of what `crc` (0 at first) is the sum of, followed by these bytes. */
static inline uint32_t sheaf__crc32(uint32_t crc, const void *bytes, size_t size)
{
    return (uint32_t)crc32_z(crc, bytes, size);
}

/* sheaf__crc32_part - of a range with `after` bytes behind it in the whole. */
static inline uint32_t sheaf__crc32_part(const void *bytes, size_t size, int64_t after)
{
    return (uint32_t)crc32_combine(~sheaf__crc32(~0u, bytes, size), 0, after);
}

/* sheaf__crc32_whole - the sum of `size` bytes whose parts, joined, are `parts`. */
static inline uint32_t sheaf__crc32_whole(uint32_t parts, int64_t size)
{
    return ~(parts ^ (uint32_t)crc32_combine(~0u, 0, size));
}
