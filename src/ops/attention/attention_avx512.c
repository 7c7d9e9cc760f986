/* attention_avx512.c - the attention kernels for AVX-512 F, BW, DQ, VL and BF16, and for the tile
 * unit.
 *
 * The pair instruction multiplies and adds the odd elements first, then the even
 * ones: the order `pairs` of the contract. Where it is slow, two fma do the same. */
#include "ops/attention/attention_tile.h"

#define TILE_PANELS 4   /* panels of 16 columns that a tile spans at most */
#define TILE_ROWS 8     /* rows of a tile at most */
#define SINGLE_HEADS 4  /* their sums of values are in registers */
#define SINGLE_PANELS 4 /* of 16 channels, of each */
#define SINGLE_WIDE 8   /* of half as many heads, where each has one chain */

/* So that sums, a row of b and a word of a fit in 32 registers; of two chains only the chains, as
 * their sums are touched once in 16 words. */
static inline int tile_rows(int panels, kind kind)
{
    if (kind == TILES)
        return panels == 1 ? 8 : panels == 2 ? 6 : 3;
    return panels == 4 ? 6 : 8;
}
static inline kind kind_of(const sheaf__attention_call *call)
{
    if (call->sums == SHEAF_SUMS_TILES)
        return call->units.tiles ? UNIT : TILES;
    return call->units.pairs ? PAIRS : SPLIT;
}

SHEAF__INLINE vec larger(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
SHEAF__INLINE bool any_less(vec a, vec b)
{
    return v_less(a, b) != 0;
}
SHEAF__INLINE veci either(veci a, veci b)
{
    return _mm512_or_si512(a, b);
}
SHEAF__INLINE vec power(vec x, vec y, vec n, vec shifted)
{
    (void)shifted;
    const __mmask16 normal = _mm512_cmp_ps_mask(x, v_set(-0x1.5d589ep+6f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, y, n);
}
/* Word i takes elements i and 16 + i. */
SHEAF__INLINE veci mix_words(__m512i all)
{
    const __m512i mixed =
        vi_add(vi_set(0x00100000), _mm512_mullo_epi32(vi_counting(), vi_set(0x10001)));
    return _mm512_permutexvar_epi16(mixed, all);
}
SHEAF__INLINE rounded round_pair(vec even, vec odd)
{
    const __m512i all = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    return (rounded){ _mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1),
                      mix_words(all) };
}

/* By the instruction for pairs. */
#define STEP_PAIRS(c, a, b) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))

/* clang-format off */
#define EACH_TILE(X, kind)                                                                     \
    X(1, 1, kind) X(2, 1, kind) X(3, 1, kind) X(4, 1, kind) X(5, 1, kind) X(6, 1, kind)   \
    X(7, 1, kind) X(8, 1, kind)                                                               \
    X(1, 2, kind) X(2, 2, kind) X(3, 2, kind) X(4, 2, kind) X(5, 2, kind) X(6, 2, kind)   \
    X(7, 2, kind) X(8, 2, kind)                                                               \
    X(1, 3, kind) X(2, 3, kind) X(3, 3, kind) X(4, 3, kind) X(5, 3, kind) X(6, 3, kind)   \
    X(7, 3, kind) X(8, 3, kind)                                                               \
    X(1, 4, kind) X(2, 4, kind) X(3, 4, kind) X(4, 4, kind) X(5, 4, kind) X(6, 4, kind)
#define EACH_TILES(X, kind)                                                                     \
    X(1, 1, kind) X(2, 1, kind) X(3, 1, kind) X(4, 1, kind) X(5, 1, kind) X(6, 1, kind)         \
    X(7, 1, kind) X(8, 1, kind)                                                                 \
    X(1, 2, kind) X(2, 2, kind) X(3, 2, kind) X(4, 2, kind) X(5, 2, kind) X(6, 2, kind)         \
    X(1, 3, kind) X(2, 3, kind) X(3, 3, kind) X(1, 4, kind) X(2, 4, kind) X(3, 4, kind)

#define EACH_SINGLE(X, order)                                                                   \
    X(1, 1, order) X(2, 1, order) X(3, 1, order) X(4, 1, order)                                 \
    X(1, 4, order) X(2, 4, order) X(3, 4, order) X(4, 4, order)
#define EACH_SINGLE_WIDE(X, order) X(1, 8, order) X(2, 8, order)
/* clang-format on */

#define HAS_UNIT

#define PRODUCT_MMA sheaf__mma_product_avx512mma
#define KERNEL sheaf__attention_avx512
#include "ops/attention/attention_kernel.h"
