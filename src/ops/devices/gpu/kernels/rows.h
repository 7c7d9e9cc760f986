/* rows.h - arguments of kernels that move rows. */
#pragma once

#include <stdint.h>

/* sheaf__boxes by words of 16, 4 or 2 bytes: distances and columns are counted in these. */
typedef struct boxes_arguments {
    void *dst;
    const void *src;
    int64_t count[3], ld_dst[3], ld_src[3], words;
    int word; /* bytes */
} boxes_arguments;
