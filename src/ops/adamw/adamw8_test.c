/* adamw8_test.c - moments in 8 bits: by hand, and blocks are on their own. */
#include "tests/ops_twin.h"

#include "ops/adamw/adamw.h"
#include "ops/quant/quantise.h"

enum { MOST = 2304, BLOCKS = MOST / SHEAF__ADAMW8_BLOCK + 1 };

typedef struct parts {
    float p[MOST], g[MOST], absmax1[BLOCKS], absmax2[BLOCKS];
    uint8_t m[MOST], v[MOST];
} parts;

static const sheaf__adamw usual = { .lr = 0.1,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .weight_decay = 0.01,
                                    .bias1 = 1 - 0.9,
                                    .bias2_sqrt = 0.03162277660168379,
                                    .grad_scale = 0.5f };

static const sheaf__map8 *maps(void)
{
    static sheaf__map8 map[2];
    sheaf__map8_init(&map[0], true);
    sheaf__map8_init(&map[1], false);
    return map;
}

static void step(const sheaf__kernels *k, parts *s, int64_t first, int64_t n,
                 const sheaf__map8 *map, const sheaf__adamw *how)
{
    const int64_t b = first / SHEAF__ADAMW8_BLOCK;
    const sheaf__moments8 to = { s->m + first, s->v + first, s->absmax1 + b, s->absmax2 + b, map };
    k->adamw8(s->p + first, &to, s->g + first, n, how);
}

TEST(test_adamw8__a_part_of_whole_blocks_is_that_of_all)
{
    static parts a, b;
    const sheaf__kernels *k = sheaf__kernels_for(NULL);
    const sheaf__map8 *map = maps();
    twin_fill(a.p, MOST, SHEAF_F32, TWIN_PLAIN, 1);
    twin_fill(a.g, MOST, SHEAF_F32, TWIN_PLAIN, 2);
    memcpy(&b, &a, sizeof a);
    step(k, &a, 0, 700, map, &usual);
    step(k, &b, 512, 188, map, &usual);
    step(k, &b, 0, 512, map, &usual);
    CHECK_BYTES("parts", &b, &a, sizeof a);
}

/* The first step goes lr against the sign of g, whatever its size, for it takes the moments before
 * they are quantised; then the smaller one of a block is of few bits. */
TEST(test_adamw8__first_step_worked_by_hand)
{
    static parts s;
    const sheaf__map8 *map = maps();
    sheaf__adamw how = usual;
    how.grad_scale = 1;
    s.p[0] = 1, s.g[0] = 0.5f, s.p[1] = 1, s.g[1] = -1e-3f, s.p[2] = -2;
    step(sheaf__kernels_for("ref"), &s, 0, 3, map, &how);
    CHECK_NEAR("p", s.p[0], 0.999 - 0.1, 1e-7);
    CHECK_NEAR("against the sign", s.p[1], 0.999 + 0.1 * 1e-3 / (1e-3 + 1e-8), 1e-7);
    CHECK_NEAR("only decay", s.p[2], -1.998, 2e-7);
    CHECK_NEAR("m's absmax", s.absmax1[0], 0.05, 1e-8);
    CHECK_NEAR("v's absmax", s.absmax2[0], 0.00025, 2e-11);
    assert_int_equal(s.m[0], 255);
    CHECK_NEAR("m", map[0].value[s.m[1]] * s.absmax1[0], -1e-4, 1e-5);
    assert_int_equal(s.v[0], 255);
    /* the search finds what is near; 0 of both signs is restored as 1.5e-5 of absmax */
    CHECK_NEAR("m of 0", map[0].value[s.m[2]], 0, 3e-5);
    CHECK_NEAR("v of 0", map[1].value[s.v[2]], 0, 3e-5);
}

/* A number that is not finite shows in its block's absmax, which is read before a save. */
TEST(test_adamw8__what_is_not_finite_shows_in_absmax)
{
    static const float bad[] = { NAN, INFINITY };
    for (int i = 0; i < 2; i++) {
        static parts s;
        memset(&s, 0, sizeof s);
        s.g[300] = bad[i];
        step(sheaf__kernels_for(NULL), &s, 0, 600, maps(), &usual);
        assert_true(isfinite(s.absmax1[0]) && isfinite(s.absmax1[2]));
        assert_true(!isfinite(s.absmax1[1]) && !isfinite(s.absmax2[1]));
    }
}
