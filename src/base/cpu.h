/* cpu.h - features of the processor, checked where a function compiled for more than baseline
 * x86-64 may be called. A build for other machines, or with -Disa=ref, has SHEAF_NO_X86 and no such
 * function: kernels in plain C and by ops/lanes.h. */
#pragma once

#include <stdbool.h>

/* A macro, since the compiler wants the name as a literal. */
#ifdef SHEAF_NO_X86
#define SHEAF__CPU_HAS(feature) false
#else
#define SHEAF__CPU_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#endif

/* The part of AVX-512 that our kernels use. */
static inline bool sheaf__cpu_has_avx512(void)
{
    return SHEAF__CPU_HAS("avx512f") && SHEAF__CPU_HAS("avx512bw") && SHEAF__CPU_HAS("avx512dq") &&
           SHEAF__CPU_HAS("avx512vl");
}
