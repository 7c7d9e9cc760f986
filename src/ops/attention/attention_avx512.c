/* attention_avx512.c - the attention kernels for AVX-512 F, BW, DQ, VL and BF16.
 *
 * The pair instruction multiplies and adds the odd elements first, then the even
 * ones: the order of the contract. */
#include "ops/attention/attention_tile.h"

#define TILE_PANELS 4 /* panels of 16 columns that a tile spans at most */
#define TILE_ROWS 8   /* rows of a tile at most */

/* So that sums, a row of b and a word of a fit in 32 registers. */
static inline int tile_rows(int panels) { return panels == 4 ? 6 : 8; }

SHEAF__INLINE vec larger(vec a, vec b) { return _mm512_max_ps(a, b); }
SHEAF__INLINE veci either(veci a, veci b) { return _mm512_or_si512(a, b); }
SHEAF__INLINE vec power(vec x, vec y, vec n, vec shifted)
{
    (void)shifted;
    const __mmask16 normal = _mm512_cmp_ps_mask(x, v_set(-0x1.5d589ep+6f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, y, n);
}
SHEAF__INLINE rounded round_pair(vec even, vec odd)
{
    const __m512i all = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    /* word i takes elements i and 16 + i */
    const __m512i mixed = vi_add(vi_set(0x00100000), _mm512_mullo_epi32(vi_counting(), vi_set(0x10001)));
    return (rounded){ _mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1),
                      _mm512_permutexvar_epi16(mixed, all) };
}

SHEAF__INLINE void run(const tile *t, const int rows, const int panels, const bool pairs)
{
    vec c[TILE_ROWS][TILE_PANELS];
    const uint32_t *b = t->b;
    const char *a = t->a;
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++)
            c[r][p] = v_zero();
    for (int64_t k = 0; k < t->steps; k++, a += t->a_step, b += 16) {
        vec bk[TILE_PANELS];
        UNROLL for (int p = 0; p < panels; p++)
            bk[p] = v_float(vi_load(b + p * t->b_panel));
        UNROLL for (int r = 0; r < rows; r++) {
            const vec ak = v_float(vi_set(word_at(a + r * t->a_row)));
            UNROLL for (int p = 0; p < panels; p++)
                c[r][p] = pairs ? _mm512_dpbf16_ps(c[r][p], (__m512bh)ak, (__m512bh)bk[p])
                                : v_fma(ak, bk[p], c[r][p]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++)
            end_tile(t, r, p, c[r][p]);
}

#define EACH_TILE(X, pairs)                                                                     \
    X(1, 1, pairs) X(2, 1, pairs) X(3, 1, pairs) X(4, 1, pairs) X(5, 1, pairs) X(6, 1, pairs)   \
    X(7, 1, pairs) X(8, 1, pairs)                                                               \
    X(1, 2, pairs) X(2, 2, pairs) X(3, 2, pairs) X(4, 2, pairs) X(5, 2, pairs) X(6, 2, pairs)   \
    X(7, 2, pairs) X(8, 2, pairs)                                                               \
    X(1, 3, pairs) X(2, 3, pairs) X(3, 3, pairs) X(4, 3, pairs) X(5, 3, pairs) X(6, 3, pairs)   \
    X(7, 3, pairs) X(8, 3, pairs)                                                               \
    X(1, 4, pairs) X(2, 4, pairs) X(3, 4, pairs) X(4, 4, pairs) X(5, 4, pairs) X(6, 4, pairs)

#define TABLE sheaf__attention_avx512
#include "ops/attention/attention_kernel.h"
