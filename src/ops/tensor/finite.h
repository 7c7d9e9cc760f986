/* finite.h - the arguments of the question whether tensors hold finite numbers alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/math/round.h"
#include "sheaf/dtype.h"

struct sheaf__infinite;

typedef struct sheaf__look {
    const void *x;
    int64_t n;
    sheaf_dtype from, to;
    struct sheaf__infinite *infinite; /* the host's: out */
} sheaf__look;

/* sheaf__look_found - x is not finite. */
void sheaf__look_found(const sheaf__look *look);
