/* matmul_avx512mma.c - the orders mma8 and mma16: two rows by 32 columns at a time. */
#include "ops/matmul/matmul_mma_vec512.h"

#include "ops/matmul/matmul_mma_kernel.h"
