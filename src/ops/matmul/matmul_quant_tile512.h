/* matmul_quant_tile512.h - codes of 4 bits to pairs in AVX-512: the vectors of
 * matmul_quant_tile.h.
 *
 * The lookup sees the lowest five bits of each half word: the table is there twice. Every second
 * code is lowest where words are loaded from their second byte on: the units that shift are what
 * such a tile waits for, loads are not. */

#ifdef CHAINS
#define TWO_GROUPS 0
#else
#define TWO_GROUPS 1 /* of one row: an instruction takes four to six cycles */
#endif
#define WHOLE_PANELS 8 /* rows that meet a panel at once */

typedef struct numbers {
    __m512i table;
} numbers;

static inline void fill_numbers(numbers *n, const uint16_t half[16])
{
    n->table = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)half));
}

/* Up to eight columns of a panel; of an odd number the last one's neighbour is none. Codes that lie
 * `ahead` are asked for. */
static inline __attribute__((always_inline)) void
unit_of_codes(group_sums *g, const char *a, const uint32_t *words, int64_t cols, const numbers *n,
              int64_t ahead, const int first, const int count, const int rows)
{
    enum { LINE = 64 };
    UNROLL for (int i = 0; i < OF_PANEL * LANES * 4; i += LINE)
        __builtin_prefetch((const char *)words + ahead + i, 0, 3);
    __m512i code[2][2];
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int v = 0; v < 2; v++) code[i][v] =
        _mm512_loadu_si512((const char *)(words + v * LANES) + i);
    UNROLL for (int s = 0; s < MM_UNIT / 2; s++)
    {
        __m512i w[2];
        if (2 * s >= cols)
            return;
        UNROLL for (int v = 0; v < 2; v++)
        {
            const __m512i at = s < 2 ? code[s][v] : _mm512_srli_epi32(code[s - 2][v], 4);
            w[v] = _mm512_permutexvar_epi16(at, n->table);
            if (2 * s + 1 == cols)
                w[v] = _mm512_and_si512(w[v], _mm512_set1_epi32(0xffff));
        }
        STEP_PANEL(SUMS_OF_STEP(g), a + s * A_PAIR, w, rows);
    }
}

static inline __attribute__((always_inline)) vec group_sum(const vec g[MOST_VECTORS], const int v)
{
    return g[v];
}
