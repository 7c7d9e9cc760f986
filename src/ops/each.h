/* each.h - loops of fast kernels over types, elements and rows. */
#pragma once

#include "ops/math/math.h"
#include "ops/vec.h"

/* Loops that call an inlined body with constants, so that each call is compiled for its own:
 * V_BY_TYPE   for each type, named `of`
 * V_EACH      16 of n elements at a time from `i` on, the last time fewer: `count`
 * V_WALK      the same of `many` vectors at a time, then one
 * V_FOURS     rows from `begin` to `end`, `side` of them side by side: four, then one */
#define V_BY_TYPE(dtype, ...)                                                                      \
    do {                                                                                           \
        if ((dtype) == SHEAF_BF16) {                                                               \
            const sheaf_dtype of = SHEAF_BF16;                                                     \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == SHEAF_F16) {                                                         \
            const sheaf_dtype of = SHEAF_F16;                                                      \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const sheaf_dtype of = SHEAF_F32;                                                      \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#define V_EACH_FROM(i, n, call)                                                                    \
    do {                                                                                           \
        for (; i + 16 <= (n); i += 16) {                                                           \
            const int64_t count = 16;                                                              \
            call;                                                                                  \
        }                                                                                          \
        if (i < (n)) {                                                                             \
            const int64_t count = (n)-i;                                                           \
            call;                                                                                  \
        }                                                                                          \
    } while (0)
#define V_EACH(i, n, call)                                                                         \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        V_EACH_FROM(i, n, call);                                                                   \
    } while (0)
#define V_WALK(i, n, call)                                                                         \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + 16 * SHEAF__MANY <= (n); i += 16 * SHEAF__MANY) {                               \
            const int many = SHEAF__MANY;                                                          \
            const int64_t count = 16;                                                              \
            call;                                                                                  \
        }                                                                                          \
        const int many = 1;                                                                        \
        V_EACH_FROM(i, n, call);                                                                   \
    } while (0)
#define V_FOURS(i, begin, end, call)                                                               \
    do {                                                                                           \
        int64_t i = begin;                                                                         \
        for (; i + 4 <= (end); i += 4) {                                                           \
            const int side = 4;                                                                    \
            call;                                                                                  \
        }                                                                                          \
        for (; i < (end); i++) {                                                                   \
            const int side = 1;                                                                    \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

/* Sums of sixteen lanes, one after the other. */
SHEAF__INLINE float v_join(vec lanes)
{
    float lane[16];
    v_store(lane, lanes, 16);
    return sheaf__lanes_join(lane);
}
