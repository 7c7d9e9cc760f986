/* owner.c - see sheaf/owner.h. */
#include "sheaf/owner.h"

#include <assert.h>

sheaf_range sheaf_owner_slices(int slices, int ranks, int rank)
{
    return (sheaf_range){ (int64_t)slices * rank / ranks, (int64_t)slices * (rank + 1) / ranks };
}

/* floor(S*r/T) <= s  <=>  S*r < (s+1)*T  <=>  r <= ((s+1)*T - 1) / S; the owner is the largest such
 * r. */
int sheaf_owner_rank(int slices, int ranks, int slice)
{
    return (int)((((int64_t)slice + 1) * ranks - 1) / slices);
}

static bool any_present(const sheaf_tree *tree, int begin, int end)
{
    for (int s = begin; s < end; s++)
        if (tree->present[s])
            return true;
    return false;
}

static void find_roots(sheaf_tree *tree, int begin, int end)
{
    const int rank = sheaf_owner_rank(tree->slices, tree->ranks, begin);
    if (!any_present(tree, begin, end))
        return;
    if (rank == sheaf_owner_rank(tree->slices, tree->ranks, end - 1)) {
        tree->root[tree->nroots++] = (sheaf_root){ begin, end, rank };
        return;
    }
    const int mid = begin + (end - begin) / 2;
    find_roots(tree, begin, mid);
    find_roots(tree, mid, end);
}

void sheaf_tree_init(sheaf_tree *tree, int slices, int ranks, const bool *present)
{
    assert(slices >= 1 && slices <= SHEAF_MAX_SLICES && (slices & (slices - 1)) == 0);
    assert(ranks >= 1 && ranks <= slices);
    *tree = (sheaf_tree){ .slices = slices, .ranks = ranks };
    for (int s = 0; s < slices; s++)
        tree->present[s] = present == NULL || present[s];
    find_roots(tree, 0, slices);
}

int sheaf_tree_own(const sheaf_tree *tree, int rank, int *count)
{
    int first = 0;
    while (first < tree->nroots && tree->root[first].rank < rank)
        first++;
    int end = first;
    while (end < tree->nroots && tree->root[end].rank == rank)
        end++;
    *count = end - first;
    return first;
}

/* A walk down the tree that writes additions on its way back. */
typedef struct walk {
    const sheaf_tree *tree;
    const sheaf_root *root; /* operands are its slices; NULL: operands are the roots */
    sheaf_tree_add *add;
    int count;
} walk;

#define NOTHING (-1)

/* The operand a node is without adding: a root or a slice. NOTHING if it has to be split. */
static int leaf_operand(const walk *w, int begin, int end)
{
    if (w->root != NULL)
        return end - begin == 1 ? begin - w->root->begin : NOTHING;
    for (int i = 0; i < w->tree->nroots; i++)
        if (w->tree->root[i].begin == begin && w->tree->root[i].end == end)
            return i;
    return NOTHING;
}

/* Returns the operand that holds node [begin, end) after the additions so far. */
static int visit(walk *w, int begin, int end)
{
    if (!any_present(w->tree, begin, end))
        return NOTHING;
    const int leaf = leaf_operand(w, begin, end);
    if (leaf != NOTHING)
        return leaf;
    const int mid = begin + (end - begin) / 2;
    const int a = visit(w, begin, mid), b = visit(w, mid, end);
    if (a == NOTHING || b == NOTHING)
        return a == NOTHING ? b : a;
    w->add[w->count++] = (sheaf_tree_add){ a, b };
    return a;
}

int sheaf_tree_program_roots(const sheaf_tree *tree, sheaf_tree_add *add)
{
    walk w = { .tree = tree, .add = add };
    visit(&w, 0, tree->slices);
    return w.count;
}

int sheaf_tree_program_slices(const sheaf_tree *tree, const sheaf_root *root, sheaf_tree_add *add,
                              int *result)
{
    walk w = { .tree = tree, .root = root, .add = add };
    *result = visit(&w, root->begin, root->end);
    return w.count;
}
