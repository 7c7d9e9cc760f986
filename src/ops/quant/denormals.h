/* denormals.h - arithmetic that keeps denormals, on a thread that may have DAZ and FTZ set. */
#pragma once

#ifndef SHEAF_NO_X86
#include <immintrin.h>
#endif

/* sheaf__keep_denormals - the flags as they were, for sheaf__denormals_as(). What computes between
 * the two is a function that is not inlined: a compiler does not know that the flags matter. */
static inline unsigned sheaf__keep_denormals(void)
{
#ifndef SHEAF_NO_X86
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before & ~0x8040u);
    return before;
#else
    return 0;
#endif
}

static inline void sheaf__denormals_as(unsigned before)
{
#ifndef SHEAF_NO_X86
    _mm_setcsr(before);
#else
    (void)before;
#endif
}
