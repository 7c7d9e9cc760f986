/* zip_crc.h - CRC-32 as zip files hold it, also of an entry whose parts come in any order.
 *
 * The sum is linear: with every byte but one range's zero and neither the first nor the last
 * inversion, the parts of the ranges join by exclusive or. zlib's sums are inverted at both ends,
 * and crc32_combine(sum, 0, n) shifts a sum by n zero bytes. */
#pragma once

#include <zlib.h>

#include "base/base.h"

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
