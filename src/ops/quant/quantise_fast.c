/* quantise_fast.c - quantise_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/each.h"
#include "ops/quant/codes.h"
#include "ops/quant/values.h"

/* Sixteen codes of a byte each, from count on zeros and not stored. */
SHEAF__INLINE __m128i load_codes(const uint8_t *p, int64_t count)
{
    if (count == 16)
        return _mm_loadu_si128((const __m128i *)p);
    uint8_t all[16] = { 0 };
    memcpy(all, p, (size_t)count);
    return _mm_loadu_si128((const __m128i *)all);
}

SHEAF__INLINE void store_codes(uint8_t *p, __m128i codes, int64_t count)
{
    uint8_t all[16];
    _mm_storeu_si128((__m128i *)(count == 16 ? p : all), codes);
    if (count < 16)
        memcpy(p, all, (size_t)count);
}

#ifdef __AVX512F__

SHEAF__INLINE veci vi_bytes(__m128i codes)
{
    return _mm512_cvtepu8_epi32(codes);
}
SHEAF__INLINE __m128i vi_to_bytes(veci x)
{
    return _mm512_cvtepi32_epi8(x);
}
SHEAF__INLINE vec v_of_int(veci x)
{
    return _mm512_cvtepi32_ps(x);
}
SHEAF__INLINE veci vi_nearest(vec x)
{
    return _mm512_cvtps_epi32(x);
}
SHEAF__INLINE veci vi_toward_zero(vec x)
{
    return _mm512_cvttps_epi32(x);
}
SHEAF__INLINE veci vi_sub(veci x, veci y)
{
    return _mm512_sub_epi32(x, y);
}
SHEAF__INLINE vec v_larger(vec x, vec y) /* y if one is NaN */
{
    return _mm512_max_ps(x, y);
}
/* `by` where y is not at most t */
SHEAF__INLINE veci vi_above(vec y, vec t, uint32_t by)
{
    return _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(y, t, _CMP_NLE_UQ), vi_set(by));
}
typedef __m512 table16;
SHEAF__INLINE table16 table_load(const void *of)
{
    return _mm512_loadu_ps(of);
}
SHEAF__INLINE vec v_lookup(table16 of, veci index)
{
    return _mm512_permutexvar_ps(index, of);
}
SHEAF__INLINE vec v_gather(const float *of, veci index)
{
    return _mm512_i32gather_ps(index, of, 4);
}

#else

