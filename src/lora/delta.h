/* delta.h - B A, as a merge adds it to a weight.
 *
 * d[i, j] is an ascending chain of fused multiply-adds over the rank, from 0, in float32: what
 * PEFT's product is on a CPU, bit for bit, for ranks up to 192. Above that its library sums chains
 * over blocks of the rank, see below. Denormals are kept, as in PEFT. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"

/* d [rows, cols], dense, from b [rows, rank] and `packed`, the panels of a [rank, cols]. With
 * 0 < block < rank each block of the rank is a chain of its own, the last may be shorter, and the
 * chains are added in ascending order; otherwise there is one chain. Needs AVX2 and FMA where the
 * build has them. */
void sheaf__lora_delta(float *d, const float *b, const float *packed, int64_t rows, int64_t cols,
                       int64_t rank, int64_t block);
/* The same for processors with AVX-512F. */
void sheaf__lora_delta_avx512(float *d, const float *b, const float *packed, int64_t rows,
                              int64_t cols, int64_t rank, int64_t block);
typedef void sheaf__lora_product(float *d, const float *b, const float *packed, int64_t rows,
                                 int64_t cols, int64_t rank, int64_t block);
/* sheaf__lora_delta_for - the product for these kernels (kernels->isa). */
sheaf__lora_product *sheaf__lora_delta_for(const char *isa);
/* Panels of 16 columns, each [rank, 16], the last filled up with zeros. */
int64_t sheaf__lora_packed_floats(int64_t rank, int64_t cols);
/* sheaf__lora_pack_row - row k of a; does not write the rest of the last panel (zero it first). */
void sheaf__lora_pack_row(float *packed, const float *row, int64_t k, int64_t rank, int64_t cols);

/* w[i] += d[i] * scale: one rounding for the product, one for the sum. */
void sheaf__lora_add(float *w, const float *d, float scale, int64_t n);

/* How some elements changed. */
typedef struct sheaf__lora_change {
    int64_t changed;     /* elements with other bits */
    double change, base; /* sums of squares of the differences and of the old values; float32 inside
                            blocks of 4096 */
    bool finite;         /* all new values */
} sheaf__lora_change;

/* sheaf__lora_finish - out = round(v + d * scale) in dtype (F32, BF16, F16), as sheaf__lora_add()
 * adds; d NULL: out = round(v). `was`: the old values, in dtype too. A NaN is written as
 * 0x7fc0.. */
void sheaf__lora_finish(sheaf__lora_change *change, void *out, sheaf_dtype dtype, const float *v,
                        const float *d, float scale, const void *was, int64_t n);

/* sheaf__lora_dot - adds to *dot the sum of w[i] * x[i] in double, and to *squares that of w[i] *
 * w[i]. */
void sheaf__lora_dot(double *dot, double *squares, const float *w, const double *x, int64_t n);

/* ---- the order of PEFT's sums, by processor ---- */

typedef enum sheaf_peft_cpu {
    SHEAF_PEFT_CPU_THIS,  /* the one in use */
    SHEAF_PEFT_CPU_INTEL, /* Intel with AVX-512: PyTorch 2.15, ranks 1 to 2048 */
    SHEAF_PEFT_CPU_AMD,   /* AMD with AVX-512: PyTorch 2.13, ranks 16 to 2048 */
    SHEAF_PEFT_CPU_OTHER, /* not measured; summed as on AMD */
} sheaf_peft_cpu;

/* sheaf__peft_cpu - resolves THIS to the processor in use. */
sheaf_peft_cpu sheaf__peft_cpu(sheaf_peft_cpu cpu);
const char *sheaf__peft_cpu_name(sheaf_peft_cpu cpu);

/* sheaf__peft_block - steps of a chain; the last one may have fewer. `kernel`: for a convolution
 * whose kernel has more than one element. */
int64_t sheaf__peft_block(sheaf_peft_cpu cpu, int64_t rank, bool kernel);
/* sheaf__peft_known - was this order measured for products [out, rank] [rank, in] of such a size,
 * for all numbers of PyTorch's threads? `channels`: input channels of a convolution whose kernel
 * has more than one element, else 0. */
bool sheaf__peft_known(sheaf_peft_cpu cpu, int64_t rank, int64_t out, int64_t in, int64_t channels);
