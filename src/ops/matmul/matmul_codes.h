/* matmul_codes.h - tiles of few rows that take compressed panels as they lie in memory, and put
 * halves together in registers; part of matmul_kernel.h. Vectors have 16 floats.
 *
 * What reads a panel of 12 bits an element from memory waits a quarter less, and one panel after
 * the other is one stream. */

/* Exponents of numbers 0 to 15, twice: the instruction looks at five bits. */
static inline __m512i exponents_of(const mm_code *code)
{
    const __m512i number = _mm512_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0,
                                            15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                  exponent = _mm512_add_epi16(number, _mm512_set1_epi16((short)code->base));
    return _mm512_slli_epi16(
        _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(number, number), exponent), 7);
}

/* 32 halves. */
static inline __m512i halves_of(const uint32_t *low, __m512i numbers, __m512i exponents)
{
    const __m512i bits = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)low));
    return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi16((short)0x807f),
                                     _mm512_permutexvar_epi16(numbers, exponents),
                                     0xea); /* (bits & mask) | exponent */
}

/* The four vectors of two steps. */
static inline __attribute__((always_inline)) void expand_unit(__m512i w[4], const uint32_t *b,
                                                              __m512i exponents)
{
    const __m512i numbers = _mm512_loadu_si512(b + MM_PANEL);
    w[0] = halves_of(b, numbers, exponents);
    w[1] = halves_of(b + 8, _mm512_srli_epi16(numbers, 4), exponents);
    w[2] = halves_of(b + 16, _mm512_srli_epi16(numbers, 8), exponents);
    w[3] = halves_of(b + 24, _mm512_srli_epi16(numbers, 12), exponents);
}

/* The unit of two steps of the next rare half, or -1. */
static inline int64_t unit_of(const uint32_t *rare, const uint32_t *end)
{
    return rare < end ? (int64_t)((*rare & 0xffff) / MM_CODE_HALVES) : -1;
}

/* The rare halves of unit `unit`, the first of which is *rare; returns what comes after them. */
static __attribute__((noinline)) const uint32_t *put_rare(__m512i w[4], const uint32_t *rare,
                                                          const uint32_t *end, int64_t unit)
{
    uint16_t half[MM_CODE_HALVES] __attribute__((aligned(64)));
    memcpy(half, w, sizeof half);
    for (; unit_of(rare, end) == unit; rare++)
        half[*rare % MM_CODE_HALVES] = (uint16_t)(*rare >> 16);
    memcpy(w, half, sizeof half);
    return rare;
}

/* For processors that do not prefetch by themselves: three lines, as far ahead as ask_ahead() says.
 */
static inline __attribute__((always_inline)) void ask_codes(const uint32_t *b)
{
    enum { AHEAD = 2048 / 4, LINE = 64 / 4 };
    UNROLL for (int i = 0; !ONE_PANEL && i < MM_CODE_WORDS; i += LINE)
        __builtin_prefetch(b + AHEAD + i, 0, 3);
}

static inline __attribute__((always_inline)) void tile_of_codes(const operands *in, const store *s,
                                                                const int rows)
{
    const mm_code *code = in->code;
    const uint32_t *b = in->b, *rare = mm_rare(code), *end = rare + code->rares;
    const char *a = in->a;
    const __m512i exponents = exponents_of(code);
    vec sum[ROWS][MOST_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = ZERO();
#ifdef CHAINS
    chains chunk, *c = &chunk;
    begin_chunk(c, rows, 2);
#else
    vec(*c)[MOST_VECTORS] = sum;
#endif
    int64_t next = unit_of(rare, end);
    for (int64_t u = 0; 2 * u < in->steps; u++, b += MM_CODE_WORDS, a += 2 * A_PAIR) {
        __m512i w[4];
        ask_codes(b);
        expand_unit(w, b, exponents);
        if (__builtin_expect(u == next, 0)) {
            __m512i patched[4] = { w[0], w[1], w[2], w[3] };
            rare = put_rare(patched, rare, end, u);
            UNROLL for (int i = 0; i < 4; i++) w[i] = patched[i];
            next = unit_of(rare, end);
        }
        STEP_PANEL(c, a, w, rows);
        if (2 * u + 1 < in->steps)
            STEP_PANEL(c, a + A_PAIR, w + 2, rows);
#ifdef CHAINS
        const bool whole = (2 * u + 2) % (CHUNK / 2) == 0, last = 2 * u + 2 >= in->steps;
        if (whole || last) {
            end_chunk(sum, c, whole && 2 * u + 2 <= in->steps, rows, 0, 2);
            begin_chunk(c, rows, 2);
        }
#endif
    }
    put(sum, s, rows, 2);
}

#define CODES_TILE(rows)                                                                           \
    static void codes_##rows(const operands *in, const store *s)                                   \
    {                                                                                              \
        tile_of_codes(in, s, rows);                                                                \
    }
#define CODES_ROW(rows) codes_##rows,
CODES(CODES_TILE)
static tile_fn *const tiles_of_codes[] = { CODES(CODES_ROW) };
