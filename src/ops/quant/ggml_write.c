/* ggml_write.c - numbers to blocks, by ggml's own searches (quantize_row_*_ref); see ggml.h.
 *
 * Sums run in the order of the elements, in float32, without fused products. Ties of nearest
 * integers go to the even one, but for Q8_0, whose go away from 0. */
#include "ops/quant/ggml.h"

#include <math.h>
#include <string.h>

#include "ops/math/round.h"
#include "ops/quant/ggml_scales.h"

static const float LEAST = 1e-15f; /* groups below it are zeros */

static void put_half(uint8_t *at, float value)
{
    const uint16_t half = sheaf__f16(value);
    at[0] = (uint8_t)half;
    at[1] = (uint8_t)(half >> 8);
}

static float half_of(float value)
{
    return sheaf__from_f16(sheaf__f16(value));
}

static int within(int value, int from, int to)
{
    return value < from ? from : value > to ? to : value;
}

/* The nearest integer of a value below 2^22, by the bits of value + 1.5 2^23. */
static int nearest(float value)
{
    return (int)(sheaf__bits(value + 12582912.0f) & 0x007fffff) - 0x00400000;
}

/* Towards 0; what is no int8 is 0. */
static int whole(float value)
{
    return value > -129 && value < 128 ? (int)value : 0;
}

/* ---- blocks of 32 ---- */

static void blocks_q8_0(uint8_t *b, const float *x)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float d = most / 127, by = d != 0 ? 1 / d : 0;
    put_half(b, d);
    for (int i = 0; i < 32; i++)
        b[2 + i] = (uint8_t)whole(roundf(x[i] * by));
}

static void put_fifth(uint8_t *low, uint8_t *high, const uint8_t *code)
{
    memset(low, 0, 16);
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++) {
        low[i % 16] |= (uint8_t)((code[i] & 15) << i / 16 * 4);
        high[i / 8] |= (uint8_t)(code[i] >> 4 << i % 8);
    }
}

static void blocks_q5_1(uint8_t *b, const float *x)
{
    float least = x[0], most = x[0];
    uint8_t code[32];
    for (int i = 1; i < 32; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    const float d = (most - least) / 31, by = d != 0 ? 1 / d : 0;
    put_half(b, d);
    put_half(b + 2, least);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)within(whole((x[i] - least) * by + 0.5f), 0, 31);
    put_fifth(b + 8, b + 4, code);
}

static void blocks_q5_0(uint8_t *b, const float *x)
{
    float size = 0, most = 0;
    uint8_t code[32];
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > size) {
            size = fabsf(x[i]);
            most = x[i];
        }
    const float d = most / -16, by = d != 0 ? 1 / d : 0;
    put_half(b, d);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)within(whole(x[i] * by + 16.5f), 0, 31);
    put_fifth(b + 6, b + 2, code);
}

/* ---- a scale and a minimum: Q4_K, Q5_K ---- */

/* How one of these types searches: trials of the scale from `first` on, `step` apart. */
typedef struct search {
    int most; /* the largest code */
    float first, step;
    int steps;
} search;

enum { GROUP = 32 };

/* Weighted least squares for these codes; false: no result. */
static bool fit(float *scale, float *least, const float *x, const float *w, const uint8_t *code,
                float sum_w, float sum_x)
{
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < GROUP; i++) {
        const float l = (float)code[i];
        sum_l += w[i] * l;
        sum_l2 += w[i] * l * l;
        sum_xl += w[i] * l * x[i];
    }
    const float d = sum_w * sum_l2 - sum_l * sum_l;
    if (!(d > 0))
        return false;
    *scale = (sum_w * sum_xl - sum_x * sum_l) / d;
    *least = (sum_l2 * sum_x - sum_l * sum_xl) / d;
    if (*least > 0) {
        *least = 0;
        *scale = sum_xl / sum_l2;
    }
    return true;
}

static float error_of(const float *x, const float *w, const uint8_t *code, float scale, float least)
{
    float sum = 0;
    for (int i = 0; i < GROUP; i++) {
        float off = scale * (float)code[i] + least - x[i];
        off = off * off;
        sum += w[i] * off;
    }
    return sum;
}

static void round_codes(uint8_t *code, const float *x, float by, float least, int most)
{
    for (int i = 0; i < GROUP; i++)
        code[i] = (uint8_t)within(nearest(by * (x[i] - least)), 0, most);
}

