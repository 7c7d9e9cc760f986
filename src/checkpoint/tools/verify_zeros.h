/* verify_zeros.h - weights that are zero: what a download leaves that made room and did not fill
 * it. */
#pragma once

#include <stdatomic.h>

#include "catalog/catalog.h"

enum { SHEAF__NOT_READ, SHEAF__ALL_ZERO, SHEAF__HAS_NUMBERS };

/* sheaf__look_for_numbers - *seen becomes SHEAF__HAS_NUMBERS where a byte of `data` is not zero,
 * else SHEAF__ALL_ZERO unless it has numbers already. */
void sheaf__look_for_numbers(_Atomic unsigned char *seen, const void *data, size_t bytes);

/* sheaf__verify_zeros - findings "zeros" for a catalog that was read; seen[first[t] + k] is of
 * piece k of tensor t. */
sheaf_status *sheaf__verify_zeros(sheaf_catalog *catalog, const _Atomic unsigned char *seen,
                                  const int64_t *first);
