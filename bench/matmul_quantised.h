/* matmul_quantised.h - products with a weight in codes beside those with plain panels and, where
 * the processor takes them, compressed ones. */
#pragma once

#include "ops/matmul/matmul_private.h"

/* bench_quantised - prints a line for each product: microseconds, and how much faster codes are.
 * False: `form` is none of nf4, nf4-double, fp4, int4, int8, f8. `now` is the clock. */
bool bench_quantised(const mm_isa *isa, sheaf__device *device, const char *form, sheaf_dtype dtype,
                     const char *only, double (*now)(int threads));

/* bench_memory - of matmul_bench.c: in huge pages, as the memory of a device; ends the program
 * where there is none. */
void *bench_memory(int64_t bytes);
