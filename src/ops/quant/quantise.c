/* quantise.c - see quantise.h.
 *
 * What computes in another floating-point mode is a function that is not inlined: a compiler does
 * not know that the mode matters. */
#include "ops/quant/quantise.h"

#include <math.h>

#include "base/thread.h"
#include "ops/kernels.h"

enum { CHUNK = 4096, NESTED = 256 };

static const sheaf__kernels *best(void)
{
    return sheaf__kernels_for(NULL);
}

/* ---- 4 bits ---- */

static __attribute__((noinline)) void quantise4(uint8_t *codes, float *absmax, const void *x,
                                                sheaf_dtype from, int64_t n, int64_t block,
                                                sheaf__codes kind)
{
    const sheaf__kernels *k = best();
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += block, absmax++) {
        const int64_t count = n - i < block ? n - i : block;
        const float *values = (const float *)x + i;
        if (from != SHEAF_F32) {
            k->widen(wide, (const uint16_t *)x + i, from, count);
            values = wide;
        }
        float largest = k->largest(values, count);
        if (count == block) {
            *absmax = largest;
            k->codes4(codes + i, values, count, 1.0f / (largest < 1e-38f ? 1e-38f : largest), false,
                      kind);
        } else {
            *absmax = largest < 1e-38f ? 1e-38f : largest;
            k->codes4(codes + i, values, count, *absmax, true, kind);
        }
    }
}

void sheaf__quantise4(uint8_t *codes, float *absmax, const void *x, sheaf_dtype from, int64_t n,
                      int64_t block, sheaf__codes kind)
{
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    quantise4(codes, absmax, x, from, n, block, kind);
    sheaf__mode_set(before);
}

/* ---- 8 bits by blocks ---- */

/* torch.linspace(0.1, 1, n)[k] in float32: from the nearer end, fused. */
static float between(int64_t k, int64_t n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf((float)k, step, 0.1f) : fmaf(-(float)(n - 1 - k), step, 1.0f);
}

void sheaf__dynamic_map(float map[256], bool is_signed)
{
    static const double power[] = { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1 };
    /* The middles of 2^i or 2^(i + 1) equal parts of [0.1, 1], ascending with i, too. */
    float *up = map + (is_signed ? 128 : 1), *down = map + 126;
    for (int i = 0; i < 7; i++) {
        const int64_t parts = INT64_C(1) << (is_signed ? i : i + 1);
        for (int64_t k = 0; k < parts; k++) {
            const float middle = (between(k, parts + 1) + between(k + 1, parts + 1)) / 2.0f;
            *up = middle * (float)power[i];
            if (is_signed)
                *down-- = -*up;
            up++;
        }
    }
    map[is_signed ? 127 : 0] = 0;
    map[255] = 1;
}

void sheaf__map8_init(sheaf__map8 *map, bool is_signed)
{
    sheaf__dynamic_map(map->value, is_signed);
    for (int32_t place = 0; place < 65536; place++)
        map->code[place] = sheaf__map8_at(map->value, place);
}

/* ---- doubled scales ---- */

enum { LANES = 8, FOURS = 4, LEVELS = 4 };

static void add_lanes(float *to, const float *x, int width)
{
    for (int i = 0; i < width; i++)
        to[i] += x[i];
}

/* torch's cascade of sums: `vectors` times `width` numbers to `width` sums. Of every four vectors
 * each has sums of its own, which go up a level after 2^power of them. */
static void cascade(float *sum, const float *x, int64_t vectors, int width)
{
    const int64_t fours = vectors / FOURS;
    int power = 0;
    while ((INT64_C(1) << power) < fours)
        power++;
    power = power / LEVELS > 4 ? power / LEVELS : 4;
    const int64_t step = INT64_C(1) << power;
    float level[LEVELS][FOURS * LANES] = { { 0 } };
    const int wide = FOURS * width;
    for (int64_t i = 0; i < fours;) {
        const int64_t next = i + step <= fours ? i + step : fours;
        const bool whole = next == i + step;
        for (; i < next; i++)
            add_lanes(level[0], x + i * wide, wide);
        for (int j = 1; whole && j < LEVELS; j++) {
            add_lanes(level[j], level[j - 1], wide);
            memset(level[j - 1], 0, sizeof level[j - 1]);
            if ((i & ((step - 1) << (j * power))) != 0)
                break;
        }
    }
    for (int j = 1; j < LEVELS; j++)
        add_lanes(level[0], level[j], wide);
    for (int64_t i = fours * FOURS; i < vectors; i++)
        add_lanes(level[0], x + i * width, width);
    for (int i = 1; i < FOURS; i++)
        add_lanes(level[0], level[0] + i * width, width);
    memcpy(sum, level[0], (size_t)width * sizeof *sum);
}

