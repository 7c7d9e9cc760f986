/* emulation_mma.c - see emulation_mma.h.
 *
 * A row of results is a vector of 8 columns. For each group of products, as in
 * ops/matmul/matmul_mma_kernel.h: E is the largest exponent; every product, exact as a float32,
 * times 2^(F - E) becomes an integer toward zero, and so does the sum before; they are added as
 * integers, and the sum becomes a float32 toward zero, times 2^(E - F). That is exact while
 *   - factors are zero or normal and below 2^51 (denormals of float16 are normal as a float32);
 *   - the sum before is below 2^100, and E is at least -100: what DAZ and FTZ then take for zero is
 *     below the last bit kept;
 *   - the sum of integers has not gone past 2^31.
 * Other results are the rule's (sheaf__mma_chain). */
#include "tests/gpu/emulation_mma.h"

#include <immintrin.h>

#include "ops/math/round.h"
#include "ops/matmul/mma.h"

#define NONE (-1000) /* the exponent of a zero */
#define MOST 50
#define LOW (-100)

/* Elements as the vectors take them: [k], and for a row or a column whether one is rare. */
typedef struct left {
    float value[16][16];
    int32_t exp[16][16];
    int32_t rare[16];
} left;

typedef struct right {
    __m256 value[16];
    __m256i exp[16], rare;
} right;

/* Values and exponents of 8 numbers of 16 bits, each the upper half of a word; and which are rare.
 */
static inline void split(__m256i upper, bool f16, __m256 *value, __m256i *exp, __m256i *rare)
{
    const __m256i size = _mm256_slli_epi32(upper, 1), zero = _mm256_setzero_si256();
    __m256i e = _mm256_srli_epi32(size, f16 ? 27 : 24);
    if (f16) {
        const __m256i low = _mm256_srli_epi32(upper, 16);
        const __m128i half =
            _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
        *rare = _mm256_or_si256(*rare, _mm256_cmpeq_epi32(e, _mm256_set1_epi32(31)));
        *value = _mm256_cvtph_ps(half);
        e = _mm256_sub_epi32(_mm256_max_epi32(e, _mm256_set1_epi32(1)), _mm256_set1_epi32(15));
    } else {
        const __m256i denormal =
            _mm256_andnot_si256(_mm256_cmpeq_epi32(size, zero), _mm256_cmpeq_epi32(e, zero));
        e = _mm256_sub_epi32(e, _mm256_set1_epi32(127));
        *value = _mm256_castsi256_ps(upper);
        *rare = _mm256_or_si256(
            *rare, _mm256_or_si256(denormal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(MOST))));
    }
    *exp = _mm256_blendv_epi8(e, _mm256_set1_epi32(NONE), _mm256_cmpeq_epi32(size, zero));
}

static void split_left(left *to, const uint32_t a[16][8], bool f16)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    for (int i = 0; i < 16; i++) {
        /* pairs in the order 0 1 4 5 2 3 6 7, so that unpacking gives elements in theirs */
        const __m256i words =
            _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)(const void *)a[i]), 0xd8);
        __m256 value[2];
        __m256i exp[2], rare = _mm256_setzero_si256();
        split(_mm256_slli_epi32(words, 16), f16, &value[0], &exp[0], &rare);
        split(_mm256_and_si256(words, high), f16, &value[1], &exp[1], &rare);
        _mm256_storeu_ps(to->value[i], _mm256_unpacklo_ps(value[0], value[1]));
        _mm256_storeu_ps(to->value[i] + 8, _mm256_unpackhi_ps(value[0], value[1]));
        __m256i *e = (__m256i *)(void *)to->exp[i];
        _mm256_storeu_si256(e, _mm256_unpacklo_epi32(exp[0], exp[1]));
        _mm256_storeu_si256(e + 1, _mm256_unpackhi_epi32(exp[0], exp[1]));
        to->rare[i] = _mm256_testz_si256(rare, rare) ? 0 : -1;
    }
}

static void split_right(right *to, const uint32_t b[8][8], bool f16)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    to->rare = _mm256_setzero_si256();
    for (int k = 0; k < 8; k++) {
        const __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)b[k]);
        split(_mm256_slli_epi32(words, 16), f16, &to->value[2 * k], &to->exp[2 * k], &to->rare);
        split(_mm256_and_si256(words, high), f16, &to->value[2 * k + 1], &to->exp[2 * k + 1],
              &to->rare);
    }
}

/* One group from element k on of a row; *rare gathers the columns whose results are not to be
 * used. */
