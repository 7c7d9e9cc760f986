/* matmul_avx2quant.c - codes to panels by AVX2. */
#include "ops/matmul/matmul_quant256.h"

#define NAME(x) x##_avx2

#include "ops/matmul/matmul_dequantise.h"
