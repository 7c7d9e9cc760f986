/* ggml.c - blocks to numbers; see ggml.h. */
#include "ops/quant/ggml.h"

#include <string.h>

#include "ops/math/round.h"
#include "ops/quant/ggml_scales.h"

static float half_at(const uint8_t *at)
{
    return sheaf__from_f16((uint16_t)(at[0] | at[1] << 8));
}

/* ---- blocks of 32 ---- */

static void values_q8_0(float *y, const uint8_t *b)
{
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

/* Of the four with 4 or 5 bits: with m, or with a zero in the middle. */
static void values_32(float *y, const uint8_t *q, uint32_t high, int fifth, float d, bool has_m,
                      float m)
{
    for (int i = 0; i < 32; i++) {
        const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        const int code = low | (int)(high >> i & 1) << 4;
        const float product = (float)(has_m ? code : code - (8 << fifth)) * d;
        y[i] = has_m ? product + m : product;
    }
}

static uint32_t word_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void values_q4_0(float *y, const uint8_t *b)
{
    values_32(y, b + 2, 0, 0, half_at(b), false, 0);
}

static void values_q4_1(float *y, const uint8_t *b)
{
    values_32(y, b + 4, 0, 0, half_at(b), true, half_at(b + 2));
}

static void values_q5_0(float *y, const uint8_t *b)
{
    values_32(y, b + 6, word_at(b + 2), 1, half_at(b), false, 0);
}

static void values_q5_1(float *y, const uint8_t *b)
{
    values_32(y, b + 8, word_at(b + 4), 1, half_at(b), true, half_at(b + 2));
}

/* ---- blocks of 256 ---- */

/* Two bits of element i: 32 bytes hold bits of 128 elements, the first 32 lowest. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Four bits: 32 bytes hold 64 elements, the first 32 in their low halves. */
static int four_bits(const uint8_t *q, int i)
{
    return q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
}

static void values_q2_k(float *y, const uint8_t *b)
{
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        const float scale = d * (float)(b[i / 16] & 15), least = m * (float)(b[i / 16] >> 4);
        const float product = scale * (float)two_bits(b + 16, i);
        y[i] = product - least;
    }
}

static void values_q3_k(float *y, const uint8_t *b)
{
    const uint8_t *s = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        const int k = i / 16, low = k < 8 ? s[k] & 15 : s[k - 8] >> 4,
                  high = s[8 + k % 4] >> k / 4 * 2 & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const int code = two_bits(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4);
        y[i] = scale * (float)code;
    }
}

static void values_q45_k(float *y, const uint8_t *b, const uint8_t *high, const uint8_t *q)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int k = 0; k < 8; k++) {
        int s, n;
        sheaf__ggml_scales(&s, &n, b + 4, k);
        const float scale = d * (float)s, least = m * (float)n;
        for (int i = 32 * k; i < 32 * (k + 1); i++) {
            const int code = four_bits(q, i) + (high != NULL && high[i % 32] >> k & 1 ? 16 : 0);
            const float product = scale * (float)code;
            y[i] = product - least;
        }
    }
}

static void values_q4_k(float *y, const uint8_t *b)
{
    values_q45_k(y, b, NULL, b + 16);
}

static void values_q5_k(float *y, const uint8_t *b)
{
    values_q45_k(y, b, b + 16, b + 48);
}

static void values_q6_k(float *y, const uint8_t *b)
{
    const float d = half_at(b + 208);
    for (int i = 0; i < 256; i++) {
        /* 64 bytes hold the low bits of 128 elements, the first 64 in their low halves */
        const int low = b[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
        const float scale = d * (float)(int8_t)b[192 + i / 16];
        y[i] = scale * (float)((low | two_bits(b + 128, i) << 4) - 32);
    }
}

/* ---- all types ---- */

static void (*const values_of[SHEAF__GGML_TYPES])(float *, const uint8_t *) = {
    [SHEAF__GGML_Q4_0] = values_q4_0, [SHEAF__GGML_Q4_1] = values_q4_1,
    [SHEAF__GGML_Q5_0] = values_q5_0, [SHEAF__GGML_Q5_1] = values_q5_1,
    [SHEAF__GGML_Q8_0] = values_q8_0, [SHEAF__GGML_Q2_K] = values_q2_k,
    [SHEAF__GGML_Q3_K] = values_q3_k, [SHEAF__GGML_Q4_K] = values_q4_k,
    [SHEAF__GGML_Q5_K] = values_q5_k, [SHEAF__GGML_Q6_K] = values_q6_k,
};

void sheaf__ggml_values(float *y, const void *blocks, sheaf__gguf_type type, int64_t n)
{
    const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
    const uint8_t *b = blocks;
    if (row->elements == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = sheaf__load(blocks, i, row->dtype);
    else
        for (int64_t i = 0; i < n; i += row->elements, b += row->bytes)
            values_of[type](y + i, b);
}
