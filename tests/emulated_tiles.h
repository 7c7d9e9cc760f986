/* emulated_tiles.h - what the tile unit does, in memory, by the rule of docs/contract.md, in place
 * of the instructions that our kernels use; their tiles have 16 rows of 64 bytes. A build with
 * -Dtile_unit=emulated includes it first, and tests those kernels on any processor with AVX-512 and
 * BF16, and sanitizers see what they read and write. MXCSR must flush denormals, as compute threads
 * have it. */
#pragma once

#if defined __AMX_BF16__ || defined __AMXBF16__ /* gcc, clang 14 */

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef union emulated_tile {
    float sum[16][16];
    uint32_t word[16][16];
} emulated_tile;

static _Thread_local emulated_tile emulated[8];
static _Thread_local bool emulated_ready;

/* An instruction without a configuration is a fault. */
static inline emulated_tile *emulated_at(int tile)
{
    if (!emulated_ready)
        abort();
    return &emulated[tile];
}

static inline void emulated_load(int tile, const void *from, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy(emulated_at(tile)->word[r], (const char *)from + r * stride, 64);
}

static inline void emulated_store(int tile, void *to, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy((char *)to + r * stride, emulated_at(tile)->word[r], 64);
}

static inline void emulated_product(int to, int tile_a, int tile_b)
{
    const emulated_tile *a = emulated_at(tile_a), *b = emulated_at(tile_b);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    for (int r = 0; r < 16; r++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int q = 0; q < 16; q++) {
            const __m512i x = _mm512_set1_epi32((int)a->word[r][q]),
                          y = _mm512_loadu_si512(b->word[q]);
            even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                   _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), even);
            odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                                  _mm512_castsi512_ps(_mm512_and_si512(y, upper)), odd);
        }
        float *sum = emulated_at(to)->sum[r];
        _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), _mm512_add_ps(even, odd)));
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ((void)(config), (void)(emulated_ready = true))
#define _tile_release() ((void)(emulated_ready = false))
#define _tile_zero(tile) ((void)memset(emulated_at(tile), 0, sizeof(emulated_tile)))
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_dpbf16ps(to, a, b) emulated_product(to, a, b)

#endif
