/* matmul_isa.c - which kernel computes which dtype, in which order, on which instruction set. */
#include "ops/matmul/matmul_private.h"

/* The kernels compiled for `isa`, whose tiles have `most` rows; `words` between rows of A. */
#define ENGINE(isa, words, most) ENGINE_OF(isa, words, most, isa##_values)
#define ENGINE_OF(isa, words, most, of_codes)                                                      \
    .run = mm_run_##isa, .copy = mm_copy_##isa, .stride = (words), .rows = (most),                 \
    .values = (of_codes)
#define avx2_values mm_values_avx2
#define avx2tiles_values mm_values_avx2
#define avx512_values mm_values_avx512
#define avx512tiles_values mm_values_avx512
#define avx512stream_values mm_values_avx512bf16
#define avx512bf16_values mm_values_avx512bf16
/* bfloat16 as float32 steps: of few rows in pairs. */
#define SPREAD(tile_rows, product_rows)                                                            \
    .spread = true, .few = (tile_rows), .most_in_pairs = (product_rows)
/* Codes in groups. */
#define TAKES(tile_rows, product_rows)                                                             \
    .groups = true, .takes = (tile_rows), .most_taken = (product_rows)
#define CODES(product_rows) .codes = (product_rows), .expand = mm_expand_avx512

static const mm_engine avx2_f32 = { ENGINE(avx2, MM_STRIDE_F32, 6), .direct = 6, .lanes = 8,
                                    .outer = mm_outer_avx2, .outer_rows = 6 };
static const mm_engine avx2_pairs = { ENGINE(avx2, MM_STRIDE_F32, 6), SPREAD(2, 24), TAKES(4, 12) };
static const mm_engine avx2_tiles = { ENGINE(avx2tiles, MM_STRIDE_F32, 3), SPREAD(2, 24),
                                      TAKES(2, 4) };
static const mm_engine avx2_f16 = { ENGINE(avx2, MM_STRIDE_F32, 6) };
#ifndef SHEAF_NO_X86
/* Ten rows where A is read in place: rows a power of two apart share a set of an eight-way
 * first-level cache, and eight chains are the least that fill two pipes. */
#define OUTER_512 .direct = 10, .lanes = 16, .outer = mm_outer_avx512, .outer_rows = 16
static const mm_engine avx512_f32 = { ENGINE(avx512, MM_STRIDE_F32, 14), OUTER_512 };
/* For processors with a fast vdpbf16ps, as Zen 4: see ONE_PANEL. Asking for a stretch ahead would
 * only keep the processor from finding it (decoding by one thread: 24 GB/s with, 31 without). */
static const mm_engine avx512_stream = { ENGINE(avx512stream, MM_STRIDE_F32, 14), OUTER_512,
                                         .most_unasked = 14 };
static const mm_engine avx512_f16 = { ENGINE(avx512, MM_STRIDE_F32, 14) };
#define SPREAD_512 SPREAD(8, 128), CODES(4), TAKES(8, 8)
static const mm_engine avx512_spread = { ENGINE(avx512, MM_STRIDE_F32, 14), SPREAD_512 };
static const mm_engine avx512_pairs = { ENGINE(avx512bf16, MM_STRIDE_PAIRS, 14), .direct = 12,
                                        .most_unasked = 14, TAKES(8, 8), CODES(4) };
#define TILES_512 SPREAD(3, 48), CODES(3), TAKES(3, 6)
static const mm_engine avx512_tiles = { ENGINE(avx512tiles, MM_STRIDE_F32, 7), TILES_512 };
/* Where vdpbf16ps is slow or not the order, the instruction that rounds is fast all the same. */
static const mm_engine amx_spread = { ENGINE_OF(avx512, MM_STRIDE_F32, 14, mm_values_avx512bf16),
                                      SPREAD_512 };
static const mm_engine amx_few = { ENGINE_OF(avx512tiles, MM_STRIDE_F32, 7, mm_values_avx512bf16),
                                   TILES_512 };
/* Sums of 512 rows and columns and a stretch of B stay in a second-level cache of 2 MB: one thread
 * is slower with 1024 rows. More threads have areas of no more anyway. */
