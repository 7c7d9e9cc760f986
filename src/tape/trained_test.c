/* trained_test.c - sums of gradients over lanes, and the norm of them. */
#include "tests/check.h"

#include "tape/trained.h"

enum { N = 70, MOST = 8 };

static float number_of(int lane, int64_t i) { return sinf((float)(lane * 131 + i * 7 + 1)) * (float)(1 << (lane * 3 + (int)i) % 11); }

/* The contract's tree over lanes [begin, end); lanes that are not in `held` give nothing. */
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

static void test_lanes__meet_in_the_tree(void **state)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    CHECK_OK(sheaf__device_open(&c.device, SHEAF_CPU, 1, NULL, 0));
    int chains = 0;
    for (int lanes = 1; lanes <= MOST; lanes *= 2)
        for (int n = 1; n <= 9; n++) { /* micro-batches: with fewer than lanes some lanes are empty */
            unsigned held = 0;
            for (int lane = 0; lane < lanes; lane++)
                held |= (unsigned)(n * (lane + 1) / lanes > n * lane / lanes) << lane;
            sheaf__trained_set *set;
            sheaf__trained *t;
            sheaf__lane_stack stack;
            float chain[N] = { 0 };
            CHECK_OK(sheaf__trained_set_new(&set, &c));
            CHECK_OK(sheaf__trained_add(&t, set, "x", 1, (int64_t[]){ N }, NULL, true));
            CHECK_OK(sheaf__trained_allocate(set));
            sheaf__lanes_open(&stack, lanes);
            for (int lane = 0; lane < lanes; lane++) {
                if ((held >> lane & 1) == 0)
                    continue;
                CHECK_OK(sheaf__lane_begin(set, &stack, lane));
                for (int64_t i = 0; i < N; i++) {
                    assert_true(t->grad[0][i] == 0);
                    t->grad[0][i] += number_of(lane, i);
                    chain[i] += number_of(lane, i);
                }
                sheaf__lane_end(set, &stack);
            }
            sheaf__lanes_close(set, &stack);
            assert_true(set->nsums <= 4); /* one for each level of the tree */
            for (int64_t i = 0; i < N; i++) {
                float want = 0;
                tree(&want, 0, lanes, held, i);
                CHECK_NEAR("sum", t->grad[0][i], want, 0);
                chains += want != chain[i];
            }
            sheaf__trained_set_free(set);
        }
    assert_true(chains > 0); /* or nothing would be shown */
    sheaf__device_close(c.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lanes__meet_in_the_tree) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
