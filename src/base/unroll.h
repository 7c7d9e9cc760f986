/* unroll.h - UNROLL for (...): a short loop over the registers of a tile, or over independent sums,
 * must vanish, or the compiler keeps them in memory. At most 16 turns. */
#pragma once

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
