/* shrink_fast.c - shrink_ref.c a block at a time, in loops that compilers make vectors of. */
#include "ops/shrink/shrink.h"

#include "ops/columns.h"
#include "ops/each.h"

enum { BLOCK = SHEAF__SHRINK_BLOCK };

/* A block of `count`; what is missing is zero. */
SHEAF__INLINE void shrink(int8_t *codes, uint8_t *scale, const void *x, int64_t at, int64_t count,
                          sheaf_dtype dtype)
{
    float f[BLOCK];
    int8_t q[BLOCK] = { 0 };
    uint32_t largest = 0;
    for (int64_t i = 0; i < BLOCK; i += 16) {
        const int64_t left = count - i, here = left < 0 ? 0 : left < 16 ? left : 16;
        v_store(f + i, v_read(x, at + i, here, dtype), 16);
    }
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t size = sheaf__bits(f[i]) & 0x7fffffff;
        largest = size > largest ? size : largest;
    }
    *scale = sheaf__shrink_scale(largest);
    if (*scale != SHEAF__SHRINK_NOT_FINITE) {
        const float factor = sheaf__shrink_factor(*scale);
        for (int i = 0; i < BLOCK; i++)
            q[i] = sheaf__shrink_code(f[i], factor);
    }
    memcpy(codes + at, q, count == BLOCK ? BLOCK : (size_t)count);
}

SHEAF__INLINE void expand(void *x, const int8_t *codes, uint8_t scale, int64_t at, int64_t count,
                          sheaf_dtype dtype)
{
    const float factor = sheaf__expand_factor(scale);
    float f[BLOCK];
    int8_t q[BLOCK] = { 0 };
    memcpy(q, codes + at, count == BLOCK ? BLOCK : (size_t)count);
    for (int i = 0; i < BLOCK; i++)
        f[i] = (float)q[i] * factor;
    for (int64_t i = 0; i < BLOCK && i < count; i += 16)
        v_write(x, at + i, v_load(f + i, 16), count - i < 16 ? count - i : 16, dtype);
}

#define EACH_BLOCK(one)                                                                            \
    do {                                                                                           \
        int64_t at = 0, block = 0;                                                                 \
        for (; at + BLOCK <= n; at += BLOCK, block++)                                              \
            one(BLOCK);                                                                            \
        if (at < n)                                                                                \
            one(n - at);                                                                           \
    } while (0)

void SHEAF__FAST(shrink)(int8_t *codes, uint8_t *scales, const void *x, int64_t n,
                         sheaf_dtype dtype)
{
#define ONE(count) shrink(codes, scales + block, x, at, count, of)
    V_BY_TYPE(dtype, EACH_BLOCK(ONE));
#undef ONE
}

void SHEAF__FAST(expand)(void *x, const int8_t *codes, const uint8_t *scales, int64_t n,
                         sheaf_dtype dtype)
{
#define ONE(count) expand(x, codes, scales[block], at, count, of)
    V_BY_TYPE(dtype, EACH_BLOCK(ONE));
#undef ONE
}
