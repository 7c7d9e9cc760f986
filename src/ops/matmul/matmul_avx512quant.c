/* matmul_avx512quant.c - codes to panels by AVX-512. */
#include "ops/matmul/matmul_quant512.h"

#define NAME(x) x##_avx512

#include "ops/matmul/matmul_dequantise.h"
