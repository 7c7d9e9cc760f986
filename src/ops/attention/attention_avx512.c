/* attention_avx512.c - the attention kernels with 16 lanes in one register.
 *
 * Needs AVX-512 F, BW, DQ, VL and BF16. The pair instruction multiplies and adds
 * the odd elements first, then the even ones: the order of the contract. */
#include <immintrin.h>

#include "ops/attention/attention_parts.h"

typedef __m512 v16;       /* 16 floats */
typedef __m512i w16;      /* 16 words: integers, or pairs of bfloat16 */
typedef __mmask16 seen16; /* a bit per lane */

static inline v16 v_load(const float *x) { return _mm512_loadu_ps(x); }
static inline void v_store(float *x, v16 v) { _mm512_storeu_ps(x, v); }
static inline v16 v_set(float x) { return _mm512_set1_ps(x); }
static inline v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
/* a > b ? a : b, which is b when either is NaN */
static inline v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
/* y * 2^n for results that are normal numbers; shifted = n + 0x1.8p23 */
static inline v16 v_scale(v16 y, v16 n, v16 shifted)
{
    (void)shifted;
    return _mm512_scalef_ps(y, n);
}

static inline w16 w_load(const void *x) { return _mm512_loadu_si512(x); }
static inline void w_store(void *x, w16 w) { _mm512_storeu_si512(x, w); }
static inline w16 w_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
static inline w16 w_add(w16 a, w16 b) { return _mm512_add_epi32(a, b); }
static inline w16 w_and(w16 a, w16 b) { return _mm512_and_si512(a, b); }
static inline w16 w_or(w16 a, w16 b) { return _mm512_or_si512(a, b); }
static inline bool w_any(w16 a) { return _mm512_test_epi32_mask(a, a) != 0; }

/* lanes with first <= j <= last */
static inline seen16 between(w16 first, w16 j, w16 last)
{
    return _mm512_mask_cmple_epi32_mask(_mm512_cmple_epi32_mask(first, j), j, last);
}
static inline seen16 below(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline seen16 is_zero(v16 a) { return _mm512_cmp_ps_mask(a, v_set(0), _CMP_EQ_OQ); }
static inline seen16 is_nan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline v16 pick(seen16 seen, v16 x, v16 other) { return _mm512_mask_mov_ps(other, seen, x); }

/* 16 floats, none denormal, rounded to bfloat16, each in the low half of its word */
static inline w16 halves(v16 x) { return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)); }
static inline w16 pair(w16 even, w16 odd) { return w_or(even, _mm512_slli_epi32(odd, 16)); }
static inline void store_halves(uint16_t *x, w16 low)
{
    _mm256_storeu_si256((void *)x, _mm512_cvtepi32_epi16(low));
}
static inline w16 load_halves(const uint16_t *x)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
}
static inline v16 widen(w16 low) { return _mm512_castsi512_ps(_mm512_slli_epi32(low, 16)); }

#include "ops/attention/attention_tile.h"

#define TILE_PANELS 4 /* panels of 16 columns that a tile spans at most */
#define TILE_ROWS 8   /* rows of a tile at most; 6 when it spans 4 panels, for 32 registers */

static inline __attribute__((always_inline)) void run(const tile *t, const int rows,
                                                      const int panels, const bool pairs)
{
    v16 c[TILE_ROWS][TILE_PANELS];
    const uint32_t *b = t->b;
    const char *a = t->a;
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++)
            c[r][p] = _mm512_setzero_ps();
    for (int64_t k = 0; k < t->steps; k++, a += t->a_step, b += 16) {
        v16 bk[TILE_PANELS];
        UNROLL for (int p = 0; p < panels; p++)
            bk[p] = v_load((const float *)b + p * t->b_panel);
        UNROLL for (int r = 0; r < rows; r++) {
            const v16 ak = v_set(word_at(a + r * t->a_row));
            UNROLL for (int p = 0; p < panels; p++)
                c[r][p] = pairs ? _mm512_dpbf16_ps(c[r][p], (__m512bh)ak, (__m512bh)bk[p])
                                : v_fma(ak, bk[p], c[r][p]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++) {
            float *to = t->c + r * t->c_row + p * t->c_panel;
            v_store(to, t->add ? v_add(v_load(to), c[r][p]) : v_mul(v_set(t->scale), c[r][p]));
        }
}

#define EACH_TILE(X, pairs)                                                                 \
    X(1, 1, pairs) X(2, 1, pairs) X(3, 1, pairs) X(4, 1, pairs) X(5, 1, pairs)              \
    X(6, 1, pairs) X(7, 1, pairs) X(8, 1, pairs)                                            \
    X(1, 2, pairs) X(2, 2, pairs) X(3, 2, pairs) X(4, 2, pairs) X(5, 2, pairs)              \
    X(6, 2, pairs) X(7, 2, pairs) X(8, 2, pairs)                                            \
    X(1, 3, pairs) X(2, 3, pairs) X(3, 3, pairs) X(4, 3, pairs) X(5, 3, pairs)              \
    X(6, 3, pairs) X(7, 3, pairs) X(8, 3, pairs)                                            \
    X(1, 4, pairs) X(2, 4, pairs) X(3, 4, pairs) X(4, 4, pairs) X(5, 4, pairs) X(6, 4, pairs)
static inline int tile_rows(int panels) { return panels == 4 ? 6 : 8; }

#define TABLE sheaf__attention_avx512
#include "ops/attention/attention_kernel.h"
