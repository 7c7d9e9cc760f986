/* delta_plain.c - the sums of delta.h in plain C, for a build without x86: the same bits, lane by
 * lane as delta_avx2.c has them. */
#include "lora/delta.h"

#include <math.h>
#include <string.h>

#include "ops/math/round.h"

enum { PANEL = 16, LANES = 8, BLOCK = 4096 };

void sheaf__lora_delta(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                       int64_t rank, int64_t block)
{
    for (int64_t j = 0; j < cols; j++) {
        const float *panel = packed + j / PANEL * PANEL * rank + j % PANEL;
        for (int64_t i = 0; i < rows; i++)
            d[i * cols + j] = sheaf__lora_element(b + i * rank, panel, PANEL, rank, block);
    }
}

sheaf__lora_product *sheaf__lora_delta_for(const char *isa)
{
    return sheaf__lora_delta;
}

void sheaf__lora_add(float *w, const float *d, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = d[i] * scale; /* -ffp-contract=off: rounded before the sum */
        w[i] += scaled;
    }
}

static float widen(const void *at, int64_t i, sheaf_dtype dtype)
{
    return dtype == SHEAF_F32   ? ((const float *)at)[i]
           : dtype == SHEAF_F16 ? sheaf__from_f16(((const uint16_t *)at)[i])
                                : sheaf__from_bf16(((const uint16_t *)at)[i]);
}

/* Rounds, stores, and returns what was stored as float32. */
static float narrow(void *at, int64_t i, float x, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F32)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] = dtype == SHEAF_F16 ? sheaf__f16(x) : sheaf__bf16(x);
    return widen(at, i, dtype);
}

void sheaf__lora_finish(sheaf__lora_change *change, void *out, sheaf_dtype dtype, const float *v,
                        const float *d, float scale, const void *was, int64_t n)
{
    *change = (sheaf__lora_change){ .changed = n, .finite = true };
    for (int64_t at = 0; at < n; at += BLOCK) {
        float changed[LANES] = { 0 }, base[LANES] = { 0 };
        const int64_t end = n - at < BLOCK ? n : at + BLOCK;
        for (int64_t i = at; i < end; i++) {
            const int lane = (int)(i % LANES);
            const float scaled = d != NULL ? d[i] * scale : 0, before = widen(was, i, dtype);
            const float x = narrow(out, i, d != NULL ? v[i] + scaled : v[i], dtype);
            const float by = x - before;
            changed[lane] = fmaf(by, by, changed[lane]);
            base[lane] = fmaf(before, before, base[lane]);
            change->changed -= sheaf__bits(x) == sheaf__bits(before);
            change->finite = change->finite && isfinite(x);
        }
        double sums[2] = { 0, 0 };
        for (int lane = 0; lane < LANES; lane++) {
            sums[0] += (double)changed[lane];
            sums[1] += (double)base[lane];
        }
        change->change += sums[0];
        change->base += sums[1];
    }
}

void sheaf__lora_dot(double *dot, double *squares, const float *w, const double *x, int64_t n)
{
    double product[LANES] = { 0 }, square[LANES] = { 0 };
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i++) {
        const int lane = (int)(i % LANES);
        product[lane] = fma((double)w[i], x[i], product[lane]);
        square[lane] = fma((double)w[i], (double)w[i], square[lane]);
    }
    for (int lane = 0; lane < LANES / 2; lane++) {
        *dot += product[lane] + product[lane + LANES / 2];
        *squares += square[lane] + square[lane + LANES / 2];
    }
    for (int64_t i = whole; i < n; i++) {
        *dot += (double)w[i] * x[i];
        *squares += (double)w[i] * (double)w[i];
    }
}
