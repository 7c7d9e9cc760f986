/* kernel.h - the names that kernels are written with.
 *
 * A file of kernels is C11 in all but these names. nvcc makes device code of it; gcc and clang make
 * a program for the processor of it for tests, in which each thread of a block is a fibre: they are
 * told to include tests/gpu/emulation.h before it, which has the names of the machine. Thread and
 * block are named as in CUDA: threadIdx, blockIdx, blockDim, gridDim.
 *
 *     KERNEL(add, add_arguments, 256) { ... a->x ... }     one kernel, `add`
 *     KERNELS(add, add_arguments, 256) { ... dtype ... }   add_f32, add_bf16, add_f16: `dtype` is
 *                                                          a constant
 *
 * A kernel has one argument, a struct, which both sides read; `a` points to it. 256: threads of a
 * block, at most; TWICE(256): and two such blocks shall fit a multiprocessor. Dynamic shared
 * memory, whose size the launch says, is `shared_memory`, of whatever alignment; it is garbage at
 * first. Never fminf or fmaxf (zeros, NaN): round.h has sheaf__max(). What is not written as fmaf()
 * is not fused. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/shared_fn.h"
#include "sheaf/dtype.h"

#define DEVICE SHEAF__SHARED_FN
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1") /* rare work shall take few registers */
#define TWICE(threads) threads, 2
#else
#define UNROLL
#define ROLLED
#define TWICE(threads) threads
#endif

#define KERNELS(name, arguments, threads)                                                          \
    DEVICE void name##_as(const arguments *a, sheaf_dtype dtype);                                  \
    KERNEL(name##_f32, arguments, threads)                                                         \
    {                                                                                              \
        name##_as(a, SHEAF_F32);                                                                   \
    }                                                                                              \
    KERNEL(name##_bf16, arguments, threads)                                                        \
    {                                                                                              \
        name##_as(a, SHEAF_BF16);                                                                  \
    }                                                                                              \
    KERNEL(name##_f16, arguments, threads)                                                         \
    {                                                                                              \
        name##_as(a, SHEAF_F16);                                                                   \
    }                                                                                              \
    DEVICE void name##_as(const arguments *a, sheaf_dtype dtype)

#ifdef __CUDACC__
#include "ops/devices/gpu/cuda/nvcc.h"
#endif
