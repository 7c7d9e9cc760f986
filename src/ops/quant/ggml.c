/* ggml.c - blocks to numbers; see ggml.h. */
#include "ops/quant/ggml.h"

#include <string.h>

#include "ops/math/round.h"
#include "ops/quant/ggml_scales.h"
#include "ops/quant/values.h"

/* A block's codes, a byte each, and of each group the scale, with what is added. */
typedef void parts_fn(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f);

static float half_at(const uint8_t *at)
{
    return sheaf__from_f16((uint16_t)(at[0] | at[1] << 8));
}

/* ---- blocks of 32 ---- */

static void parts_q8_0(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    *scales = half_at(b);
    memcpy(codes, b + 2, 32);
}

static uint32_t word_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The four with 4 or 5 bits. */
static void parts_32(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    const bool fifth = f->codes == SHEAF__INT8;
    const int64_t floats = sheaf__quant_floats(f);
    const uint32_t high = fifth ? word_at(b + 2 * floats) : 0;
    const uint8_t *q = b + 2 * floats + (fifth ? 4 : 0);
    for (int64_t i = 0; i < floats; i++)
        scales[i] = half_at(b + 2 * i);
    for (int i = 0; i < 32; i++) {
        const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4, code = low | (high >> i & 1) << 4;
        codes[i] = (uint8_t)(fifth && !f->added ? code - 16 : code);
    }
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

static void parts_q2_k(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (int k = 0; k < 16; k++) {
        scales[2 * k] = d * (float)(b[k] & 15);
        scales[2 * k + 1] = -(m * (float)(b[k] >> 4));
    }
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)two_bits(b + 16, i);
}

static void parts_q3_k(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    const uint8_t *s = b + 96;
    const float d = half_at(b + 108);
    for (int k = 0; k < 16; k++) {
        const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4, high = s[8 + k % 4] >> k / 4 * 2 & 3;
        scales[k] = d * (float)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) /* 8 is INT4's zero */
        codes[i] = (uint8_t)(two_bits(b + 32, i) + (b[i % 32] >> i / 32 & 1 ? 8 : 4));
}

static void parts_q45_k(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    const bool fifth = f->codes == SHEAF__INT8;
    const uint8_t *high = b + 16, *q = fifth ? b + 48 : b + 16;
    const float d = half_at(b), m = half_at(b + 2);
    for (int k = 0; k < 8; k++) {
        int s, n;
        sheaf__ggml_scales(&s, &n, b + 4, k);
        scales[2 * k] = d * (float)s;
        scales[2 * k + 1] = -(m * (float)n);
        for (int i = 32 * k; i < 32 * (k + 1); i++)
            codes[i] = (uint8_t)(four_bits(q, i) | (fifth ? high[i % 32] >> k & 1 : 0) << 4);
    }
}

static void parts_q6_k(uint8_t *codes, float *scales, const uint8_t *b, const sheaf__quant *f)
{
    const float d = half_at(b + 208);
    for (int k = 0; k < 16; k++)
        scales[k] = d * (float)(int8_t)b[192 + k];
    for (int i = 0; i < 256; i++) {
        /* 64 bytes hold the low bits of 128 elements, the first 64 in their low halves */
        const int low = b[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
        codes[i] = (uint8_t)((low | two_bits(b + 128, i) << 4) - 32);
    }
}

/* ---- all types ---- */

/* Codes of 5 and 6 bits are in bytes. */
#define FORM(kind, of, more)                                                                       \
    {                                                                                              \
        .codes = (kind), .block = (of), .added = (more), .blocks = true, .dtype = SHEAF_F32        \
    }

static const struct {
    parts_fn *parts;
    sheaf__quant form;
} types[SHEAF__GGML_TYPES] = {
    [SHEAF__GGML_Q4_0] = { parts_32, FORM(SHEAF__INT4, 32, false) },
    [SHEAF__GGML_Q4_1] = { parts_32, FORM(SHEAF__UINT4, 32, true) },
    [SHEAF__GGML_Q5_0] = { parts_32, FORM(SHEAF__INT8, 32, false) },
    [SHEAF__GGML_Q5_1] = { parts_32, FORM(SHEAF__INT8, 32, true) },
    [SHEAF__GGML_Q8_0] = { parts_q8_0, FORM(SHEAF__INT8, 32, false) },
    [SHEAF__GGML_Q2_K] = { parts_q2_k, FORM(SHEAF__UINT4, 16, true) },
    [SHEAF__GGML_Q3_K] = { parts_q3_k, FORM(SHEAF__INT4, 16, false) },
    [SHEAF__GGML_Q4_K] = { parts_q45_k, FORM(SHEAF__UINT4, 32, true) },
    [SHEAF__GGML_Q5_K] = { parts_q45_k, FORM(SHEAF__INT8, 32, true) },
    [SHEAF__GGML_Q6_K] = { parts_q6_k, FORM(SHEAF__INT8, 16, false) },
};

const sheaf__quant *sheaf__ggml_form(sheaf__gguf_type type)
{
    return types[type].parts == NULL ? NULL : &types[type].form;
}

void sheaf__ggml_parts(uint8_t *codes, float *scales, const void *blocks, sheaf__gguf_type type,
                       int64_t n)
{
    const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
    const sheaf__quant *f = &types[type].form;
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += row->elements, b += row->bytes)
        types[type].parts(codes + i, scales + i / f->block * sheaf__quant_floats(f), b, f);
}

void sheaf__ggml_values(float *y, const void *blocks, sheaf__gguf_type type, int64_t n)
{
    const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
    const sheaf__quant *f = &types[type].form;
    const uint8_t *b = blocks;
    if (row->elements == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = sheaf__load(blocks, i, row->dtype);
    for (int64_t i = 0; row->elements > 1 && i < n; i += row->elements, b += row->bytes) {
        uint8_t codes[256];
        float scales[32];
        types[type].parts(codes, scales, b, f);
        for (int k = 0; k < row->elements; k++) {
            const float *s = scales + k / f->block * sheaf__quant_floats(f);
            const float product = sheaf__code_value(f->codes, codes[k]) * s[0];
            y[i + k] = f->added ? product + s[1] : product;
        }
    }
}
