/* spin_test.c */
#include "base/spin.h"

#include "tests/check.h"

/* Begins a wait and ends it: what is waited for comes before look `comes`, -1: never. Returns how
 * often the thread was ready to look. */
static uint32_t wait_once(sheaf__spin *p, int64_t comes)
{
    const uint32_t most = sheaf__spin_begin(p);
    const bool came = comes >= 0 && comes < most;
    sheaf__spin_end(p, came, came ? (uint32_t)comes : most);
    return most;
}

/* As between threads that share short pieces of work: whatever came before, one long look is enough
 * to see that looking pays, and from then on no wait ends in sleep. */
TEST(test_patience__finds_out_that_looking_pays)
{
    for (int64_t gap = 1; gap < SHEAF__SPIN_MOST; gap = 2 * gap + 1) {
        sheaf__spin p = { 0 };
        int slept = 0;
        for (int i = 0; i < 100; i++)
            wait_once(&p, -1);
        for (int i = 0; i < SHEAF__SPIN_PROBE; i++) /* the next long look is among these */
            wait_once(&p, gap);
        for (int i = 0; i < 1000; i++)
            slept += wait_once(&p, gap) <= gap;
        CHECK_NEAR("sleeps", slept, 0, 0);
    }
}

/* A wait that is longer than all looks costs half of what was learnt, no more. */
TEST(test_patience__one_long_wait_does_not_end_it)
{
    sheaf__spin p = { 0 };
    wait_once(&p, 1000);
    for (int i = 0; i < 200; i++) {
        wait_once(&p, -1);
        assert_true(wait_once(&p, 900) > 1000);
    }
}

TEST(test_patience__does_not_look_for_what_never_comes)
{
    sheaf__spin p = { 0 };
    int64_t looks = 0;
    assert_int_equal(wait_once(&p, 3999), SHEAF__SPIN_MOST);
    for (int i = 1; i < 10; i++)
        wait_once(&p, -1);
    for (int i = 0; i < 64 * SHEAF__SPIN_PROBE; i++)
        looks += wait_once(&p, -1);
    CHECK_NEAR("looks", (double)looks,
               64.0 * (SHEAF__SPIN_MOST + (SHEAF__SPIN_PROBE - 1) * SHEAF__SPIN_LEAST), 0);
}

/* Never more than the most, whatever a wait took. */
TEST(test_patience__stays_within_bounds)
{
    sheaf__spin p = { 0 };
    for (int i = 0; i < 1000; i++) {
        const uint32_t most = wait_once(&p, i % 5 == 4 ? -1 : (i * 37) % SHEAF__SPIN_MOST);
        assert_in_range(most, SHEAF__SPIN_LEAST, SHEAF__SPIN_MOST);
    }
}

/* Comes at a look, and counts them. */
typedef struct coming {
    uint32_t at, looked;
} coming;

static bool has_come(void *of)
{
    coming *c = of;
    return c->looked++ == c->at;
}

TEST(test_patience__looks_until_it_has_come)
{
    sheaf__spin p = { 0 };
    coming soon = { .at = 700 }, late = { .at = SHEAF__SPIN_MOST };
    assert_true(sheaf__spin_wait(&p, has_come, &soon));
    assert_int_equal(soon.looked, 701);
    assert_false(sheaf__spin_wait(&p, has_come, &late));
    assert_int_equal(late.looked, 2800); /* four times as often as it last had to */
    late.looked = 0;
    assert_false(sheaf__spin_wait(&p, has_come, &late));
    assert_int_equal(late.looked, 1400);
}