static __attribute__((noinline)) float mean(const float *x, int64_t n)
{
    float lane[LANES], sum = 0;
    if (n < LANES) {
        cascade(&sum, x, n, 1);
        return sum / (float)n;
    }
    cascade(lane, x, n / LANES, LANES);
    for (int64_t i = n / LANES * LANES; i < n; i++)
        sum += x[i];
    for (int i = 0; i < LANES; i++)
        sum += lane[i];
    return sum / (float)n;
}

float sheaf__mean(const float *x, int64_t n)
{
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    const float result = mean(x, n);
    sheaf__mode_set(before);
    return result;
}

static __attribute__((noinline)) void double_scales(uint8_t *codes, float *nested, float offset,
                                                    const float *scales, int64_t n,
                                                    const sheaf__map8 *map)
{
    float rest[NESTED];
    const sheaf__kernels *k = best();
    for (int64_t i = 0; i < n; i += NESTED, nested++) {
        const int64_t count = n - i < NESTED ? n - i : NESTED;
        for (int64_t j = 0; j < count; j++)
            rest[j] = scales[i + j] - offset;
        *nested = k->codes8(codes + i, rest, count, map->code);
    }
}

void sheaf__double_scales(uint8_t *codes, float *nested, float *offset, const float *scales,
                          int64_t n, const sheaf__map8 *map)
{
    *offset = n == 0 ? 0 : sheaf__mean(scales, n);
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    double_scales(codes, nested, *offset, scales, n, map);
    sheaf__mode_set(before);
}

/* ---- int8 by rows ---- */

static void to_halves(const sheaf__kernels *k, float *to, const void *x, sheaf_dtype from,
                      int64_t first, int64_t n)
{
    uint16_t half[CHUNK];
    const char *at = (const char *)x + (size_t)first * (from == SHEAF_F32 ? 4 : 2);
    k->convert(half, SHEAF_F16, at, from, n);
    k->widen(to, half, SHEAF_F16, n);
}

static __attribute__((noinline)) void quantise_row(const sheaf__kernels *k, uint8_t *codes,
                                                   float *scb, const void *x, sheaf_dtype from,
                                                   int64_t first, int64_t cols)
{
    float value[CHUNK];
    *scb = 0;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        const int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
        to_halves(k, value, x, from, first + c, count);
        *scb = sheaf__max(*scb, k->largest(value, count));
    }
    const float by = 1.0f / *scb * 127.0f;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        const int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
        if (cols > CHUNK)
            to_halves(k, value, x, from, first + c, count);
        k->codes_int8(codes + c, value, count, by);
    }
}

void sheaf__quantise_rows(uint8_t *codes, float *scb, const void *x, sheaf_dtype from, int64_t rows,
                          int64_t cols)
{
    const sheaf__kernels *k = best(); /* to ask the processor is slow */
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    for (int64_t r = 0; r < rows; r++)
        quantise_row(k, codes + r * cols, &scb[r], x, from, r * cols, cols);
    sheaf__mode_set(before);
}

/* ---- by groups ---- */

static __attribute__((noinline)) void quantise_group(const sheaf__kernels *k, uint8_t *codes,
                                                     float *scale, uint8_t *zero, const float *x,
                                                     int64_t n, float most)
{
    const float size = k->largest(x, n);
    float low = -size, high = size, middle = most == 15 ? 8 : 0;
    if (zero != NULL && isfinite(size)) {
        low = high = 0;
        for (int64_t i = 0; i < n; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
    }
    *scale = sheaf__from_f16(sheaf__f16((high - low) / most));
    if (*scale == 0)
        *scale = 0x1p-24f; /* the least that there is: programs divide by it */
    if (zero != NULL) {
        const float at = rintf(-low / *scale);
        *zero = (uint8_t)(middle = at < most ? at : most);
    }
    const float first = most == 15 ? 0 : -128, last = first + most;
    for (int64_t i = 0; i < n && isfinite(*scale); i++) {
        const float y = rintf(x[i] / *scale) + middle;
        codes[i] = (uint8_t)(int)(y < first ? first : y > last ? last : y);
    }
}

void sheaf__quantise_groups(uint8_t *codes, float *scales, uint8_t *zeros, const void *x,
                            sheaf_dtype from, int64_t n, int64_t block, sheaf__codes kind)
{
    const sheaf__kernels *k = best();
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    float wide[CHUNK];
    for (int64_t i = 0, g = 0; i < n; i += block, g++) {
        const float *values = (const float *)x + i;
        if (from != SHEAF_F32) {
            k->widen(wide, (const uint16_t *)x + i, from, block);
            values = wide;
        }
        quantise_group(k, codes + i, &scales[g], zeros != NULL ? &zeros[g] : NULL, values, block,
                       kind == SHEAF__INT8 ? 255 : 15);
    }
    sheaf__mode_set(before);
}
