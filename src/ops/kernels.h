/* kernels.h - the table of element-wise ops, one column per instruction set.
 *
 * Every kernel is serial and works on the rows it is given; callers split rows
 * over threads. `dtype` is the activation type, SHEAF_F32, SHEAF_BF16 or SHEAF_F16,
 * of every `void *` operand; float operands are float32 whatever the dtype.
 * "round" means: to nearest even into dtype (none for F32), NaN stays a quiet
 * NaN. All arithmetic is float32, in the order written, no fusing unless fma
 * is written. ld* are row strides in elements. Each column gives the bits of
 * the reference column; the formulas stand in docs/contract.md, section 4. Every
 * stored NaN that was computed is 0x7fc00000 (BF16: 0x7fc0, F16: 0x7e00). Operands that are
 * not listed as allowed to coincide must not overlap. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "ops/quant/quant.h"

/* In double: the kernel derives 1 - beta2 and its like before it rounds each once to
 * float32, as torch does; from a float32 beta2 of 0.999 they would be 1e-5 off. */
typedef struct sheaf__adamw {
    double lr, beta1, beta2, eps, weight_decay;
    double bias1, bias2_sqrt; /* 1 - beta1^t, sqrt(1 - beta2^t) */
    float grad_scale;         /* clipping factor, 1 = none; g' = g * grad_scale */
} sheaf__adamw;

/* Both moments in 8 bits: codes [n], absmax [ceil(n / 256)], and their maps, m's of both signs. */
struct sheaf__map8;
typedef struct sheaf__moments8 {
    uint8_t *m, *v;
    float *m_absmax, *v_absmax;
    const struct sheaf__map8 *map; /* [2], the host's */
} sheaf__moments8;

/* Counter-based dropout: element (row, channel) is kept when
 * sheaf__random_u32(seed, purpose, step, sample[row], position[row], channel)
 * >= threshold; kept values are multiplied by `scale`, then rounded. */
typedef struct sheaf__dropout {
    uint64_t seed, purpose, step;
    const int64_t *sample, *position; /* [rows] */
    int64_t channel0;                 /* logical channel of column 0 */
    uint32_t threshold;               /* p * 2^32 */
    float scale;                      /* 1 / (1 - p) */
} sheaf__dropout;

/* Noise of NEFTune: element (row, channel) gets half[row] * t, where t = (2 k + 1) / 2^23 - 1 and k
 * is the upper 23 bits of sheaf__random_u32(seed, purpose, step, sample[row], position[row],
 * channel): exact, and strictly between -1 and 1. */
typedef struct sheaf__noise {
    uint64_t seed, purpose, step;
    const int64_t *sample, *position; /* [rows] */
    const float *half;                /* [rows] largest noise; 0 adds none */
} sheaf__noise;

/* Weights of rows with a label in the loss, of any sign. With labels smoothed by eps over a
 * vocabulary of V a label counts keep = 1 - eps, and every word even = eps / V; rows that are not
 * smoothed have keep 1 and even 0. */
typedef struct sheaf__label_weights {
    const float *weight; /* [rows] */
    float keep, even;
} sheaf__label_weights;

