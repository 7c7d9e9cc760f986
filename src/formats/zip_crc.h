/* zip_crc.h - CRC-32 as zip files hold it (polynomial 0xedb88320, reflected).
 *
 * Our own, because sums have to keep up with copying (carry-less multiplication does 9 GB/s
 * where zlib 1.2.13 does 2.4), and because parts of an entry are written in any order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* sheaf__crc32 - the sum of what `crc` (0 at first) is the sum of, followed by these bytes. */
uint32_t sheaf__crc32(uint32_t crc, const void *bytes, size_t size);
/* sheaf__crc32_plain - the same, a nibble at a time: the definition. */
uint32_t sheaf__crc32_plain(uint32_t crc, const void *bytes, size_t size);

/* The sum is linear: with every byte but one range's zero and neither the first nor the last
 * inversion, the parts of the ranges join by exclusive or, in any order. */
/* sheaf__crc32_part - of a range with `after` bytes behind it in the whole. */
uint32_t sheaf__crc32_part(const void *bytes, size_t size, uint64_t after);
/* sheaf__crc32_whole - the sum of `size` bytes whose parts, joined, are `parts`. */
uint32_t sheaf__crc32_whole(uint32_t parts, uint64_t size);
