/* round_up.h - sizes and addresses as multiples of a unit. */
#pragma once

#include <stddef.h>

/* sheaf__round_up - the least multiple of `unit` that is not less than x. */
static inline size_t sheaf__round_up(size_t x, size_t unit)
{
    return (x + unit - 1) / unit * unit;
}
