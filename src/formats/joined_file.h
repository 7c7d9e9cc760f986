/* joined_file.h - what a file of several writers needs, whatever its format: it has its length from
 * the start, each writes other bytes of it, and the first knows at the end that all are there. */
#ifndef SHEAF_FORMATS_JOINED_FILE_H
#define SHEAF_FORMATS_JOINED_FILE_H

#include <stdint.h>

#include "base/file.h"

/* sheaf__joined_length - is the open file as long as the writers expect? Nothing of it is read:
 * bytes that were read would be kept, and where two hosts write into one page a network file system
 * could put them back. */
sheaf_status *sheaf__joined_length(const sheaf_file *file, int64_t expected);
/* sheaf__joined_leave - puts on disk what this writer wrote, and closes; the first failure. */
sheaf_status *sheaf__joined_leave(sheaf_file *file);

/* begin + (begin + 1) + ... , `n` terms, mod 2^64: bytes written twice and others not at all show.
 */
static inline uint64_t sheaf__sum_of_positions(int64_t begin, int64_t n)
{
    const uint64_t b = (uint64_t)begin, m = (uint64_t)n;
    return b * m + (m % 2 == 0 ? m / 2 * (m - 1) : m * ((m - 1) / 2));
}

#endif
