/* owner_test.c - ranks tile the slices; the sum over slices is the definition,
 * a recursion on [b, e), whatever T splits it into. */
#include "tests/check.h"

#include "sheaf/owner.h"

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

TEST(test_owner__ranks_tile_the_slices)
{
    for (int slices = 1; slices <= SHEAF_MAX_SLICES; slices *= 2)
        for (int ranks = 1; ranks <= slices; ranks++) {
            int64_t at = 0;
            for (int r = 0; r < ranks; r++) {
                const sheaf_range own = sheaf_owner_slices(slices, ranks, r);
                assert_int_equal(own.begin, at);
                assert_true(own.end > own.begin); /* no rank idles while T <= S */
                for (int64_t s = own.begin; s < own.end; s++)
                    assert_int_equal(sheaf_owner_rank(slices, ranks, (int)s), r);
                at = own.end;
            }
            assert_int_equal(at, slices);
        }
}

/* The definition: returns false when the node holds nothing. */
static bool sum_of_node(float *sum, const float *value, const bool *present, int begin, int end)
{
    if (end - begin == 1) {
        *sum = value[begin];
        return present[begin];
    }
    const int mid = begin + (end - begin) / 2;
    float a, b;
    const bool has_a = sum_of_node(&a, value, present, begin, mid);
    const bool has_b = sum_of_node(&b, value, present, mid, end);
    *sum = has_a && has_b ? a + b : has_a ? a : b;
    return has_a || has_b;
}

static void check_roots(const sheaf_tree *tree)
{
    int covered = 0, next_root = 0;
    for (int r = 0; r < tree->ranks; r++) {
        int count;
        const int first = sheaf_tree_own(tree, r, &count);
        assert_int_equal(first, next_root);
        next_root += count;
        const sheaf_range own = sheaf_owner_slices(tree->slices, tree->ranks, r);
        for (int i = first; i < first + count; i++) {
            const sheaf_root *root = &tree->root[i];
            const int size = root->end - root->begin;
            assert_int_equal(root->rank, r);
            assert_true(root->begin >= own.begin && root->end <= own.end);
            assert_true((size & (size - 1)) == 0 && root->begin % size == 0);
            /* maximal: the parent is not inside this rank's range */
            const int parent = root->begin / (2 * size) * (2 * size);
            assert_true(size == tree->slices || parent < own.begin || parent + 2 * size > own.end);
            int present = 0;
            for (int s = root->begin; s < root->end; s++)
                present += tree->present[s];
            assert_true(present > 0);
            covered += present;
        }
    }
    assert_int_equal(next_root, tree->nroots);
    for (int s = 0; s < tree->slices; s++)
        covered -= tree->present[s];
    assert_int_equal(covered, 0); /* every present slice is in exactly one root */
}

/* Runs both programs as comm and matmul do. */
static float sum_by_programs(const sheaf_tree *tree, const float *value)
{
    sheaf_tree_add add[SHEAF_MAX_SLICES];
    float root[SHEAF_MAX_SLICES];
    for (int i = 0; i < tree->nroots; i++) {
        float acc[SHEAF_MAX_SLICES];
        const sheaf_root *at = &tree->root[i];
        for (int s = at->begin; s < at->end; s++)
            acc[s - at->begin] =
                tree->present[s] ? value[s] : NAN; /* absent ones are never named */
        int result = -1;
        const int count = sheaf_tree_program_slices(tree, at, add, &result);
        for (int j = 0; j < count; j++)
            acc[add[j].a] = acc[add[j].a] + acc[add[j].b];
        root[i] = acc[result];
    }
    const int count = sheaf_tree_program_roots(tree, add);
    assert_true(tree->nroots == 0 ? count == 0 : count == tree->nroots - 1);
    for (int j = 0; j < count; j++)
        root[add[j].a] = root[add[j].a] + root[add[j].b];
    return root[0];
}

static void check_sum(int slices, const bool *present, uint64_t *seed)
{
    float value[SHEAF_MAX_SLICES] = { 0 }, want = 0;
    for (int s = 0; s < slices; s++)
        value[s] = ldexpf((float)next(seed) / 1e9f - 1, (int)(next(seed) % 20));
    const bool any = sum_of_node(&want, value, present, 0, slices);
    for (int ranks = 1; ranks <= slices; ranks++) {
        sheaf_tree tree;
        sheaf_tree_init(&tree, slices, ranks, present);
        check_roots(&tree);
        assert_int_equal(tree.nroots > 0, any);
        if (any) {
            const float got = sum_by_programs(&tree, value);
            CHECK_BYTES("sum", &got, &want, sizeof got);
        } else {
            sheaf_tree_add add[SHEAF_MAX_SLICES];
            assert_int_equal(sheaf_tree_program_roots(&tree, add), 0);
        }
    }
}

TEST(test_tree__sums_equal_the_definition_at_every_T)
{
    uint64_t seed = 7;
    for (int slices = 1; slices <= SHEAF_MAX_SLICES; slices *= 2)
        for (int trial = 0; trial < 150; trial++) {
            bool present[SHEAF_MAX_SLICES];
            for (int s = 0; s < slices; s++)
                present[s] = trial == 0 || (trial > 1 && next(&seed) % 8 < (uint64_t)(trial % 9));
            check_sum(slices, present, &seed);
        }
}

TEST(test_tree__every_set_of_eight_slices)
{
    uint64_t seed = 11;
    for (int set = 0; set < 256; set++) {
        bool present[8];
        for (int s = 0; s < 8; s++)
            present[s] = set >> s & 1;
        check_sum(8, present, &seed);
    }
}

/* The worked example of docs/layouts.md, S = 8 and T = 3: ranks own [0,2) [2,5) [5,8). */
typedef struct by_hand {
    const char *name;
    bool present[8];
    int nroots, adds;
    sheaf_root root[8];
    sheaf_tree_add add[8];
} by_hand;

static const by_hand three_ranks[] = {
    { "all slices", LIST(1, 1, 1, 1, 1, 1, 1, 1), 5, 4,
      LIST({ 0, 2, 0 }, { 2, 4, 1 }, { 4, 5, 1 }, { 5, 6, 2 }, { 6, 8, 2 }),
      LIST({ 0, 1 }, { 2, 3 }, { 2, 4 }, { 0, 2 }) },
    { "three heads", LIST(0, 0, 1, 0, 0, 1, 0, 1), 3, 2,
      LIST({ 2, 4, 1 }, { 5, 6, 2 }, { 6, 8, 2 }), LIST({ 1, 2 }, { 0, 1 }) },
};

TEST(test_tree__three_ranks_by_hand)
{
    for (size_t k = 0; k < ARRAY_LEN(three_ranks); k++) {
        const by_hand *want = &three_ranks[k];
        sheaf_tree tree;
        sheaf_tree_init(&tree, 8, 3, want->present);
        assert_int_equal(tree.nroots, want->nroots);
        for (int i = 0; i < want->nroots; i++) {
            assert_int_equal(tree.root[i].begin, want->root[i].begin);
            assert_int_equal(tree.root[i].end, want->root[i].end);
            assert_int_equal(tree.root[i].rank, want->root[i].rank);
        }
        sheaf_tree_add add[SHEAF_MAX_SLICES];
        assert_int_equal(sheaf_tree_program_roots(&tree, add), want->adds);
        for (int i = 0; i < want->adds; i++) {
            assert_int_equal(add[i].a, want->add[i].a);
            assert_int_equal(add[i].b, want->add[i].b);
        }
    }
}
