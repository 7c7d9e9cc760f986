/* kernels.c - the table: a row per op (columns.h lists them), a column per instruction set. */
#include "ops/columns.h"
#include "ops/units.h"

#include "base/base.h"
#include "base/cpu.h"

#ifndef SHEAF_NO_X86
#include <cpuid.h>
#endif

#define REF(name) .name = sheaf__##name##_ref,
#define AVX2(name) .name = sheaf__##name##_avx2,
#define AVX512(name) .name = sheaf__##name##_avx512,

static const sheaf__kernels ref = { .isa = "ref", SHEAF__KERNEL_LIST(REF) };
static const sheaf__kernels avx2 = { .isa = "avx2", SHEAF__KERNEL_LIST(AVX2) };
#ifndef SHEAF_NO_X86
static const sheaf__kernels avx512 = { .isa = "avx512", SHEAF__KERNEL_LIST(AVX512) };

/* The compiler's test also asks the operating system whether it keeps the registers.
 * F16C it may not know by name; every CPU with AVX2 so far has it, but we ask. */
static bool has_avx2(void)
{
    unsigned a, b, c = 0, d;
    return SHEAF__CPU_HAS("avx2") && SHEAF__CPU_HAS("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}

const sheaf__kernels *sheaf__kernels_for(const char *isa)
{
    /* The reference is plain C, but compiled for the least machine that trains. */
    if (!has_avx2())
        return NULL;
    if (isa == NULL)
        return sheaf__cpu_has_avx512() ? &avx512 : &avx2;
    if (strcmp(isa, "ref") == 0)
        return &ref;
    if (strcmp(isa, "avx2") == 0)
        return &avx2;
    if (strcmp(isa, "amx") == 0)
        return sheaf__units_have_tiles() ? &avx512 : NULL;
    if (strcmp(isa, "avx512bf16") == 0)
        return sheaf__units_have_pairs() ? &avx512 : NULL;
    return strcmp(isa, "avx512") == 0 && sheaf__cpu_has_avx512() ? &avx512 : NULL;
}
#else
const sheaf__kernels *sheaf__kernels_for(const char *isa)
{
    if (isa == NULL || strcmp(isa, "avx2") == 0)
        return &avx2; /* by lanes.h */
    return strcmp(isa, "ref") == 0 ? &ref : NULL;
}
#endif
