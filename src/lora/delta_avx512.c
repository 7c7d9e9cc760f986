/* delta_avx512.c - the product of delta.h, sixteen columns a register. Built for AVX-512F; the same
 * chains, so the same bits. */
#include "lora/delta.h"

#include <immintrin.h>
#include <string.h>

#include "base/unroll.h"

enum { PANEL = 16, STRIP = 12 }; /* columns and rows of one tile of registers */

/* rows <= STRIP; each register is one chain of `rank` steps. */
static inline __attribute__((always_inline)) void strip(float *d, int64_t cols, const float *b,
                                                        const float *panel, int64_t rank, int rows,
                                                        __mmask16 mask)
{
    __m512 tile[STRIP];
    UNROLL for (int i = 0; i < rows; i++) tile[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < rank; k++, panel += PANEL) {
        const __m512 a = _mm512_loadu_ps(panel);
        UNROLL for (int i = 0; i < rows; i++) tile[i] =
            _mm512_fmadd_ps(_mm512_set1_ps(b[i * rank + k]), a, tile[i]);
    }
    UNROLL for (int i = 0; i < rows; i++, d += cols) _mm512_mask_storeu_ps(d, mask, tile[i]);
}

void sheaf__lora_delta_avx512(float *d, const float *b, const float *packed, int64_t rows,
                              int64_t cols, int64_t rank, int64_t block)
{
    if (block > 0 && block < rank) { /* PEFT's sums of chains, above rank 192 only */
        sheaf__lora_delta(d, b, packed, rows, cols, rank, block);
        return;
    }
    for (int64_t j = 0; j < cols; j += PANEL, packed += PANEL * rank) {
        const __mmask16 mask = cols - j < PANEL ? (__mmask16)((1u << (cols - j)) - 1) : 0xffff;
        int64_t i = 0;
        for (; i + STRIP <= rows; i += STRIP)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, STRIP, mask);
        for (; i + 4 <= rows; i += 4)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, 4, mask);
        for (; i < rows; i++)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, 1, mask);
    }
}

sheaf__lora_product *sheaf__lora_delta_for(const char *isa)
{
    return strcmp(isa, "avx512") == 0 ? sheaf__lora_delta_avx512 : sheaf__lora_delta;
}