typedef struct sheaf__kernels {
    const char *isa; /* "ref", "avx2", "avx512" */

    /* ---- conversion and sums ---- */
    void (*round)(void *dst, sheaf_dtype dtype, const float *src, int64_t n);
    void (*widen)(float *dst, const void *src, sheaf_dtype dtype, int64_t n);
    /* any of F32, BF16, F16, to any of them; nearest even */
    void (*convert)(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n);
    void (*add)(float *dst, const float *a, const float *b, int64_t n); /* dst may be a or b */
    void (*scale)(float *x, float by, int64_t n);
    /* y = round(round(by * (alpha * sum) + bias) + residual); by [cols], bias, residual may be
     * NULL. sum [rows, cols] f32 (stride lds); y, residual in dtype. */
    void (*finish)(void *y, int64_t ldy, const float *sum, int64_t lds, float alpha,
                   const float *by, const float *bias, const void *residual, int64_t ldr,
                   int64_t rows, int64_t cols, sheaf_dtype dtype);
    /* dst = round(dst + src) in dtype: a second gradient reaching one value */
    void (*accumulate)(void *dst, const void *src, int64_t n, sheaf_dtype dtype);
    /* sum of squares in double, 16 lanes (lane i: elements i, i+16, ...) and the fixed tree */
    double (*squares)(const float *x, int64_t n);
    /* out[c] += sum over rows of x[r, c], rows ascending in blocks of 256 from 0 each;
     * the blocks' sums are added to out ascending. Gradient of a bias. */
    void (*column_sums)(float *out, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                        sheaf_dtype dtype);

    /* ---- RMSNorm: y = round(w * round(x * rstd)), rstd = 1/sqrt(mean(x^2) + eps);
     * once: y = round(w * (x * rstd)) ---- */
    void (*rmsnorm)(void *y, float *rstd, const void *x, const float *w, int64_t rows,
                    int64_t width, float eps, bool once, sheaf_dtype dtype); /* dense rows */
    /* dx = round(add ? dx + g : g), g = rstd * (w*dy - x*rstd * mean(w*dy * x*rstd)) */
    void (*rmsnorm_back)(void *dx, const void *dy, const void *x, const float *w, const float *rstd,
                         int64_t rows, int64_t width, bool add, sheaf_dtype dtype);
    /* ---- LayerNorm: n = (x - mean) * rstd, y = round(w * n + b) (a product, then a sum).
     * In parts, because a width may be cut: sums of one slice's columns here, the tree
     * over slices (none for a whole width) and the division by the logical width outside. ---- */
    /* sum[r] = sum over columns of x, 16 lanes */
    void (*layernorm_sum)(float *sum, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                          sheaf_dtype dtype);
    /* sum[r] = sum over columns of (x - mean[r])^2, 16 lanes, lane = fma(d, d, lane) */
    void (*layernorm_squares)(float *sum, const void *x, int64_t ldx, const float *mean,
                              int64_t rows, int64_t cols, sheaf_dtype dtype);
    /* y = round(w * n + b); with a residual (stride ldy): y = round(round(w * n + b) + residual).
     * y may be x or residual. */
    void (*layernorm)(void *y, int64_t ldy, const void *x, int64_t ldx, const float *mean,
                      const float *rstd, const float *w, const float *b, const void *residual,
                      int64_t rows, int64_t cols, sheaf_dtype dtype);
    /* sum_a[r] = sum of a, sum_an[r] = sum of fma(a, n), a = w * dy; 16 lanes each */
    void (*layernorm_back_sums)(float *sum_a, float *sum_an, const void *dy, int64_t lddy,
                                const void *x, int64_t ldx, const float *mean, const float *rstd,
                                const float *w, int64_t rows, int64_t cols, sheaf_dtype dtype);
    /* dx = round(add ? dx + g : g), g = rstd * ((a - mean_a[r]) - n * mean_an[r]); dx has stride
     * ldx */
    void (*layernorm_back)(void *dx, const void *dy, int64_t lddy, const void *x, int64_t ldx,
                           const float *mean, const float *rstd, const float *w,
                           const float *mean_a, const float *mean_an, int64_t rows, int64_t cols,
                           bool add, sheaf_dtype dtype);
    /* dw[c] += sum over rows of dy * n, db[c] += sum over rows of dy, for columns [begin, end),
     * blocked like column_sums; db may be NULL, and so may mean: zeros, as in RMSNorm */
    void (*layernorm_dw)(float *dw, float *db, const void *dy, int64_t lddy, const void *x,
                         int64_t ldx, const float *mean, const float *rstd, int64_t rows,
                         int64_t begin, int64_t end, sheaf_dtype dtype);

    /* ---- GELU by erf, y = round((0.5 * x) * (1 + erf(x * r))), r = float(sqrt(1/2)), or by tanh,
     * y = round(x * p), p = 1 / (1 + exp(-z)), z = x * (a + b * (x * x)) as in GeGLU;
     * contiguous n elements ---- */
    void (*gelu)(void *y, const void *x, int64_t n, bool tanh, sheaf_dtype dtype); /* y may be x */
    /* dx = round(add ? dx + g : g), g = dy * (p + x * d), p = 0.5 * (1 + erf(x * r)),
     * d = exp((x * x) * -0.5) * float(1 / sqrt(2 pi)), or by tanh
     * g = dy * (p + ((x * p) * (1 - p)) * (a + 3 b * (x * x))); without add, dx may be x */
    void (*gelu_back)(void *dx, const void *dy, const void *x, int64_t n, bool add, bool tanh,
                      sheaf_dtype dtype);
    /* ---- rotary embedding of interleaved pairs (2i, 2i + 1), in place ----
     * x [rows, heads*head_dim] stride ldx, of each head the first rot, even; cos, sin [positions,
     * rot] float32; pos [rows], a row with pos < 0 is left alone; one rounding at the end.
     * Forward: x'[2i] = x[2i] cos[2i] - x[2i+1] sin[2i], x'[2i+1] = x[2i+1] cos[2i+1] + x[2i]
     * sin[2i+1]; inverse: the transpose (the gradient). */
    void (*rope_pairs)(void *x, int64_t ldx, const float *cos, const float *sin, const int32_t *pos,
                       int64_t rows, int64_t heads, int64_t head_dim, int64_t rot, bool inverse,
                       sheaf_dtype dtype);

    /* ---- rotary embedding, in place, half-split pairs (j, j + rot/2) of each head ----
     * x [rows, heads*head_dim] stride ldx; cos, sin [positions, rot/2] float32 already
     * rounded to dtype; pos [rows]. inverse rotates back (the gradient). */
    void (*rope)(void *x, int64_t ldx, const float *cos, const float *sin, const int32_t *pos,
                 int64_t rows, int64_t heads, int64_t head_dim, int64_t rot, bool inverse,
                 sheaf_dtype dtype);

    /* ---- SwiGLU, h = round(silu(gate) * up), or with `gelu` GeGLU, h = round(gelu(gate) * up),
     * gelu by tanh; contiguous n elements ---- */
    void (*swiglu)(void *h, const void *gate, const void *up, int64_t n, bool gelu,
                   sheaf_dtype dtype);
    /* h as above, where it is not NULL; dgate may be gate, dup may be up, h may be dh */
    void (*swiglu_back)(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                        const void *up, int64_t n, bool gelu, sheaf_dtype dtype);

    /* ---- soft cap, x = round(cap * tanh(x / cap)) in place, float32 that dtype holds; and from
     * the capped y: dx = round(dx * (1 - t * t)), t = y / cap ---- */
    void (*softcap)(float *x, float cap, int64_t n, sheaf_dtype dtype);
    void (*softcap_back)(void *dx, const float *y, float cap, int64_t n, sheaf_dtype dtype);

    /* ---- softmax cross-entropy over the columns of one slice; logits float32 ----
     * logits hold values already rounded to the activation dtype. */
    /* Largest in the order of the bits, -0 < +0 and NaN (sign clear) above all; no
     * columns: -inf. An order, not a sequence of comparisons, so slices may be joined
     * in any order (sheaf__max). */
    void (*row_max)(float *max, const float *logits, int64_t ld, int64_t rows, int64_t cols);
    /* sum[r] = sum over columns of exp(logit - max[r]), 16 lanes */
    void (*row_sumexp)(float *sum, const float *logits, int64_t ld, const float *max, int64_t rows,
                       int64_t cols);
    /* d[r,c] = round(((exp(logit - max[r]) / sum[r] - (c == target[r] ? keep : 0)) - even) *
     * weight[r]), or 0 when target[r] == SHEAF__IGNORED; a target outside [0, cols) is in another
     * slice. In float32 d may be logits. The loss of smoothed labels needs the row's sum of logits,
     * too, which is layernorm_sum. */
    void (*row_dlogits)(void *d, int64_t ldd, const float *logits, int64_t ld, const float *max,
                        const float *sum, const int32_t *target, const sheaf__label_weights *how,
                        int64_t rows, int64_t cols, sheaf_dtype dtype);

    /* ---- optimizer ---- */
    /* p *= 1 - lr*wd; m = b1*m + (1-b1)*g'; v = b2*v + (1-b2)*g'^2;
     * p -= lr/bias1 * m / (sqrt(v)/bias2_sqrt + eps); order of torch's single-tensor AdamW */
    void (*adamw)(float *p, float *m, float *v, const float *g, int64_t n, const sheaf__adamw *how);
    /* with m, v as codes of blocks of 256 and each block's absmax (bitsandbytes' AdamW8bit): the
     * same but for m = fma(g', 1-b1, b1*m), v = fma((1-b2)*g', g', b2*v) */
    void (*adamw8)(float *p, const sheaf__moments8 *to, const float *g, int64_t n,
                   const sheaf__adamw *how);

    /* ---- codes of 4 and 8 bits, of one block or group (quant/quantise.h) ---- */
    /* the largest size of x, by its bits */
    float (*largest)(const float *x, int64_t n);
    /* NF4, FP4: number of thresholds below y = x / by or x * by; NaN is above all */
    void (*codes4)(uint8_t *codes, const float *x, int64_t n, float by, bool divide,
                   sheaf__codes kind);
    /* result: the largest size; search[65536] as in sheaf__map8; zeros alone have codes 0 */
    float (*codes8)(uint8_t *codes, const float *x, int64_t n, const uint8_t *search);
    /* rint(x * by); NaN: 0 */
    void (*codes_int8)(uint8_t *codes, const float *x, int64_t n, float by);
    /* y = value * scale; INT4: (code - zero) * scale */
    void (*values)(float *y, const uint8_t *codes, int64_t n, sheaf__codes kind, float scale,
                   int zero);
    /* y = map[code] * absmax */
    void (*values8)(float *y, const uint8_t *codes, int64_t n, float absmax, const float map[256]);

    /* ---- dropout: y = round(kept ? x * scale : 0); y may be x; its own backward ---- */
    void (*dropout)(void *y, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                    const sheaf__dropout *how, sheaf_dtype dtype); /* y has stride ldx too */

    /* ---- NEFTune: x = round(x + half[r] * t), t uniform in (-1, 1), in place ---- */
    void (*noise)(void *x, int64_t ldx, int64_t rows, int64_t cols, const sheaf__noise *how,
                  sheaf_dtype dtype);

    /* ---- n numbers in 8 bits, in blocks of 32 (shrink/shrink.h), a scale each; and back,
     * rounded ---- */
    void (*shrink)(int8_t *codes, uint8_t *scales, const void *x, int64_t n, sheaf_dtype dtype);
    void (*expand)(void *x, const int8_t *codes, const uint8_t *scales, int64_t n,
                   sheaf_dtype dtype);
} sheaf__kernels;

#define SHEAF__IGNORED INT32_MIN

/* sheaf__kernels_for - the column for `isa` ("ref", "avx2", "avx512"), NULL means the
 * best this CPU has. "avx512bf16" and "amx" are the column avx512 on a CPU that also has what
 * units.h calls pairs and tiles. NULL result: unknown name or not on this CPU. */
const sheaf__kernels *sheaf__kernels_for(const char *isa);
