/* columns.h - declares every kernel of the table in each of its columns.
 *
 * The list is the table: a kernel named here and not written in one of the
 * columns does not link. A fast kernel is written once, on vec.h, and compiled
 * once for each instruction set with SHEAF__ISA set to the column's name. */
#pragma once

#include "ops/kernels.h"

/* clang-format off */
#define SHEAF__KERNEL_LIST(X)                                                              \
    X(round) X(widen) X(convert) X(add) X(scale) X(finish) X(accumulate) X(squares)        \
    X(column_sums) X(rmsnorm) X(rmsnorm_back) X(layernorm_sum)               \
    X(layernorm_squares) X(layernorm) X(layernorm_back_sums) X(layernorm_back)             \
    X(layernorm_dw) X(gelu) X(gelu_back) X(rope_pairs) X(rope) X(swiglu) X(swiglu_back)    \
    X(row_max) X(row_sumexp) X(row_dlogits) X(adamw) X(adamw8)   \
    X(dropout) X(noise) X(softcap) X(softcap_back) X(shrink) X(expand)                     \
    X(largest) X(codes4) X(codes8) X(codes_int8) X(values) X(values8)
/* clang-format on */

/* Functions of the type the table's cell points to. */
#define SHEAF__DECLARE(name)                                                                       \
    extern __typeof__(*((sheaf__kernels *)0)->name) sheaf__##name##_ref, sheaf__##name##_avx2,     \
        sheaf__##name##_avx512;
SHEAF__KERNEL_LIST(SHEAF__DECLARE)

#define SHEAF__PASTE(name, isa) sheaf__##name##_##isa
#define SHEAF__EXPAND(name, isa) SHEAF__PASTE(name, isa)
#define SHEAF__FAST(name) SHEAF__EXPAND(name, SHEAF__ISA)
