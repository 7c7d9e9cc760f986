/* peft_sums.h - in which order PEFT's library sums B A, by the processor that PEFT runs on.
 *
 * Every element is a chain of fused multiply-adds over the rank, or a sum of such chains over
 * blocks of it. Which blocks was measured: they come from MKL 2024.2 (products of matrices) and
 * oneDNN (kernels of convolutions) inside PyTorch, not from any document. docs/merge.md has the
 * table. */
#pragma once

#include "base/base.h"

typedef enum sheaf_peft_cpu {
    SHEAF_PEFT_CPU_THIS,  /* the one that asks */
    SHEAF_PEFT_CPU_INTEL, /* Intel with AVX-512: PyTorch 2.15, ranks 1 to 2048 */
    SHEAF_PEFT_CPU_AMD,   /* AMD with AVX-512: PyTorch 2.13, ranks 16 to 2048 */
    SHEAF_PEFT_CPU_OTHER, /* not known at any rank; summed as on AMD */
} sheaf_peft_cpu;

/* sheaf__peft_cpu - THIS becomes the kind of the processor this runs on. */
sheaf_peft_cpu sheaf__peft_cpu(sheaf_peft_cpu cpu);
const char *sheaf__peft_cpu_name(sheaf_peft_cpu cpu);

/* sheaf__peft_block - how many steps a chain has; the last one may have less. `kernel`: of a
 * convolution whose kernel has more than one element. */
int64_t sheaf__peft_block(sheaf_peft_cpu cpu, int64_t rank, bool kernel);
/* sheaf__peft_known - was this order seen for products [out, rank] [rank, in] of such a size,
 * whatever PyTorch's number of threads? `channels`: of a convolution's inputs where its kernel has
 * more than one element, else 0. */
bool sheaf__peft_known(sheaf_peft_cpu cpu, int64_t rank, int64_t out, int64_t in, int64_t channels);
