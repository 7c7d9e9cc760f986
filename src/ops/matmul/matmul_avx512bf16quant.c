/* matmul_avx512bf16quant.c - codes to panels by AVX-512, and the instruction that rounds to
 * bfloat16. */
#include "ops/matmul/matmul_quant512.h"

#define NAME(x) x##_avx512bf16

#include "ops/matmul/matmul_dequantise.h"
