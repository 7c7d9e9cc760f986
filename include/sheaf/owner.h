/* owner.h - which rank owns which slices, and how their sums meet in a tree.
 *
 * Rank r of T owns slices [floor(S*r/T), floor(S*(r+1)/T)). A value that sums
 * over slices is added along the fixed binary tree on slice numbers: node
 * [b, e) adds node [b, mid) and node [mid, e); a slice that holds nothing
 * contributes nothing (its sibling passes through unchanged). The tree knows
 * S and which slices are present, never T; T only decides which complete
 * subtrees ("roots") one rank can add up alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/cut.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sheaf_owner_slices - slices of rank `rank` of `ranks`. 1 <= ranks <= slices. */
SHEAF_API sheaf_range sheaf_owner_slices(int slices, int ranks, int rank);
/* sheaf_owner_rank - the rank that owns `slice`. */
SHEAF_API int sheaf_owner_rank(int slices, int ranks, int slice);

typedef struct sheaf_root {
    int begin, end; /* slices of a complete subtree with at least one present slice */
    int rank;       /* its owner */
} sheaf_root;

typedef struct sheaf_tree {
    int slices, ranks;
    bool present[SHEAF_MAX_SLICES];
    int nroots; /* of all ranks, ascending by begin; 0 if no slice is present */
    sheaf_root root[SHEAF_MAX_SLICES];
} sheaf_tree;

/* sheaf_tree_init - roots are maximal complete subtrees inside one rank's range.
 *   slices   a power of two, at most SHEAF_MAX_SLICES
 *   ranks    1 to slices
 *   present  [slices], or NULL for all present */
SHEAF_API void sheaf_tree_init(sheaf_tree *tree, int slices, int ranks, const bool *present);
/* sheaf_tree_own - index of the first root of `rank`, and how many it has. */
SHEAF_API int sheaf_tree_own(const sheaf_tree *tree, int rank, int *count);

/* One step of a reduction program: acc[a] = acc[a] + acc[b]. */
typedef struct sheaf_tree_add {
    int a, b; /* indices into the list of operands */
} sheaf_tree_add;

/* sheaf_tree_program_roots - the additions that turn all roots' values into the
 * sum; operand i is root i, the final value is in operand 0 (returned count may
 * be 0 when there is one root). `add` holds SHEAF_MAX_SLICES entries. */
SHEAF_API int sheaf_tree_program_roots(const sheaf_tree *tree, sheaf_tree_add *add);
/* sheaf_tree_program_slices - the same inside one root: operand i is slice
 * begin + i (absent ones are never named); result lands in operand *result. */
SHEAF_API int sheaf_tree_program_slices(const sheaf_tree *tree, const sheaf_root *root,
                                        sheaf_tree_add *add, int *result);

#ifdef __cplusplus
}
#endif