static inline __attribute__((always_inline)) __m256
add_group(__m256 c, const left *a, int row, const right *b, int k, __m256i *rare, const int length)
{
    const int kept = length == 8 ? 24 : 25; /* F */
    const __m256i bits = _mm256_castps_si256(c), none = _mm256_set1_epi32(NONE);
    const __m256i field = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24);
    __m256i e =
        _mm256_blendv_epi8(_mm256_sub_epi32(field, _mm256_set1_epi32(127)), none,
                           _mm256_cmpeq_epi32(_mm256_slli_epi32(bits, 1), _mm256_setzero_si256()));
    for (int p = k; p < k + length; p++)
        e = _mm256_max_epi32(e, _mm256_add_epi32(_mm256_set1_epi32(a->exp[row][p]), b->exp[p]));
    const __m256i nothing = _mm256_cmpgt_epi32(_mm256_set1_epi32(NONE / 2), e);
    *rare = _mm256_or_si256(*rare, _mm256_cmpgt_epi32(field, _mm256_set1_epi32(127 + 99)));
    *rare = _mm256_or_si256(
        *rare, _mm256_andnot_si256(nothing, _mm256_cmpgt_epi32(_mm256_set1_epi32(LOW), e)));
    e = _mm256_max_epi32(e, _mm256_set1_epi32(LOW));
    const __m256 scale = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(127 + kept), e), 23));
    const __m256 back = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_set1_epi32(127 - kept), e), 23));
    __m256i sum = _mm256_cvttps_epi32(_mm256_mul_ps(c, scale));
    for (int p = k; p < k + length; p++) {
        const __m256 product = _mm256_mul_ps(_mm256_set1_ps(a->value[row][p]), b->value[p]);
        sum = _mm256_add_epi32(sum, _mm256_cvttps_epi32(_mm256_mul_ps(product, scale)));
    }
    if (length == 16) { /* 16 products below 63.8 * 2^25, and c: may have gone past 2^31 */
        const __m256i size = _mm256_abs_epi32(sum), most = _mm256_set1_epi32(62 << 25);
        *rare = _mm256_or_si256(*rare, _mm256_cmpeq_epi32(_mm256_max_epu32(size, most), size));
    }
    return _mm256_mul_ps(_mm256_cvtepi32_ps(sum), back);
}

/* The results of a row in `columns` by the rule. */
static void by_rule(float c[8], const uint32_t row[8], const uint32_t b[8][8], unsigned columns,
                    int group, bool f16)
{
    for (; columns != 0; columns &= columns - 1) {
        const int j = __builtin_ctz(columns);
        uint16_t x[16], y[16];
        for (int k = 0; k < 16; k++) {
            x[k] = (uint16_t)(row[k / 2] >> 16 * (k % 2));
            y[k] = (uint16_t)(b[k / 2][j] >> 16 * (k % 2));
        }
        uint32_t bits;
        memcpy(&bits, &c[j], sizeof bits);
        bits = sheaf__mma_chain(group == 8 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16,
                                f16 ? SHEAF_F16 : SHEAF_BF16, bits, x, y, 16);
        memcpy(&c[j], &bits, sizeof bits);
    }
}

/* Called with the mode in which integers become floats toward zero: not inline, so that nothing of
 * it is moved out of it. */
static __attribute__((noinline)) void add_rows(float c[16][8], const left *l, const right *r,
                                               const uint32_t a[16][8], const uint32_t b[8][8],
                                               int group, bool f16)
{
    for (int i = 0; i < 16; i++) {
        const __m256 before = _mm256_loadu_ps(c[i]);
        __m256i rare = _mm256_or_si256(r->rare, _mm256_set1_epi32(l->rare[i]));
        __m256 sum = before;
        if (group == 8) {
            sum = add_group(sum, l, i, r, 0, &rare, 8);
            sum = add_group(sum, l, i, r, 8, &rare, 8);
        } else {
            sum = add_group(sum, l, i, r, 0, &rare, 16);
        }
        const __m256 mask = _mm256_castsi256_ps(rare);
        _mm256_storeu_ps(c[i], _mm256_blendv_ps(sum, before, mask));
        if (_mm256_movemask_ps(mask) != 0)
            by_rule(c[i], a[i], b, (unsigned)_mm256_movemask_ps(mask), group, f16);
    }
}

void sheaf__emu_mma_tile(float c[16][8], const uint32_t a[16][8], const uint32_t b[8][8], int group,
                         bool f16)
{
    left l;
    right r;
    split_left(&l, a, f16);
    split_right(&r, b, f16);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_ROUND_TOWARD_ZERO);
    add_rows(c, &l, &r, a, b, group, f16);
    _mm_setcsr(mode);
}
