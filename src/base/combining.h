/* combining.h - a sum of float32 over ranks, where the operands lie: comm makes the list, a device
 * adds. */
#pragma once

#include <stdint.h>

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
