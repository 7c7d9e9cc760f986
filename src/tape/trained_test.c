/* trained_test.c - sums of gradients over accumulators, and the norm of them. */
#include "tests/check.h"

#include "tape/trained.h"

enum { N = 70, MOST = 8 };

static float number_of(int g, int64_t i)
{
    return sinf((float)(g * 131 + i * 7 + 1)) * (float)(1 << (g * 3 + (int)i) % 11);
}

/* The contract's tree over accumulators [begin, end); accumulators that are not in `held` give
 * nothing. */
static bool tree(float *out, int begin, int end, unsigned held, int64_t i)
{
    float a, b;
    if (end - begin == 1) {
        *out = number_of(begin, i);
        return (held >> begin & 1) != 0;
    }
    const int mid = (begin + end) / 2;
    const bool left = tree(&a, begin, mid, held, i), right = tree(&b, mid, end, held, i);
    *out = left && right ? a + b : left ? a : b;
    return left || right;
}

static void test_accumulators__meet_in_the_tree(void **state)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    CHECK_OK(sheaf__device_open(&c.device, SHEAF_CPU, 1, NULL, 0));
    int chains = 0;
    for (int count = 1; count <= MOST; count *= 2)
        for (int n = 1; n <= 9; n++) { /* micro-batches: with fewer than `count` some stay empty */
            unsigned held = 0;
            for (int g = 0; g < count; g++)
                held |= (unsigned)(n * (g + 1) / count > n * g / count) << g;
            sheaf__trained_set *set;
            sheaf__trained *t;
            sheaf__accumulators stack;
            float chain[N] = { 0 };
            CHECK_OK(sheaf__trained_set_new(&set, &c));
            CHECK_OK(sheaf__trained_add(&t, set, "x", 1, (int64_t[]){ N }, NULL, true));
            CHECK_OK(sheaf__trained_allocate(set));
            sheaf__accumulators_open(&stack, count);
            for (int g = 0; g < count; g++) {
                if ((held >> g & 1) == 0)
                    continue;
                CHECK_OK(sheaf__accumulator_begin(set, &stack, g));
                for (int64_t i = 0; i < N; i++) {
                    assert_true(t->grad[0][i] == 0);
                    t->grad[0][i] += number_of(g, i);
                    chain[i] += number_of(g, i);
                }
                sheaf__accumulator_end(set, &stack);
            }
            sheaf__accumulators_close(set, &stack);
            assert_true(set->nsums <= 4); /* one for each level of the tree */
            for (int64_t i = 0; i < N; i++) {
                float want = 0;
                tree(&want, 0, count, held, i);
                CHECK_NEAR("sum", t->grad[0][i], want, 0);
                chains += want != chain[i];
            }
            sheaf__trained_set_free(set);
        }
    assert_true(chains > 0); /* or nothing would be shown */
    sheaf__device_close(c.device);
}

/* Of 2^53 and many ones the order is seen: slices meet in the tree, tensors in the order of their
 * names. */
static void test_norm__of_slices_in_the_tree_and_of_names_in_order(void **state)
{
    enum { SLICES = 8, SMALL = 7 };
    static const char *const names[] = {
        "z", "g", "b", "e", "a", "d", "f", "c"
    }; /* the large one first */
    sheaf__context c = { .ranks = 1, .slices = SLICES, .own = { 0, SLICES }, .dtype = SHEAF_F32 };
    const sheaf_cut cut = { .slices = SLICES, .nparts = 1, .part = { { SLICES, 2 } } };
    double norm;
    CHECK_OK(sheaf__device_open(&c.device, SHEAF_CPU, 1, NULL, 0));
    for (int way = 0; way < 3; way++) {
        const bool whole = way == 2;
        const int large = way == 1 ? SLICES - 1 : 0;
        sheaf__trained_set *set;
        sheaf__trained *t[1 + SMALL];
        CHECK_OK(sheaf__trained_set_new(&set, &c));
        for (int i = 0; i < (whole ? 1 + SMALL : 1); i++)
            CHECK_OK(sheaf__trained_add(&t[i], set, names[i], 1, (int64_t[]){ 2 * SLICES },
                                        whole ? NULL : &cut, true));
        CHECK_OK(sheaf__trained_allocate(set));
        for (int i = 0; i < SLICES; i++) {
            float *grad = t[whole ? i : 0]->grad[whole ? 0 : i];
            grad[0] = i == large ? 0x1p26f : 1;
            grad[1] = i == large ? 0x1p26f : 0;
        }
        CHECK_OK(sheaf__grad_norm(&norm, set));
        /* tree: the large one meets 1, then 2, then 4; names: 1 + 1 + ... + 2^53 */
        const double want = whole ? 7 + 0x1p53 : ((0x1p53 + 1) + 2) + 4;
        CHECK_NEAR(whole ? "names" : "slices", norm, sqrt(want), 0);
        assert_true(sqrt(want) != sqrt(0x1p53)); /* or nothing would be shown */
        sheaf__trained_set_free(set);
    }
    sheaf__device_close(c.device);
}

static void test_update__each_tensor_has_its_own_rate_and_decay(void **state)
{
    static const struct {
        bool decay;
        double scale;
    } own[] = { { true, 1 }, { false, 1 }, { true, 0.25 }, { false, 3 } };
    const sheaf__adamw how = { .lr = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .eps = 1e-8,
                               .weight_decay = 0.5,
                               .bias1 = 0.1,
                               .bias2_sqrt = 0.1,
                               .grad_scale = 1 };
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    sheaf__trained_set *set;
    sheaf__trained *t[ARRAY_LEN(own)];
    CHECK_OK(sheaf__device_open(&c.device, SHEAF_CPU, 1, NULL, 0));
    CHECK_OK(sheaf__trained_set_new(&set, &c));
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        CHECK_OK(sheaf__trained_add(&t[i], set, "x", 1, (int64_t[]){ 1 }, NULL, own[i].decay));
        t[i]->lr_scale = own[i].scale;
    }
    CHECK_OK(sheaf__trained_allocate(set));
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        t[i]->master[0][0] = 1, t[i]->grad[0][0] = 2;
    sheaf__trained_update(set, &how);
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        sheaf__adamw alone = how;
        float p = 1, m = 0, v = 0;
        const float g = 2;
        alone.lr = 0.1 * own[i].scale;
        alone.weight_decay = own[i].decay ? 0.5 : 0;
        c.device->kernels->adamw(&p, &m, &v, &g, 1, &alone);
        CHECK_NEAR("master", t[i]->master[0][0], p, 0);
        for (size_t k = 0; k < i; k++)
            assert_true(t[k]->master[0][0] != t[i]->master[0][0]); /* or nothing would be shown */
    }
    sheaf__trained_set_free(set);
    sheaf__device_close(c.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulators__meet_in_the_tree),
        cmocka_unit_test(test_norm__of_slices_in_the_tree_and_of_names_in_order),
        cmocka_unit_test(test_update__each_tensor_has_its_own_rate_and_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
