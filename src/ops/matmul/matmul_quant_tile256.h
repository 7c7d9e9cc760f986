/* matmul_quant_tile256.h - codes of 4 bits to numbers in AVX2: the vectors of matmul_quant_tile.h.
 *
 * Bytes are looked up, the upper and the lower ones of 32 numbers, and put together. Words of two
 * vectors a, b of rows are sorted first: even columns of both, odd columns of both. So are sums:
 * 2 i has rows a0 b0 a1 b1 a4 b4 a5 b5, 2 i + 1 has a2 b2 a3 b3 a6 b6 a7 b7. */

#define TWO_GROUPS 0
#define WHOLE_PANELS 2 /* rows that meet a panel at once, others half of it */

typedef struct numbers {
    __m256i low, high;
} numbers;

static inline void fill_numbers(numbers *n, const uint16_t half[16])
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)half),
                  low = _mm256_and_si256(x, _mm256_set1_epi16(255)), high = _mm256_srli_epi16(x, 8);
    n->low = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, low), 0x88);
    n->high = _mm256_permute4x64_epi64(_mm256_packus_epi16(high, high), 0x88);
}

/* Half words of the numbers of 32 codes. */
static inline __attribute__((always_inline)) void looked_up(__m256i to[2], __m256i codes,
                                                            const numbers *n)
{
    const __m256i at = _mm256_and_si256(codes, _mm256_set1_epi8(15)),
                  low = _mm256_shuffle_epi8(n->low, at), high = _mm256_shuffle_epi8(n->high, at);
    to[0] = _mm256_unpacklo_epi8(low, high);
    to[1] = _mm256_unpackhi_epi8(low, high);
}

/* A column of a pair of vectors, then the other one: words' upper halves, or lower ones. */
static inline __attribute__((always_inline)) void
column_of_codes(vec g[ROWS][MOST_VECTORS], const char *a, const __m256i half[2], const bool upper,
                const int first, const int rows)
{
    vec number[2];
    UNROLL for (int v = 0; v < 2; v++) number[v] =
        upper ? ODD(_mm256_castsi256_ps(half[v])) : EVEN(_mm256_castsi256_ps(half[v]));
    UNROLL for (int r = 0; r < rows; r++)
    {
        const vec x = WORD(a + r * STRIDE * 4);
        UNROLL for (int v = 0; v < 2; v++) g[r][first + v] = FMA(number[v], x, g[r][first + v]);
    }
}

/* Up to eight columns of vectors [first, first + count) of a panel; of an odd number the last one's
 * neighbour is none. */
static inline __attribute__((always_inline)) void
unit_of_codes(group_sums *g, const char *a, const uint32_t *words, int64_t cols, const numbers *n,
              int64_t ahead, const int first, const int count, const int rows)
{
    enum { LINE = 64 };
    UNROLL for (int i = first * LANES * 4; i < (first + count) * LANES * 4; i += LINE)
        __builtin_prefetch((const char *)words + ahead + i, 0, 3);
    UNROLL for (int v = first; v < first + count; v += 2)
    {
        __asm__("" : "+r"(a)); /* or words of A stay in registers that there are not */
        const __m256i x = _mm256_loadu_si256((const __m256i *)(words + v * LANES)),
                      y = _mm256_loadu_si256((const __m256i *)(words + v * LANES + LANES));
        __m256i even = _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xaa),
                odd = _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xaa);
        UNROLL for (int s = 0; s < MM_UNIT / 2; s += 2)
        {
            __m256i evens[2], odds[2];
            looked_up(evens, s == 0 ? even : _mm256_srli_epi32(even, 4), n);
            looked_up(odds, s == 0 ? odd : _mm256_srli_epi32(odd, 4), n);
            UNROLL for (int i = 0; i < 2; i++)
            {
                const char *at = a + (s + i) * A_PAIR;
                if (2 * (s + i) >= cols)
                    break;
                if (2 * (s + i) + 1 == cols)
                    odds[0] = odds[1] = _mm256_setzero_si256();
                column_of_codes(ODDS(g), at, odds, i == 1, v, rows);
                column_of_codes(EVENS(g), at + A_PAIR / 2, evens, i == 1, v, rows);
            }
        }
    }
}

/* Vector v in the order of rows. */
static inline __attribute__((always_inline)) vec group_sum(const vec g[MOST_VECTORS], const int v)
{
    const int pair = v / 2 * 2;
    return v % 2 == 0 ? _mm256_shuffle_ps(g[pair], g[pair + 1], 0x88)
                      : _mm256_shuffle_ps(g[pair], g[pair + 1], 0xdd);
}