SHEAF__INLINE veci vi_bytes(__m128i codes)
{
    return (veci){ _mm256_cvtepu8_epi32(codes), _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)) };
}
SHEAF__INLINE __m128i vi_to_bytes(veci x) /* the low bytes */
{
    const veci low = vi_and(x, vi_set(255));
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(low.a, low.b), _MM_SHUFFLE(3, 1, 2, 0));
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
SHEAF__INLINE vec v_of_int(veci x)
{
    return (vec){ _mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b) };
}
SHEAF__INLINE veci vi_nearest(vec x)
{
    return (veci){ _mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b) };
}
SHEAF__INLINE veci vi_toward_zero(vec x)
{
    return (veci){ _mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b) };
}
SHEAF__INLINE veci vi_sub(veci x, veci y)
{
    return (veci){ _mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b) };
}
SHEAF__INLINE vec v_larger(vec x, vec y) /* y if one is NaN */
{
    return (vec){ _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b) };
}
/* `by` where y is not at most t */
SHEAF__INLINE veci vi_above(vec y, vec t, uint32_t by)
{
    const veci is = { _mm256_castps_si256(_mm256_cmp_ps(y.a, t.a, _CMP_NLE_UQ)),
                      _mm256_castps_si256(_mm256_cmp_ps(y.b, t.b, _CMP_NLE_UQ)) };
    return vi_and(is, vi_set(by));
}
typedef struct table16 {
    __m256 low, high;
} table16;
SHEAF__INLINE table16 table_load(const void *of)
{
    return (table16){ _mm256_loadu_ps(of), _mm256_loadu_ps((const float *)of + 8) };
}
SHEAF__INLINE __m256 lookup_half(table16 of, __m256i index)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(of.low, index),
                            _mm256_permutevar8x32_ps(of.high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
SHEAF__INLINE vec v_lookup(table16 of, veci index)
{
    return (vec){ lookup_half(of, index.a), lookup_half(of, index.b) };
}
SHEAF__INLINE vec v_gather(const float *of, veci index)
{
    return (vec){ _mm256_i32gather_ps(of, index.a, 4), _mm256_i32gather_ps(of, index.b, 4) };
}

#endif

/* ---- numbers to codes ---- */

float SHEAF__FAST(largest)(const float *x, int64_t n)
{
    const veci size = vi_set(0x7fffffff);
    veci most = vi_set(0);
    V_EACH(i, n, most = vi_max(most, vi_and(v_bits(v_load(x + i, count)), size)));
    uint32_t lane[16], largest = 0;
    vi_store(lane, most);
    for (int i = 0; i < 16; i++)
        largest = lane[i] > largest ? lane[i] : largest;
    return sheaf__one_nan(sheaf__float(largest));
}

/* The index among thresholds by halves, as they ascend. */
SHEAF__INLINE void find_codes(uint8_t *codes, const float *x, vec by, table16 thresholds,
                              float middle, __m128i order, bool divide, int64_t count)
{
    const vec value = v_load(x, count), y = divide ? v_div(value, by) : v_mul(value, by);
    veci index = vi_above(y, v_set(middle), 8);
    for (uint32_t half = 4; half > 0; half /= 2)
        index =
            vi_add(index, vi_above(y, v_lookup(thresholds, vi_add(index, vi_set(half - 1))), half));
    store_codes(codes, _mm_shuffle_epi8(order, vi_to_bytes(index)), count);
}

void SHEAF__FAST(codes4)(uint8_t *codes, const float *x, int64_t n, float by, bool divide,
                         sheaf__codes kind)
{
    static const uint8_t as_is[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    const bool nf4 = kind == SHEAF__NF4;
    const float *thresholds = nf4 ? sheaf__nf4_thresholds : sheaf__fp4_thresholds;
    const table16 table = table_load(thresholds);
    const __m128i order = _mm_loadu_si128((const __m128i *)(nf4 ? as_is : sheaf__fp4_order));
    const float middle = thresholds[7];
    if (divide)
        V_EACH(i, n, find_codes(codes + i, x + i, v_set(by), table, middle, order, true, count));
    else
        V_EACH(i, n, find_codes(codes + i, x + i, v_set(by), table, middle, order, false, count));
}

SHEAF__INLINE void search_codes(uint8_t *codes, const float *x, vec by, const uint8_t *search,
                                int64_t count)
{
    const vec one = v_set(1), y = v_larger(v_mul(v_load(x, count), by), v_set(-1));
    const vec half = v_mul(v_add(v_min(y, one), one), v_set(0.5f));
    uint32_t at[16];
    vi_store(at, vi_toward_zero(v_fma(half, v_set(65535), v_set(0.5f))));
    for (int64_t i = 0; i < count; i++)
        codes[i] = search[at[i]];
}

float SHEAF__FAST(codes8)(uint8_t *codes, const float *x, int64_t n, const uint8_t *search)
{
    const float largest = SHEAF__FAST(largest)(x, n);
    if (largest == 0)
        memset(codes, 0, (size_t)n);
    else
        V_EACH(i, n, search_codes(codes + i, x + i, v_set(1.0f / largest), search, count));
    return largest;
}

void SHEAF__FAST(codes_int8)(uint8_t *codes, const float *x, int64_t n, float by)
{
    /* A NaN becomes 0x80000000, of which a zero is stored. */
    V_EACH(i, n,
           store_codes(codes + i, vi_to_bytes(vi_nearest(v_mul(v_load(x + i, count), v_set(by)))),
                       count));
}

/* ---- codes to numbers ---- */

SHEAF__INLINE vec v_f8(veci code)
{
    const veci size = vi_and(code, vi_set(0x7f)), sign = vi_left(vi_and(code, vi_set(0x80)), 24);
    const vec small = v_mul(v_of_int(size), v_set(0x1p-9f));
    const vec large = v_float(vi_add(vi_left(size, 20), vi_set(0x3c000000)));
    const vec value = v_select(vi_at_least(size, vi_set(8)), large, small);
    return v_select(vi_at_least(size, vi_set(0x7f)), v_float(vi_set(SHEAF__NAN_BITS)),
                    v_float(vi_xor(v_bits(value), sign)));
}

SHEAF__INLINE vec v_value(veci code, sheaf__codes kind, table16 table, veci zero)
{
    if (kind == SHEAF__NF4)
        return v_lookup(table, code);
    if (kind == SHEAF__INT4)
        return v_of_int(vi_sub(code, zero));
    return kind == SHEAF__INT8 ? v_of_int(vi_right_signed(vi_left(code, 24), 24)) : v_f8(code);
}

SHEAF__INLINE void values_as(float *y, const uint8_t *codes, int64_t n, sheaf__codes kind,
                             float scale, int zero, const float *table)
{
    const table16 all = table_load(table);
    const vec by = v_set(scale);
    const veci off = vi_set((uint32_t)zero);
    V_EACH(i, n,
           v_store(y + i,
                   v_one_nan(
                       v_mul(v_value(vi_bytes(load_codes(codes + i, count)), kind, all, off), by)),
                   count));
}

void SHEAF__FAST(values)(float *y, const uint8_t *codes, int64_t n, sheaf__codes kind, float scale,
                         int zero)
{
    const float *numbers = sheaf__code_numbers(kind);
    if (kind == SHEAF__INT4)
        values_as(y, codes, n, SHEAF__INT4, scale, zero, numbers);
    else if (kind == SHEAF__INT8)
        values_as(y, codes, n, SHEAF__INT8, scale, 0, numbers);
    else if (kind == SHEAF__F8_E4M3)
        values_as(y, codes, n, SHEAF__F8_E4M3, scale, 0, numbers);
    else
        values_as(y, codes, n, SHEAF__NF4, scale, 0, numbers); /* any table */
}

void SHEAF__FAST(values8)(float *y, const uint8_t *codes, int64_t n, float absmax,
                          const float map[256])
{
    V_EACH(i, n,
           v_store(y + i,
                   v_one_nan(
                       v_mul(v_gather(map, vi_bytes(load_codes(codes + i, count))), v_set(absmax))),
                   count));
}
