/* mma.h - one sum of an instruction of NVIDIA's tensor cores, bit by bit, in integers only.
 *
 * A group of L products is added to a float32 c at once:
 *   - each factor is s * 2^e with 1 <= |s| < 2; a denormal one has the least normal exponent and
 *     |s| < 1, and so has c. A product's exponent is the sum of its factors': it is not normalised.
 *   - E is the largest of a floor and the exponents of c and of the products, of those that are not
 *     zero. Each of them, c too, is truncated toward zero to a multiple of 2^(E - F).
 *   - Their exact sum is truncated toward zero to a float32, denormals kept; from 2^128 on it is an
 *     infinity, and a zero is +0.
 *   - A NaN, inf * 0 or inf - inf (products and c together) gives 0x7fffffff; else an infinity, as
 *     a factor or as c, gives that infinity.
 *                                                L   F   floor
 *   mma8   sm_80 to sm_89                        8  24   -132
 *   mma16  sm_90 and later, mma.sync and wgmma  16  25   -133
 * bfloat16 and float16 follow one rule. Zeros that fill up a group change nothing, so a group may
 * be shorter. A chain is groups in ascending order, each of which takes the one before as c; it
 * starts from +0 and is never -0. Which chains a product is made of: matmul.h.
 *
 * Held to the results of a published model (tests/data/mma), whose mma16 an H100's tensor cores
 * equal (bench/measured.md, "NVIDIA H100"). No flag of the thread shows. */
#pragma once

#include "ops/device.h"

#define SHEAF__MMA_CHAIN 4096 /* elements of a term after which a chain ends, if more follow */
#define SHEAF__MMA_MOST 16    /* products of a group, at most */

/* L of an order. */
static inline int sheaf__mma_length(sheaf_sums sums)
{
    return sums == SHEAF_SUMS_MMA8 ? 8 : 16;
}

/* sheaf__mma_group - c and a[i] * b[i] for i < n <= L. c and the result are the bits of a float32;
 * dtype: BF16 or F16; sums: MMA8 or MMA16. */
uint32_t sheaf__mma_group(sheaf_sums sums, sheaf_dtype dtype, uint32_t c, const uint16_t *a,
                          const uint16_t *b, int n);
/* sheaf__mma_chain - the same of any n: groups from the first element on. */
uint32_t sheaf__mma_chain(sheaf_sums sums, sheaf_dtype dtype, uint32_t c, const uint16_t *a,
                          const uint16_t *b, int64_t n);
