/* reduce_fast.c - reduce_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/each.h"

/* Eight of the sixteen lanes each; the square is exact, so fma rounds like the sum. */
#ifdef __AVX512F__
typedef __m512d lanes8;
SHEAF__INLINE lanes8 squares8(const float *x, lanes8 sum)
{
    const __m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    return _mm512_fmadd_pd(v, v, sum);
}
SHEAF__INLINE lanes8 zero8(void)
{
    return _mm512_setzero_pd();
}
SHEAF__INLINE void store8(double *to, lanes8 x)
{
    _mm512_storeu_pd(to, x);
}
#else
typedef struct {
    __m256d a, b;
} lanes8;
SHEAF__INLINE lanes8 squares8(const float *x, lanes8 sum)
{
    const __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x)), w = _mm256_cvtps_pd(_mm_loadu_ps(x + 4));
    return (lanes8){ _mm256_fmadd_pd(v, v, sum.a), _mm256_fmadd_pd(w, w, sum.b) };
}
SHEAF__INLINE lanes8 zero8(void)
{
    return (lanes8){ _mm256_setzero_pd(), _mm256_setzero_pd() };
}
SHEAF__INLINE void store8(double *to, lanes8 x)
{
    _mm256_storeu_pd(to, x.a);
    _mm256_storeu_pd(to + 4, x.b);
}
#endif

double SHEAF__FAST(squares)(const float *x, int64_t n)
{
    double lane[16];
    lanes8 low = zero8(), high = zero8();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        low = squares8(x + i, low);
        high = squares8(x + i + 8, high);
    }
    store8(lane, low);
    store8(lane + 8, high);
    for (; i < n; i++)
        lane[i % 16] += (double)x[i] * (double)x[i];
    return sheaf__lanes_join_d(lane);
}

/* Four rows in one pass over a strip of partial sums that stays in the first cache. */
#define STRIP 1024

SHEAF__INLINE void add_rows(float *sum, const void *x, int64_t ldx, int64_t row, int64_t rows,
                            int64_t c, int64_t to, int64_t count, sheaf_dtype dtype)
{
    vec s = v_load(sum + to, count);
    for (int64_t r = row; r < row + rows; r++)
        s = v_add(s, v_read(x, r * ldx + c, count, dtype));
    v_store(sum + to, s, count);
}

SHEAF__INLINE void add_strip(float *sum, const void *x, int64_t ldx, int64_t row, int64_t rows,
                             int64_t c, int64_t cols, sheaf_dtype dtype)
{
    V_EACH(to, cols, add_rows(sum, x, ldx, row, rows, c + to, to, count, dtype));
}

SHEAF__INLINE void column_sums(float *out, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                               sheaf_dtype dtype)
{
    float sum[STRIP];
    for (int64_t block = 0; block < rows; block += 256)
        for (int64_t c = 0; c < cols; c += STRIP) {
            const int64_t end = rows - block < 256 ? rows : block + 256;
            const int64_t width = cols - c < STRIP ? cols - c : STRIP;
            memset(sum, 0, sizeof sum);
            V_FOURS(r, block, end, add_strip(sum, x, ldx, r, side, c, width, dtype));
            SHEAF__FAST(add)(out + c, out + c, sum, width);
        }
}

void SHEAF__FAST(column_sums)(float *out, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                              sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, column_sums(out, x, ldx, rows, cols, of));
}
