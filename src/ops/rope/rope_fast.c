/* rope_fast.c - rope_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"

SHEAF__INLINE void rotate(void *x, int64_t at, int64_t half, const float *cos, const float *sin,
                          int64_t j, int64_t count, bool inverse, sheaf_dtype dtype)
{
    const vec c = v_load(cos + j, count);
    const vec s = inverse ? v_negate(v_load(sin + j, count)) : v_load(sin + j, count);
    const vec a = v_read(x, at + j, count, dtype), b = v_read(x, at + half + j, count, dtype);
    v_write(x, at + j, v_sub(v_mul(a, c), v_mul(b, s)), count, dtype);
    v_write(x, at + half + j, v_add(v_mul(b, c), v_mul(a, s)), count, dtype);
}

SHEAF__INLINE void rope(void *x, int64_t ldx, const float *cos, const float *sin,
                        const int32_t *pos, int64_t rows, int64_t heads, int64_t head_dim,
                        int64_t rot, bool inverse, sheaf_dtype dtype)
{
    const int64_t half = rot / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t at = r * ldx + h * head_dim, angle = pos[r] * half;
            V_EACH(j, half,
                   rotate(x, at, half, cos + angle, sin + angle, j, count, inverse, dtype));
        }
}

void SHEAF__FAST(rope)(void *x, int64_t ldx, const float *cos, const float *sin, const int32_t *pos,
                       int64_t rows, int64_t heads, int64_t head_dim, int64_t rot, bool inverse,
                       sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, rope(x, ldx, cos, sin, pos, rows, heads, head_dim, rot, inverse, of));
}

/* Every lane takes its neighbour's number times a sin, negated in the lanes of `minus`. */
SHEAF__INLINE void turn_pairs(void *x, int64_t at, const float *cos, const float *sin, veci minus,
                              int64_t count, bool inverse, sheaf_dtype dtype)
{
    const vec v = v_read(x, at, count, dtype), c = v_load(cos, count);
    const vec s = inverse ? v_swap_pairs(v_load(sin, count)) : v_load(sin, count);
    const vec across = v_float(vi_xor(v_bits(v_mul(v_swap_pairs(v), s)), minus));
    v_write(x, at, v_add(v_mul(v, c), across), count, dtype);
}

SHEAF__INLINE void rope_pairs(void *x, int64_t ldx, const float *cos, const float *sin,
                              const int32_t *pos, int64_t rows, int64_t heads, int64_t head_dim,
                              int64_t rot, bool inverse, sheaf_dtype dtype)
{
    /* bit 0 of the lane's number becomes its sign: odd lanes */
    const veci odd = vi_left(vi_counting(), 31);
    const veci minus = inverse ? odd : vi_xor(odd, vi_set(0x80000000));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; pos[r] >= 0 && h < heads; h++) {
            const int64_t at = r * ldx + h * head_dim, angle = pos[r] * rot;
            V_EACH(j, rot,
                   turn_pairs(x, at + j, cos + angle + j, sin + angle + j, minus, count, inverse,
                              dtype));
        }
}

void SHEAF__FAST(rope_pairs)(void *x, int64_t ldx, const float *cos, const float *sin,
                             const int32_t *pos, int64_t rows, int64_t heads, int64_t head_dim,
                             int64_t rot, bool inverse, sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, rope_pairs(x, ldx, cos, sin, pos, rows, heads, head_dim, rot, inverse, of));
}
