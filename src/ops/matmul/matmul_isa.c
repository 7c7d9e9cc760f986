/* matmul_isa.c - which kernel computes which dtype on which instruction set. */
#include "ops/matmul/matmul_private.h"

static const mm_engine avx2_f32 = { mm_run_avx2, mm_copy_avx2, MM_STRIDE_F32, 6, 6, false, 0 };
static const mm_engine avx2_bf16 = { mm_run_avx2, mm_copy_avx2, MM_STRIDE_F32, 6, 6, true, 2 };
/* Ten rows where A is read in place: rows a power of two apart share a set of an eight-way
 * first-level cache, and eight chains are the least that fill two pipes. */
static const mm_engine avx512_f32 = { mm_run_avx512, mm_copy_avx512, MM_STRIDE_F32, 14, 10, false, 0 };
static const mm_engine avx512_bf16 = { mm_run_avx512, mm_copy_avx512, MM_STRIDE_F32, 14, 12, true, 4 };
static const mm_engine avx512_pairs = { mm_run_avx512bf16, mm_copy_avx512bf16, MM_STRIDE_PAIRS, 14, 12, false, 0 };

const mm_isa sheaf__mm_ref = { "ref", NULL, NULL };
const mm_isa sheaf__mm_avx2 = { "avx2", &avx2_f32, &avx2_bf16 };
const mm_isa sheaf__mm_avx512 = { "avx512", &avx512_f32, &avx512_bf16 };
const mm_isa sheaf__mm_avx512bf16 = { "avx512", &avx512_f32, &avx512_pairs };

const mm_isa *sheaf__mm_isa_for(const char *isa)
{
    if (strcmp(isa, "avx2") == 0)
        return &sheaf__mm_avx2;
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512bf16") ? &sheaf__mm_avx512bf16 : &sheaf__mm_avx512;
    return &sheaf__mm_ref;
}
