/* shrink_ref.c - see shrink.h. */
#include "ops/shrink/shrink.h"

#include "ops/columns.h"

static int64_t block_at(int64_t begin, int64_t n)
{
    return n - begin < SHEAF__SHRINK_BLOCK ? n - begin : SHEAF__SHRINK_BLOCK;
}

void sheaf__shrink_ref(int8_t *codes, uint8_t *scales, const void *x, int64_t n, sheaf_dtype dtype)
{
    for (int64_t begin = 0; begin < n; begin += SHEAF__SHRINK_BLOCK) {
        const int64_t count = block_at(begin, n);
        uint32_t largest = 0;
        for (int64_t i = begin; i < begin + count; i++) {
            const uint32_t size = sheaf__bits(sheaf__load(x, i, dtype)) & 0x7fffffff;
            largest = size > largest ? size : largest;
        }
        const uint8_t scale = *scales++ = sheaf__shrink_scale(largest);
        for (int64_t i = begin; i < begin + count; i++)
            codes[i] =
                scale == SHEAF__SHRINK_NOT_FINITE
                    ? 0
                    : sheaf__shrink_code(sheaf__load(x, i, dtype), sheaf__shrink_factor(scale));
    }
}

void sheaf__expand_ref(void *x, const int8_t *codes, const uint8_t *scales, int64_t n,
                       sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        sheaf__store(x, i, (float)codes[i] * sheaf__expand_factor(scales[i / SHEAF__SHRINK_BLOCK]),
                     dtype);
}
