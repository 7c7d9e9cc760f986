/* delta.c - see delta.h. Built for AVX2 and FMA. */
#include "lora/delta.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { PANEL = 16, STRIP = 6 }; /* columns and rows of one tile of registers */

static float chain(const float *b, const float *a, int64_t cols, int64_t begin, int64_t end)
{
    float sum = 0;
    for (int64_t k = begin; k < end; k++)
        sum = fmaf(b[k], a[k * cols], sum);
    return sum;
}

static int64_t block_of(int64_t rank, int64_t block)
{
    return block > 0 && block < rank ? block : rank;
}

int64_t sheaf__lora_mkl_block(int64_t rank)
{
    return rank <= 192 ? rank : rank < 384 ? rank / 2 : 192;
}

void sheaf__lora_delta_ref(float *d, const float *b, const float *a, int64_t rows, int64_t cols,
                           int64_t rank, int64_t block)
{
    const int64_t width = block_of(rank, block);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = chain(b + i * rank, a + j, cols, 0, width);
            for (int64_t k = width; k < rank; k += width)
                sum += chain(b + i * rank, a + j, cols, k, k + width < rank ? k + width : rank);
            d[i * cols + j] = sum;
        }
}

int64_t sheaf__lora_packed_floats(int64_t rank, int64_t cols)
{
    return (cols + PANEL - 1) / PANEL * PANEL * rank;
}

void sheaf__lora_pack(float *packed, const float *a, int64_t rank, int64_t cols)
{
    for (int64_t j = 0; j < cols; j += PANEL)
        for (int64_t k = 0; k < rank; k++, packed += PANEL) {
            const int64_t n = cols - j < PANEL ? cols - j : PANEL;
            memcpy(packed, a + k * cols + j, (size_t)n * sizeof *a);
            memset(packed + n, 0, (size_t)(PANEL - n) * sizeof *a);
        }
}

/* One chain of `rank` steps for `rows` <= STRIP rows: tile[row][PANEL]. */
static inline __attribute__((always_inline)) void tile_chain(__m256 tile[STRIP][2], const float *b, int64_t ldb,
                                                             const float *panel, int64_t rank, int rows)
{
    for (int i = 0; i < rows; i++)
        tile[i][0] = tile[i][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < rank; k++, panel += PANEL) {
        const __m256 a0 = _mm256_loadu_ps(panel), a1 = _mm256_loadu_ps(panel + 8);
        for (int i = 0; i < rows; i++) {
            const __m256 bk = _mm256_broadcast_ss(b + i * ldb + k);
            tile[i][0] = _mm256_fmadd_ps(bk, a0, tile[i][0]);
            tile[i][1] = _mm256_fmadd_ps(bk, a1, tile[i][1]);
        }
    }
}

static inline __attribute__((always_inline)) void strip(float *d, int64_t cols, const float *b, const float *panel,
                                                        int64_t rank, int64_t block, int rows, int64_t width)
{
    __m256 tile[STRIP][2], more[STRIP][2];
    tile_chain(tile, b, rank, panel, block, rows);
    for (int64_t k = block; k < rank; k += block) {
        tile_chain(more, b + k, rank, panel + k * PANEL, k + block < rank ? block : rank - k, rows);
        for (int i = 0; i < rows; i++) {
            tile[i][0] = _mm256_add_ps(tile[i][0], more[i][0]);
            tile[i][1] = _mm256_add_ps(tile[i][1], more[i][1]);
        }
    }
    for (int i = 0; i < rows; i++, d += cols) {
        if (width == PANEL) {
            _mm256_storeu_ps(d, tile[i][0]);
            _mm256_storeu_ps(d + 8, tile[i][1]);
        } else {
            float edge[PANEL];
            _mm256_storeu_ps(edge, tile[i][0]);
            _mm256_storeu_ps(edge + 8, tile[i][1]);
            memcpy(d, edge, (size_t)width * sizeof *d);
        }
    }
}

void sheaf__lora_delta(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                       int64_t rank, int64_t block)
{
    const int64_t each = block_of(rank, block);
    for (int64_t j = 0; j < cols; j += PANEL, packed += PANEL * rank) {
        const int64_t width = cols - j < PANEL ? cols - j : PANEL;
        int64_t i = 0;
        for (; i + STRIP <= rows; i += STRIP)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, each, STRIP, width);
        for (; i < rows; i++)
            strip(d + i * cols + j, cols, b + i * rank, packed, rank, each, 1, width);
    }
}

void sheaf__lora_add(float *w, const float *d, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = d[i] * scale; /* -ffp-contract=off: rounded before the sum */
        w[i] += scaled;
    }
}
