/* shrink.c - kernels of matrices in 8 bits (ops/tensor/shrink.h): a warp for each block of 32. */
#include "ops/tensor/shrink.h"
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/shrink/shrink.h"

/* This thread's element and its block; false: it has none. All lanes of a warp have a block, or
 * none has. */
DEVICE bool place(const sheaf__shrunk *a, int64_t *element, int64_t *block, bool *there)
{
    int64_t lane, of_row, column = 0, columns = 0;
    *block = divide(own_index(), SHEAF__SHRINK_BLOCK, &lane);
    const int64_t row = divide(*block, a->blocks, &of_row);
    if (row >= a->rows)
        return false;
    for (int32_t i = 0; i < a->parts; i++) {
        const int64_t blocks = (a->part[i] + SHEAF__SHRINK_BLOCK - 1) / SHEAF__SHRINK_BLOCK;
        columns = a->part[i];
        if (of_row < blocks)
            break;
        of_row -= blocks;
        column += columns;
    }
    const int64_t at = of_row * SHEAF__SHRINK_BLOCK + lane;
    *there = at < columns;
    *element = row * a->cols + column + at;
    return true;
}

KERNELS(shrink, sheaf__shrunk, 256)
{
    int64_t element, block;
    bool there;
    if (!place(a, &element, &block, &there))
        return;
    const float x = there ? sheaf__load(a->x, element, dtype) : 0.0f;
    const int32_t largest = most_of_lanes((int32_t)(sheaf__bits(x) & 0x7fffffff));
    const uint8_t scale = sheaf__shrink_scale((uint32_t)largest);
    const bool finite = scale != SHEAF__SHRINK_NOT_FINITE;
    if (there)
        a->codes[element] = finite ? sheaf__shrink_code(x, sheaf__shrink_factor(scale)) : 0;
    if (threadIdx.x % SHEAF__SHRINK_BLOCK == 0)
        a->scales[block] = scale;
}

KERNELS(expand, sheaf__shrunk, 256)
{
    int64_t element, block;
    bool there;
    if (place(a, &element, &block, &there) && there)
        sheaf__store(a->x, element,
                     (float)a->codes[element] * sheaf__expand_factor(a->scales[block]), dtype);
}