static const mm_engine amx_tiles = { .run = mm_run_amx,
                                     .copy = mm_copy_avx512bf16,
                                     .stride = MM_STRIDE_PAIRS,
                                     .wide = MM_STRIDE_WIDE,
                                     .rows = 32,
                                     .area_rows = 512,
                                     .pad = MM_CHUNK / 2,
                                     .enter = mm_enter_amx,
                                     .leave = mm_leave_amx,
                                     .end = mm_end_amx,
                                     .values = mm_values_avx512bf16,
                                     .groups = true,
                                     CODES(0) };
#endif

/* The orders of tensor cores: bands of as many rows as share what it takes to bring B. */
#define MMA_ENGINE(isa, order)                                                                     \
    {                                                                                              \
        .run = mm_run_##order##_##isa##mma, .copy = mm_copy_##isa, .stride = MM_STRIDE_PAIRS,      \
        .rows = 32, .area_rows = 512, .mma = true, .expand = isa##_expand,                         \
        .values = mm_values_##isa                                                                  \
    }
#define avx2_expand NULL
#define avx512_expand mm_expand_avx512
static const mm_engine avx2_mma[2][2] = {
    { MMA_ENGINE(avx2, mma8_bf16), MMA_ENGINE(avx2, mma8_f16) },
    { MMA_ENGINE(avx2, mma16_bf16), MMA_ENGINE(avx2, mma16_f16) }
};
#ifndef SHEAF_NO_X86
static const mm_engine avx512_mma[2][2] = {
    { MMA_ENGINE(avx512, mma8_bf16), MMA_ENGINE(avx512, mma8_f16) },
    { MMA_ENGINE(avx512, mma16_bf16), MMA_ENGINE(avx512, mma16_f16) }
};
#endif
#define MMA(of)                                                                                    \
    {                                                                                              \
        { &of[0][0], &of[0][1] },                                                                  \
        {                                                                                          \
            &of[1][0], &of[1][1]                                                                   \
        }                                                                                          \
    }

const mm_isa sheaf__mm_ref = { .name = "ref" };
const mm_isa sheaf__mm_avx2 = { "avx2",      &avx2_f32, &avx2_f16,    &avx2_pairs,
                                &avx2_tiles, NULL,      MMA(avx2_mma) };
#ifndef SHEAF_NO_X86
const mm_isa sheaf__mm_avx512 = { "avx512",      &avx512_f32, &avx512_f16,    &avx512_spread,
                                  &avx512_tiles, NULL,        MMA(avx512_mma) };
const mm_isa sheaf__mm_avx512bf16 = { "avx512bf16",  &avx512_stream, &avx512_f16,    &avx512_pairs,
                                      &avx512_tiles, NULL,           MMA(avx512_mma) };
const mm_isa sheaf__mm_amx = { "amx",      &avx512_f32, &avx512_f16,    &amx_spread,
                               &amx_tiles, &amx_few,    MMA(avx512_mma) };
static const mm_isa amx_pairs = { "amx",      &avx512_f32, &avx512_f16,    &avx512_pairs,
                                  &amx_tiles, &amx_few,    MMA(avx512_mma) };

const mm_isa *sheaf__mm_isa_for(const char *isa, sheaf__units units)
{
    if (strcmp(isa, "avx2") == 0)
        return &sheaf__mm_avx2;
    if (strcmp(isa, "avx512") != 0)
        return &sheaf__mm_ref;
    if (units.tiles)
        return units.pairs ? &amx_pairs : &sheaf__mm_amx;
    return units.pairs ? &sheaf__mm_avx512bf16 : &sheaf__mm_avx512;
}
#else
const mm_isa *sheaf__mm_isa_for(const char *isa, sheaf__units units)
{
    return strcmp(isa, "avx2") == 0 ? &sheaf__mm_avx2 : &sheaf__mm_ref;
}
#endif

int64_t sheaf__packed_few(const sheaf__device *device)
{
    const mm_isa *isa = sheaf__mm_isa_for(device->kernels->isa, device->units);
    const mm_engine *engine = mm_engine_for(isa, SHEAF_BF16, device->sums, 1);
    return engine == NULL || !device->planned->shared ? 0 : engine->codes;
}
