/* attention_avx2.c - the attention kernels for AVX2 and FMA.
 *
 * There is no pair instruction: a pair is two fused multiply-adds, odd element
 * first. bfloat16 widened by a shift is a float, so this is exact; DAZ and FTZ
 * do what the instruction does by itself. */
#include "ops/attention/attention_tile.h"

#define TILE_PANELS 1   /* panels of 16 columns that a tile spans at most */
#define TILE_ROWS 6     /* rows of a tile at most */
#define SINGLE_HEADS 2  /* their sums of values are in registers */
#define SINGLE_PANELS 2 /* of 16 channels, of each */
#define SINGLE_WIDE SINGLE_PANELS

static inline int tile_rows(int panels, kind kind)
{
    return panels * (kind == TILES ? 2 : TILE_ROWS);
}
static inline kind kind_of(const sheaf__attention_call *call)
{
    return call->sums == SHEAF_SUMS_TILES ? TILES : SPLIT;
}

SHEAF__INLINE vec larger(vec x, vec y)
{
    return (vec){ _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b) };
}
SHEAF__INLINE bool any_less(vec x, vec y)
{
    const veci less = v_bits(v_select(v_less(x, y), v_set(-1), v_zero()));
    return (_mm256_movemask_epi8(less.a) | _mm256_movemask_epi8(less.b)) != 0;
}
SHEAF__INLINE veci either(veci x, veci y)
{
    return (veci){ _mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b) };
}
/* A NaN is spared: its low bits would be added to its exponent. */
SHEAF__INLINE vec power(vec x, vec y, vec n, vec shifted)
{
    (void)n;
    const vec e = v_float(vi_add(v_bits(y), vi_left(v_bits(shifted), 23)));
    return v_select(v_is_nan(x), x, v_select(v_less(x, v_set(-0x1.5d589ep+6f)), v_zero(), e));
}
SHEAF__INLINE rounded round_pair(vec even, vec odd)
{
    const veci a = vi_bf16(even), b = vi_bf16(odd); /* in upper halves */
    return (rounded){ vi_upper_halves(a), vi_upper_halves(b),
                      vi_xor(vi_right(a, 16), vi_and(b, vi_set(0xffff0000u))) };
}

#define STEP_PAIRS(c, a, b) c /* there is none: SPLIT takes its place */

/* clang-format off */
#define EACH_TILE(X, kind) \
    X(1, 1, kind) X(2, 1, kind) X(3, 1, kind) X(4, 1, kind) X(5, 1, kind) X(6, 1, kind)
/* clang-format on */
#define EACH_TILES(X, kind) X(1, 1, kind) X(2, 1, kind)

#define EACH_SINGLE(X, order) X(1, 1, order) X(2, 1, order) X(1, 2, order) X(2, 2, order)
#define EACH_SINGLE_WIDE(X, order)

#define PRODUCT_MMA sheaf__mma_product_avx2mma
#define KERNEL sheaf__attention_avx2
#include "ops/attention/attention_kernel.h"
