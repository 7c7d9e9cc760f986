/* nvcc.h - the names of kernel.h for nvcc, in PTX where C++ has none. */
#pragma once

#include "base/shared_fn.h"

#define KERNEL(name, arguments, ...)                                                               \
    DEVICE void name##_of(const arguments *a);                                                     \
    static_assert(sizeof(arguments) <= 4096, "what every driver passes to a kernel");              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        name(const __grid_constant__ arguments a)                                                  \
    {                                                                                              \
        name##_of(&a);                                                                             \
    }                                                                                              \
    DEVICE void name##_of(const arguments *a)

extern __shared__ __align__(1024) char shared_memory[];

/* All threads of the block; what they wrote to shared and global memory is seen by all. */
DEVICE void sync_threads(void)
{
    __syncthreads();
}

/* The same for the 32 lanes of a warp. */
DEVICE void sync_warp(void)
{
    __syncwarp();
}

/* Of another lane of the warp, (own ^ by), all of whose 32 lanes call it. */
DEVICE float shuffle_xor(float x, int by)
{
    return __shfl_xor_sync(~0u, x, by);
}
DEVICE double shuffle_xor_d(double x, int by)
{
    return __shfl_xor_sync(~0u, x, by);
}
DEVICE int32_t shuffle_xor_i(int32_t x, int by)
{
    return __shfl_xor_sync(~0u, x, by);
}

/* Address of a pointer into shared memory, for an instruction. */
DEVICE uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* ---- tensor cores: m16n8k16 of a warp, d += A B, in the order of the GPU (mma.h) ---- */

#define SHEAF__MMA(name, type)                                                                     \
    DEVICE void name(float *d, const uint32_t *a, const uint32_t *b)                               \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"                          \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
SHEAF__MMA(mma_bf16, "bf16")
SHEAF__MMA(mma_f16, "f16")
#undef SHEAF__MMA

/* Four 8 x 8 matrices of 16 bits from shared memory; lane l names row l % 8 of matrix l / 8, 16
 * bytes at a multiple of 16. */
DEVICE void load_matrices(uint32_t *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
/* The same, each transposed. */
DEVICE void load_transposed(uint32_t *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* ---- copies from global to shared memory, behind the thread's back ---- */

/* 16 bytes, both sides at multiples of 16; zeros if not `there`. They have come when copies_wait(n)
 * has left at most n committed groups of this thread, and a barrier shows them to the others. */
DEVICE void copy_16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
DEVICE void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define copies_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
