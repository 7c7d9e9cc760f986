/* cubins.h - what the module sheaf-cuda.so holds: sheaf's kernels as machine code for GPUs. */
#pragma once

#include <stddef.h>

/* One file of kernels, for one kind of GPU. Code runs on GPUs of the same major capability and the
 * same minor one or a later; such as is for sm_90a on 9.0 alone. */
typedef struct sheaf__cubin {
    const char *kind, *file; /* "sm_90a", "norm"; NULL: the end of the table */
    const unsigned char *data;
    size_t packed, bytes; /* of zstd, and unpacked */
} sheaf__cubin;

/* The version of sheaf whose kernels these are is a symbol, too: those of another one take other
 * arguments. */
#define SHEAF__CUBINS_SYMBOL "sheaf_cubins"
#define SHEAF__CUBINS_BUILD "sheaf_cubins_build"
