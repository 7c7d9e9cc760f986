/* matmul_avx2mma.c - the orders mma8 and mma16: a row by 32 columns at a time. */
#include "ops/matmul/matmul_mma_vec256.h"

#include "ops/matmul/matmul_mma_kernel.h"
