/* 01_the_tree.c - how a sum over slices comes out the same on any number of ranks.
 *
 *   01_the_tree
 *
 * Adds one float per slice along the fixed tree, as 1, 2, ... 8 ranks would: each
 * adds the complete subtrees it owns, then the roots are added. That sum has the same
 * bits in every line; the sum rank by rank has not. */
#include <stdio.h>

#include "sheaf/owner.h"

enum { SLICES = 8 };
static const float value[SLICES] = { 0.1f, 12345.6f, -3.3f, 777.7f, 1e-3f, -9876.5f, 0.7f, 12.5f };

static float root_sum(const sheaf_tree *tree, const sheaf_root *root)
{
    float operand[SLICES];
    sheaf_tree_add add[SHEAF_MAX_SLICES];
    int result;
    for (int s = root->begin; s < root->end; s++)
        operand[s - root->begin] = value[s];
    const int adds = sheaf_tree_program_slices(tree, root, add, &result);
    for (int i = 0; i < adds; i++)
        operand[add[i].a] += operand[add[i].b];
    return operand[result];
}

static float tree_sum(int ranks)
{
    sheaf_tree tree;
    sheaf_tree_init(&tree, SLICES, ranks, NULL);
    float operand[SLICES];
    for (int i = 0; i < tree.nroots; i++)
        operand[i] = root_sum(&tree, &tree.root[i]); /* on rank tree.root[i].rank */
    sheaf_tree_add add[SHEAF_MAX_SLICES];
    const int adds = sheaf_tree_program_roots(&tree, add);
    for (int i = 0; i < adds; i++)
        operand[add[i].a] += operand[add[i].b];
    return operand[0];
}

static float rank_by_rank_sum(int ranks)
{
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const sheaf_range own = sheaf_owner_slices(SLICES, ranks, rank);
        float part = 0;
        for (int64_t s = own.begin; s < own.end; s++)
            part += value[s];
        sum += part;
    }
    return sum;
}

int main(void)
{
    for (int ranks = 1; ranks <= SLICES; ranks++)
        printf("%d ranks: tree %.9g, rank by rank %.9g\n", ranks, (double)tree_sum(ranks),
               (double)rank_by_rank_sum(ranks));
    return 0;
}
