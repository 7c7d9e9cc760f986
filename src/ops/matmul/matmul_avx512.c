/* matmul_avx512.c - register tiles of 14 x 32 float32, and of 16 x 16 for outer products. */
#include "ops/matmul/matmul_vec512.h"

#define NAME(x) x##_avx512
#define STRIDE MM_STRIDE_F32
#define TILES_OF_PAIRS                                                                             \
    PAIRS(1, 8)                                                                                    \
    PAIRS(2, 8) PAIRS(3, 4) PAIRS(4, 4) PAIRS(5, 4) PAIRS(6, 4) PAIRS(7, 2) PAIRS(8, 2)
#define PAIRS_OF(rows, wide) PAIRS_ROW(rows, wide)
#define STEP(acc, a, b) _mm512_fmadd_ps(a, b, acc)
#define CODES(f) f(1) f(2) f(3) f(4)
#define TAKEN(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)

#include "ops/matmul/matmul_kernel.h"

/* sheaf__mm_expand() by the vectors of matmul_codes.h. */
void mm_expand_avx512(uint32_t *to, const uint32_t *box, const mm_code *code, int64_t steps)
{
    const __m512i exponents = exponents_of(code);
    for (int64_t s = 0; s < steps; s += 2, box += MM_CODE_WORDS) {
        __m512i w[4];
        expand_unit(w, box, exponents);
        const int vectors = s + 1 < steps ? 4 : 2;
        for (int i = 0; i < vectors; i++)
            _mm512_storeu_si512(to + s * MM_PANEL + i * LANES, w[i]);
    }
    mm_put_rare(to, code);
}

#define OUTER_ROWS 16
/* clang-format off */
#define OUTER_TILES \
    OUTER(1, 4) OUTER(2, 4) OUTER(3, 4) OUTER(4, 4) OUTER(5, 2) OUTER(6, 2) OUTER(7, 2) OUTER(8, 2) \
    OUTER(9, 1) OUTER(10, 1) OUTER(11, 1) OUTER(12, 1) OUTER(13, 1) OUTER(14, 1) OUTER(15, 1) OUTER(16, 1) \
    static const outer_row outer_tiles[OUTER_ROWS] = { \
        OUTER_ROW(1, 4), OUTER_ROW(2, 4), OUTER_ROW(3, 4), OUTER_ROW(4, 4), \
        OUTER_ROW(5, 2), OUTER_ROW(6, 2), OUTER_ROW(7, 2), OUTER_ROW(8, 2), \
        OUTER_ROW(9, 1), OUTER_ROW(10, 1), OUTER_ROW(11, 1), OUTER_ROW(12, 1), \
        OUTER_ROW(13, 1), OUTER_ROW(14, 1), OUTER_ROW(15, 1), OUTER_ROW(16, 1) };
/* clang-format on */

#include "ops/matmul/matmul_outer.h"
