/* attention_avx2.c - the attention kernels with 16 lanes in two registers.
 *
 * There is no pair instruction: a pair is two fused multiply-adds, odd element
 * first. bfloat16 widened by a shift is a float, so this is exact; DAZ and FTZ
 * do what the instruction does by itself. */
#include <immintrin.h>

#include "ops/attention/attention_parts.h"

typedef struct v16 {
    __m256 a, b;
} v16;
typedef struct w16 {
    __m256i a, b;
} w16;
typedef v16 seen16; /* all bits of a lane, or none */

static inline v16 v_load(const float *x) { return (v16){ _mm256_loadu_ps(x), _mm256_loadu_ps(x + 8) }; }
static inline void v_store(float *x, v16 v)
{
    _mm256_storeu_ps(x, v.a);
    _mm256_storeu_ps(x + 8, v.b);
}
static inline v16 v_set(float x) { return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
#define V_BOTH(name, f) \
    static inline v16 name(v16 x, v16 y) { return (v16){ f(x.a, y.a), f(x.b, y.b) }; }
V_BOTH(v_add, _mm256_add_ps)
V_BOTH(v_sub, _mm256_sub_ps)
V_BOTH(v_mul, _mm256_mul_ps)
V_BOTH(v_div, _mm256_div_ps)
/* x > y ? x : y, which is y when either is NaN */
V_BOTH(v_max, _mm256_max_ps)
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}

static inline w16 w_load(const void *x)
{
    const __m256i *p = x;
    return (w16){ _mm256_loadu_si256(p), _mm256_loadu_si256(p + 1) };
}
static inline void w_store(void *x, w16 w)
{
    __m256i *p = x;
    _mm256_storeu_si256(p, w.a);
    _mm256_storeu_si256(p + 1, w.b);
}
static inline w16 w_set(uint32_t x) { return (w16){ _mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x) }; }
#define W_BOTH(name, f) \
    static inline w16 name(w16 x, w16 y) { return (w16){ f(x.a, y.a), f(x.b, y.b) }; }
W_BOTH(w_add, _mm256_add_epi32)
W_BOTH(w_and, _mm256_and_si256)
W_BOTH(w_or, _mm256_or_si256)
W_BOTH(w_greater, _mm256_cmpgt_epi32)
W_BOTH(w_without, _mm256_andnot_si256) /* y without the bits of x */
static inline bool w_any(w16 x) { const __m256i or = _mm256_or_si256(x.a, x.b); return !_mm256_testz_si256(or, or); }
static inline v16 as_floats(w16 x) { return (v16){ _mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b) }; }
static inline w16 as_words(v16 x) { return (w16){ _mm256_castps_si256(x.a), _mm256_castps_si256(x.b) }; }
static inline w16 w_left(w16 x, int bits) { return (w16){ _mm256_slli_epi32(x.a, bits), _mm256_slli_epi32(x.b, bits) }; }
static inline w16 w_right(w16 x, int bits) { return (w16){ _mm256_srli_epi32(x.a, bits), _mm256_srli_epi32(x.b, bits) }; }

/* lanes with first <= j <= last */
static inline seen16 between(w16 first, w16 j, w16 last)
{
    return as_floats(w_without(w_or(w_greater(first, j), w_greater(j, last)), w_set(UINT32_MAX)));
}
#define COMPARE(x, y, how) ((v16){ _mm256_cmp_ps(x.a, y.a, how), _mm256_cmp_ps(x.b, y.b, how) })
static inline seen16 below(v16 x, v16 y) { return COMPARE(x, y, _CMP_LT_OQ); }
static inline seen16 is_zero(v16 x) { return COMPARE(x, v_set(0), _CMP_EQ_OQ); }
static inline seen16 is_nan(v16 x) { return COMPARE(x, x, _CMP_UNORD_Q); }
static inline v16 pick(seen16 seen, v16 x, v16 other)
{
    return (v16){ _mm256_blendv_ps(other.a, x.a, seen.a), _mm256_blendv_ps(other.b, x.b, seen.b) };
}
/* y * 2^n for results that are normal numbers; shifted = n + 0x1.8p23. A NaN has to be
 * spared: its low bits would be added to its exponent. */
static inline v16 v_scale(v16 y, v16 n, v16 shifted)
{
    (void)n;
    return pick(is_nan(y), y, as_floats(w_add(as_words(y), w_left(as_words(shifted), 23))));
}

/* 16 floats, none denormal, rounded to bfloat16, each in the low half of its word; a NaN
 * that comes here has the low half of its bits clear, or its high bits do not carry */
static inline w16 halves(v16 x)
{
    const w16 bits = as_words(pick(is_nan(x), as_floats(w_set(0x7fc00000)), x));
    const w16 odd = w_and(w_right(bits, 16), w_set(1));
    return w_right(w_add(bits, w_add(odd, w_set(0x7fff))), 16);
}
static inline w16 pair(w16 even, w16 odd) { return w_or(even, w_left(odd, 16)); }
static inline void store_halves(uint16_t *x, w16 low)
{
    const __m256i mixed = _mm256_packus_epi32(low.a, low.b);
    _mm256_storeu_si256((void *)x, _mm256_permute4x64_epi64(mixed, 0xd8));
}
static inline w16 load_halves(const uint16_t *x)
{
    return (w16){ _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)),
                  _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(x + 8))) };
}
static inline v16 widen(w16 low) { return as_floats(w_left(low, 16)); }

#include "ops/attention/attention_tile.h"

#define TILE_PANELS 1
#define TILE_ROWS 6

static inline __attribute__((always_inline)) void run(const tile *t, const int rows,
                                                      const int panels, const bool pairs)
{
    v16 c[TILE_ROWS];
    const uint32_t *b = t->b;
    const char *a = t->a;
    const w16 high = w_set(0xffff0000u);
    (void)panels;
    UNROLL for (int r = 0; r < rows; r++)
        c[r] = v_set(0);
    for (int64_t k = 0; k < t->steps; k++, a += t->a_step, b += 16) {
        const w16 bk = w_load(b);
        if (!pairs) {
            UNROLL for (int r = 0; r < rows; r++)
                c[r] = v_fma(v_set(word_at(a + r * t->a_row)), as_floats(bk), c[r]);
            continue;
        }
        const v16 odd = as_floats(w_and(bk, high)), even = as_floats(w_left(bk, 16));
        UNROLL for (int r = 0; r < rows; r++) {
            uint16_t half[2];
            memcpy(half, a + r * t->a_row, sizeof half);
            c[r] = v_fma(v_set(sheaf__from_bf16(half[1])), odd, c[r]);
            c[r] = v_fma(v_set(sheaf__from_bf16(half[0])), even, c[r]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        float *to = t->c + r * t->c_row;
        v_store(to, t->add ? v_add(v_load(to), c[r]) : v_mul(v_set(t->scale), c[r]));
    }
}

#define EACH_TILE(X, pairs) \
    X(1, 1, pairs) X(2, 1, pairs) X(3, 1, pairs) X(4, 1, pairs) X(5, 1, pairs) X(6, 1, pairs)
static inline int tile_rows(int panels) { (void)panels; return TILE_ROWS; }

#define TABLE sheaf__attention_avx2
#include "ops/attention/attention_kernel.h"
