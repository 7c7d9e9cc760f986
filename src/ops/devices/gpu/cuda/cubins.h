/* cubins.h - what the module sheaf-cuda.so holds: sheaf's kernels as machine code for GPUs. */
#pragma once

#include <stddef.h>

#include "sheaf/status.h"

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

/* sheaf__cubins_open - the table of the module, which stays loaded, and the module's path, to
 * free(). Errors: SHEAF_E_UNSUPPORTED: there is none, or it is of another version. */
sheaf_status *sheaf__cubins_open(const sheaf__cubin **out, char **path);
/* sheaf__cubin_kind - of those in a table the one that a GPU of this capability runs best; NULL: it
 * runs none. */
const char *sheaf__cubin_kind(const sheaf__cubin *table, int major, int minor);
/* sheaf__cubin_kinds - "sm_80, sm_90a"; "": none. */
enum { SHEAF__CUBIN_KINDS = 200 };
void sheaf__cubin_kinds(const sheaf__cubin *table, char text[SHEAF__CUBIN_KINDS]);
/* sheaf__cubins_refuse - the status of a GPU that runs none of a table. */
struct sheaf__gpu;
sheaf_status *sheaf__cubins_refuse(const sheaf__cubin *table, const struct sheaf__gpu *gpu);
/* sheaf__cubin_unpack - its machine code, to free(). */
sheaf_status *sheaf__cubin_unpack(char **out, const sheaf__cubin *cubin);
