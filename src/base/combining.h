/* combining.h - exchanges of ranks that reach each other's memory: comm says what is moved and
 * added, a device does it where the operands lie. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sheaf/status.h"

/* A step adds two of the operands, 0 and up, or of the results of earlier steps, ~0 and down; `to`
 * is such a result, SHEAF__COMBINED the whole. */
typedef struct sheaf__combining_step {
    int to, a, b;
} sheaf__combining_step;

#define SHEAF__COMBINING_SLOTS 8 /* results alive at once: the depth of a tree of 64 */
#define SHEAF__COMBINED (~SHEAF__COMBINING_SLOTS)

/* Elements [begin, end) of every output become the sum of the operands by the steps; without steps
 * the one operand, or +0 where there is none. Outputs may be operands. */
typedef struct sheaf__combining {
    int ranks, operands, steps;
    float *const *out;                 /* [ranks], one's own first */
    const float *const *operand;       /* [operands] */
    const sheaf__combining_step *step; /* [steps] */
    int64_t begin, end;
} sheaf__combining;

/* SHEAF_PEERS=off: neither other GPUs nor an MPI reach into the memory of a GPU. */
static inline bool sheaf__peers_are_off(void)
{
    const char *peers = getenv("SHEAF_PEERS");
    return peers != NULL && strcmp(peers, "off") == 0;
}

/* Moves and adds in memory that the processor cannot read.
 *   lend     returns when the operands that this rank lends to the next exchange are complete
 *   wait     returns when its copies and sums are done
 *   copy     may return before it is done
 *   combine  as `copy`
 *   fetch, place  as `copy`, to and from memory of the processor
 *   pinned   memory of the processor that is the mover's, too: at least so many bytes, the same at
 *            the next call unless that asks for more; owned by `self`
 *   abandon  others may write into all of it until the process ends: none of it is freed */
typedef struct sheaf__mover {
    sheaf_status *(*lend)(void *self);
    sheaf_status *(*wait)(void *self);
    sheaf_status *(*copy)(void *self, void *to, const void *from, size_t bytes);
    sheaf_status *(*combine)(void *self, const sheaf__combining *what);
    sheaf_status *(*fetch)(void *self, void *to, const void *from, size_t bytes);
    sheaf_status *(*place)(void *self, void *to, const void *from, size_t bytes);
    sheaf_status *(*pinned)(void **out, void *self, size_t bytes);
    void (*abandon)(void *self);
} sheaf__mover;
