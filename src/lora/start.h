/* start.h - numbers that new factors begin with, of a whole matrix. */
#pragma once

#include "lora/adapter.h"
#include "ops/device.h"

typedef struct sheaf__start {
    const float *w; /* [out, in] of PiSSA and OLoRA */
    int64_t out, in, rank;
    float scale;
    uint64_t seed, key;    /* of random numbers, which take the two keys behind it too */
    sheaf__pool *pool;     /* its threads do not show in the result */
    sheaf__device *device; /* whose sheaf__host_alloc() gives memory; NULL: the system does */
    const char *name;      /* of w, for messages */
} sheaf__start;

/* sheaf__start_is_whole - are the factors made by sheaf__start_make(), not element by element? */
static inline bool sheaf__start_is_whole(sheaf_lora_init init)
{
    return init >= SHEAF_LORA_ORTHOGONAL;
}
/* sheaf__start_is_held - does the start stay beside the factors, subtracted from them? Then rows
 * [rank, 2 rank) of A and columns of B are the start and its negative, and are not trained. */
static inline bool sheaf__start_is_held(sheaf_lora_init init)
{
    return init >= SHEAF_LORA_PISSA;
}

/* sheaf__start_read - rows [row0, row0 + rows) of a stored matrix [, cols] in float32, `ld` apart.
 * Errors: SHEAF_E_MEMORY, those of reading. */
sheaf_status *sheaf__start_read(float *to, int64_t ld, sheaf_source *from,
                                const sheaf_source_entry *entry, int64_t row0, int64_t rows,
                                int64_t cols);
/* sheaf__start_bytes - memory that sheaf__start_make() takes beside its operands. It takes more for
 * PiSSA only of a matrix whose singular values lie closer than those of random numbers. */
size_t sheaf__start_bytes(sheaf_lora_init init, int64_t out, int64_t in, int64_t rank);
/* sheaf__start_make - A [rank, in] and B [out, rank], whose rows are `ld` apart. Errors:
 * SHEAF_E_MEMORY; SHEAF_E_NUMBER of w, and of a scale that PiSSA cannot divide by. */
sheaf_status *sheaf__start_make(float *a, float *b, int64_t ld, sheaf_lora_init init,
                                const sheaf__start *how);
/* sheaf__start_hold - the same behind rank rows of A [2 rank, in] and columns of B [out, 2 rank],
 * there with -B; fresh: the factors before them become the start. */
sheaf_status *sheaf__start_hold(float *a, float *b, bool fresh, sheaf_lora_init init,
                                const sheaf__start *how);
/* sheaf__lora_take_start - for an adapter that PEFT saved unconverted
 * (sheaf__lora_options_started()), whose modules have the base's names: it becomes plain LoRA of
 * twice the rank, with the start that PEFT makes again as it loads it; *adapter then owns what it
 * was. base NULL: the options alone. Unchanged where it is none, and on failure. Errors:
 * SHEAF_E_UNSUPPORTED for other layers. */
sheaf_status *sheaf__lora_take_start(sheaf_source **adapter, sheaf_lora_options *options,
                                     sheaf_source *base);