/* The scale; *lowest is the minimum negated. A minimum that was kept counts in later trials. */
static float find_scale(uint8_t *code, float *lowest, const float *x, const float *w,
                        const search *how)
{
    float least = x[0], largest = x[0], sum_w = w[0], sum_x = sum_w * x[0];
    uint8_t trial[GROUP];
    for (int i = 1; i < GROUP; i++) {
        least = x[i] < least ? x[i] : least;
        largest = x[i] > largest ? x[i] : largest;
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    least = least > 0 ? 0 : least;
    memset(code, 0, GROUP);
    *lowest = -least;
    if (largest == least)
        return 0;
    const float by = (float)how->most / (largest - least);
    float scale = 1 / by;
    round_codes(code, x, by, least, how->most);
    float best = error_of(x, w, code, scale, least);
    for (int k = 0; k <= how->steps; k++) {
        float new_scale, new_least;
        const float wide = how->first + how->step * (float)k + (float)how->most;
        round_codes(trial, x, wide / (largest - least), least, how->most);
        if (!fit(&new_scale, &new_least, x, w, trial, sum_w, sum_x))
            continue;
        const float error = error_of(x, w, trial, new_scale, new_least);
        if (error < best) {
            memcpy(code, trial, GROUP);
            best = error;
            scale = new_scale;
            least = new_least;
        }
    }
    *lowest = -least;
    return scale;
}

/* Header of the block (d, m, scales) and codes [256]. */
static void group_codes(uint8_t *b, uint8_t *code, const float *x, const search *how)
{
    float scale[8], lowest[8], most_scale = 0, most_lowest = 0, w[GROUP];
    for (int k = 0; k < 8; k++) {
        const float *group = x + GROUP * k;
        float sum = 0;
        for (int i = 0; i < GROUP; i++)
            sum += group[i] * group[i];
        const float mean = sqrtf(sum / GROUP);
        for (int i = 0; i < GROUP; i++)
            w[i] = mean + fabsf(group[i]);
        scale[k] = find_scale(code + GROUP * k, &lowest[k], group, w, how);
        most_scale = scale[k] > most_scale ? scale[k] : most_scale;
        most_lowest = lowest[k] > most_lowest ? lowest[k] : most_lowest;
    }
    const float by = most_scale > 0 ? 63.0f / most_scale : 0,
                by_lowest = most_lowest > 0 ? 63.0f / most_lowest : 0;
    for (int k = 0; k < 8; k++)
        sheaf__ggml_put_scales(b + 4, within(nearest(by * scale[k]), 0, 63),
                               within(nearest(by_lowest * lowest[k]), 0, 63), k);
    put_half(b, most_scale / 63.0f);
    put_half(b + 2, most_lowest / 63.0f);
    for (int k = 0; k < 8; k++) {
        int s, n;
        sheaf__ggml_scales(&s, &n, b + 4, k);
        const float d = half_of(most_scale / 63.0f) * (float)s;
        const float m = half_of(most_lowest / 63.0f) * (float)n;
        for (int i = GROUP * k; d != 0 && i < GROUP * (k + 1); i++)
            code[i] = (uint8_t)within(nearest((x[i] + m) / d), 0, how->most);
    }
}

static void blocks_q4_k(uint8_t *b, const float *x)
{
    static const search how = { 15, -1.0f, 0.1f, 20 };
    uint8_t code[256];
    group_codes(b, code, x, &how);
    for (int i = 0; i < 128; i++) {
        const int first = i / 32 * 64 + i % 32;
        b[16 + i] = (uint8_t)(code[first] | code[first + 32] << 4);
    }
}

static void blocks_q5_k(uint8_t *b, const float *x)
{
    static const search how = { 31, -0.5f, 0.1f, 15 };
    uint8_t code[256];
    group_codes(b, code, x, &how);
    memset(b + 16, 0, 32);
    for (int i = 0; i < 256; i++)
        b[16 + i % 32] |= (uint8_t)(code[i] >> 4 << i / 32);
    for (int i = 0; i < 128; i++) {
        const int first = i / 32 * 64 + i % 32;
        b[48 + i] = (uint8_t)((code[first] & 15) | (code[first + 32] & 15) << 4);
    }
}

/* ---- a scale alone: Q6_K ---- */

enum { SIXTEEN = 16, MIDDLE = 32 };

/* Sums of weights x^2: with the value, and with the code. */
static void weigh(float *with_x, float *with_code, const float *x, float by)
{
    *with_x = *with_code = 0;
    for (int i = 0; i < SIXTEEN; i++) {
        const float l = (float)within(nearest(by * x[i]), -MIDDLE, MIDDLE - 1), w = x[i] * x[i];
        *with_x += w * x[i] * l;
        *with_code += w * l * l;
    }
}

static void centred_codes(uint8_t *code, const float *x, float by)
{
    for (int i = 0; i < SIXTEEN; i++)
        code[i] = (uint8_t)(MIDDLE + within(nearest(by * x[i]), -MIDDLE, MIDDLE - 1));
}

static float find_centred(uint8_t *code, const float *x)
{
    float most = 0, size = 0, with_x, with_code;
    for (int i = 0; i < SIXTEEN; i++)
        if (fabsf(x[i]) > size) {
            size = fabsf(x[i]);
            most = x[i];
        }
    memset(code, 0, SIXTEEN);
    if (size < LEAST)
        return 0;
    centred_codes(code, x, -(float)MIDDLE / most);
    weigh(&with_x, &with_code, x, -(float)MIDDLE / most);
    float scale = with_code != 0 ? with_x / with_code : 0, best = scale * with_x;
    for (int k = -9; k <= 9; k++) {
        const float by = -((float)MIDDLE + 0.1f * (float)k) / most;
        if (k == 0)
            continue;
        weigh(&with_x, &with_code, x, by);
        if (with_code > 0 && with_x * with_x > best * with_code) {
            centred_codes(code, x, by);
            scale = with_x / with_code;
            best = scale * with_x;
        }
    }
    return scale;
}

static void blocks_q6_k(uint8_t *b, const float *x)
{
    uint8_t code[256];
    float scale[16], most = 0, size = 0;
    for (int k = 0; k < 16; k++) {
        scale[k] = find_centred(code + SIXTEEN * k, x + SIXTEEN * k);
        if (fabsf(scale[k]) > size) {
            size = fabsf(scale[k]);
            most = scale[k];
        }
    }
    memset(b, 0, 210);
    if (size < LEAST)
        return;
    const float by = -128.0f / most;
    put_half(b + 208, 1 / by);
    for (int k = 0; k < 16; k++) {
        const int s = within(nearest(by * scale[k]), -128, 127);
        const float d = half_of(1 / by) * (float)s;
        b[192 + k] = (uint8_t)s;
        for (int i = SIXTEEN * k; d != 0 && i < SIXTEEN * (k + 1); i++)
            code[i] = (uint8_t)(MIDDLE + within(nearest(x[i] / d), -MIDDLE, MIDDLE - 1));
    }
    for (int i = 0; i < 256; i++) {
        b[i / 128 * 64 + i % 64] |= (uint8_t)((code[i] & 15) << i % 128 / 64 * 4);
        b[128 + i / 128 * 32 + i % 32] |= (uint8_t)(code[i] >> 4 << i % 128 / 32 * 2);
    }
}

/* ---- all types ---- */

static void (*const blocks_of[SHEAF__GGML_TYPES])(uint8_t *, const float *) = {
    [SHEAF__GGML_Q5_0] = blocks_q5_0, [SHEAF__GGML_Q5_1] = blocks_q5_1,
    [SHEAF__GGML_Q8_0] = blocks_q8_0, [SHEAF__GGML_Q4_K] = blocks_q4_k,
    [SHEAF__GGML_Q5_K] = blocks_q5_k, [SHEAF__GGML_Q6_K] = blocks_q6_k,
};

bool sheaf__ggml_writes(sheaf__gguf_type type)
{
    return type == SHEAF__GGML_F32 || type == SHEAF__GGML_F16 || type == SHEAF__GGML_BF16 ||
           blocks_of[type] != NULL;
}

void sheaf__ggml_blocks(void *blocks, const float *x, sheaf__gguf_type type, int64_t n)
{
    const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
    uint8_t *b = blocks;
    if (row->elements == 1)
        for (int64_t i = 0; i < n; i++)
            sheaf__store(blocks, i, x[i], row->dtype);
    else
        for (int64_t i = 0; i < n; i += row->elements, b += row->bytes)
            blocks_of[type](b, x + i);
}
