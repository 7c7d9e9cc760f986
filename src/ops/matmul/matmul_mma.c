/* matmul_mma.c - rows of A for the kernels of mma8 and mma16. Compiled with -mavx2. */

#include "ops/lanes.h"
#include "ops/matmul/matmul_mma.h"

/* Exponents of 16 numbers, as matmul_mma.h has those of A. */
static inline __m256i exponents(__m256i words, bool f16)
{
    const __m256i none = _mm256_setzero_si256(), all = _mm256_slli_epi16(words, 1),
                  field = _mm256_srli_epi16(all, f16 ? 11 : 8);
    __m256i rare = f16 ? none : _mm256_cmpeq_epi16(field, none);
    __m256i e = _mm256_sub_epi16(_mm256_max_epi16(field, _mm256_set1_epi16(f16)),
                                 _mm256_set1_epi16(f16 ? 16 : 128));
    rare =
        _mm256_or_si256(rare, _mm256_cmpgt_epi16(e, _mm256_set1_epi16((f16 ? 15 : MMA_MOST) - 1)));
    e = _mm256_blendv_epi8(e, _mm256_set1_epi16(MMA_RARE), rare);
    return _mm256_blendv_epi8(e, _mm256_set1_epi16(MMA_ZERO), _mm256_cmpeq_epi16(all, none));
}

static inline __m256 from_f16(__m256i words)
{
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

static inline void values(float *to, __m256i words, bool f16)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    const __m256 even = f16 ? from_f16(_mm256_andnot_si256(high, words))
                            : _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)),
                 odd = f16 ? from_f16(_mm256_srli_epi32(words, 16))
                           : _mm256_castsi256_ps(_mm256_and_si256(words, high));
    _mm256_storeu_ps(to, _mm256_permute2f128_ps(even, odd, 0x20));
    _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(even, odd, 0x31));
}

/* Eight elements' exponents into their row's bytes of a unit's words; what they are for a flag. */
static inline int add_exponents(uint32_t *to, __m256i e, int bytes)
{
    const __m256i old = _mm256_loadu_si256((const __m256i *)to);
    const __m256i low = _mm256_and_si256(e, _mm256_set1_epi32(255));
    _mm256_storeu_si256((__m256i *)to,
                        _mm256_or_si256(old, _mm256_mullo_epi32(low, _mm256_set1_epi32(bytes))));
    const __m256i zero = _mm256_cmpeq_epi32(low, _mm256_set1_epi32(MMA_ZERO & 255)),
                  rare = _mm256_cmpeq_epi32(low, _mm256_set1_epi32(MMA_RARE));
    return (_mm256_movemask_ps(_mm256_castsi256_ps(zero)) == 255 ? MMA_NOTHING : 0) |
           (_mm256_movemask_ps(_mm256_castsi256_ps(rare)) != 0 ? MMA_CARE : 0);
}

/* A row's part of one pass. */
typedef struct part {
    const uint32_t *from;
    int64_t steps, at; /* at: elements before it */
    int length, bytes; /* bytes: which of a unit's words, each 1 */
} part;

static inline void left_row(float *value, uint32_t *exps, uint8_t *flag, const part *p, bool f16)
{
    for (int64_t s = 0; s < p->steps; s += 8) {
        uint32_t rest[8] = { 0 };
        const uint32_t *from = p->from + s;
        if (p->steps - s < 8) {
            memcpy(rest, from, (size_t)(p->steps - s) * sizeof *rest);
            from = rest;
        }
        const __m256i words = _mm256_loadu_si256((const __m256i *)from), e = exponents(words, f16),
                      odd = _mm256_srli_epi32(e, 16);
        const int64_t at = p->at + 2 * s;
        values(value + at, words, f16);
        const int first =
                      add_exponents(exps + at, _mm256_permute2x128_si256(e, odd, 0x20), p->bytes),
                  second = add_exponents(exps + at + 8, _mm256_permute2x128_si256(e, odd, 0x31),
                                         p->bytes);
        uint8_t *f = flag + at / p->length, *g = flag + (at + 8) / p->length;
        if (!(first & MMA_NOTHING))
            *f &= (uint8_t)~MMA_NOTHING;
        if (!(second & MMA_NOTHING))
            *g &= (uint8_t)~MMA_NOTHING;
        *f |= first & MMA_CARE;
        *g |= second & MMA_CARE;
    }
}

/* Row `row` of a unit, of which the band has no more. */
static void left_free(float *value, uint32_t *exps, const part *p)
{
    for (int64_t k = p->at; k < p->at + mm_up(2 * p->steps, 16); k++) {
        value[k] = 0;
        exps[k] |= MMA_FREE * (uint32_t)p->bytes;
    }
}

void sheaf__mma_left(mma_left *left, const mm_band *band, bool f16, int length, int unit)
{
    const uint32_t bytes = 0x01010101u >> (32 - 32 / unit); /* of the first row */
    for (int q = 0; q < band->passes; q++) {
        const mm_pass *pass = &band->pass[q];
        const int64_t elements = mm_up(2 * pass->steps, 16), at = 2 * pass->at;
        for (int64_t r = 0; r < mm_up(band->rows, unit); r++) {
            const int64_t u = r / unit;
            const part p = { (const uint32_t *)band->a + r * band->words + pass->at, pass->steps,
                             at, length, (int)(bytes << (r % unit * (32 / unit) % 32)) };
            if (r % unit == 0) {
                memset(&left->exps[u][at], 0, (size_t)elements * sizeof(uint32_t));
                memset(&left->flag[u][at / length], MMA_NOTHING, (size_t)(elements / length));
            }
            if (r >= band->rows)
                left_free(left->value[r], left->exps[u], &p);
            else if (f16)
                left_row(left->value[r], left->exps[u], left->flag[u], &p, true);
            else
                left_row(left->value[r], left->exps[u], left->flag[u], &p, false);
        }
    }
}
