/* space_test.c - blocks never overlap, the lowest fitting address is taken, freed
 * neighbours join, and everything given back leaves the range as it was. */
#include "tests/check.h"

#include <stdbool.h>

#include "ops/space.h"

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

typedef struct block {
    size_t begin, size;
    int tag;
} block;

#define MOST 300

/* The definition, slow: the lowest aligned address at which nothing live is met. */
static size_t lowest_free(const block *live, int count, size_t size, size_t unit)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++)
            if (at < live[i].begin + live[i].size && live[i].begin < at + size) {
                at = (live[i].begin + live[i].size + unit - 1) / unit * unit;
                moved = true;
            }
    }
    return at;
}

static size_t random_bytes(uint64_t *seed)
{
    switch (next(seed) % 4) {
    case 0: return next(seed) % 200;
    case 1: return next(seed) % 20000;
    case 2: return SHEAF__LARGE_BLOCK - 2 + next(seed) % 4;
    default: return next(seed) % 3000000;
    }
}

static void check_holes(const sheaf__space *space, const block *live, int count)
{
    size_t used = 0, empty = 0, top = 0;
    for (int i = 0; i < count; i++) {
        used += live[i].size;
        if (live[i].begin + live[i].size > top)
            top = live[i].begin + live[i].size;
    }
    for (size_t i = 0; i < space->holes; i++) {
        assert_true(space->hole[i].begin < space->hole[i].end);
        if (i > 0)
            assert_true(space->hole[i - 1].end < space->hole[i].begin); /* joined, ascending */
        empty += space->hole[i].end - space->hole[i].begin;
    }
    assert_int_equal(space->top, top);
    assert_int_equal(used + empty, top);
    assert_int_equal(space->blocks, count);
}

TEST(test_space__random_requests_are_first_fit)
{
    for (uint64_t seed0 = 1; seed0 <= 6; seed0++) {
        uint64_t seed = seed0;
        sheaf__space space;
        sheaf__space_init(&space, (size_t)1 << 40);
        block live[MOST];
        int count = 0;
        size_t mark = 0;
        for (int step = 0; step < 4000; step++) {
            const bool growing = step / 500 % 2 == 0;
            if (count < MOST && (count == 0 || next(&seed) % 5 < (growing ? 3u : 2u))) {
                const size_t bytes = random_bytes(&seed), size = sheaf__space_size(bytes);
                const size_t unit =
                    bytes >= SHEAF__LARGE_BLOCK ? SHEAF__LARGE_UNIT : SHEAF__SMALL_UNIT;
                const size_t want = lowest_free(live, count, size, unit);
                block *b = &live[count];
                b->size = size;
                b->tag = (int)(next(&seed) % 100);
                assert_int_equal(sheaf__space_take(&space, bytes, b->tag, &b->begin), SHEAF__TAKEN);
                assert_true(size >= bytes && size % unit == 0);
                assert_int_equal(b->begin, want);
                mark = b->begin + size > mark ? b->begin + size : mark;
                count++;
            } else {
                const int i = (int)(next(&seed) % (uint64_t)count);
                int tag = -1;
                assert_int_equal(sheaf__space_find(&space, live[i].begin, &tag), live[i].size);
                assert_int_equal(tag, live[i].tag);
                assert_int_equal(sheaf__space_give(&space, live[i].begin, &tag), live[i].size);
                assert_int_equal(tag, live[i].tag);
                live[i] = live[--count];
            }
            assert_int_equal(space.mark, mark);
            if (step % 16 == 0)
                check_holes(&space, live, count);
        }
        while (count > 0) {
            int tag;
            sheaf__space_give(&space, live[--count].begin, &tag);
        }
        check_holes(&space, live, 0);
        assert_int_equal(space.holes, 0);
        sheaf__space_release(&space);
    }
}

TEST(test_space__a_full_range_refuses_and_goes_on)
{
    sheaf__space space;
    size_t a, b, c = 77;
    int tag;
    sheaf__space_init(&space, 8192);
    assert_int_equal(sheaf__space_take(&space, 4096, 1, &a), SHEAF__TAKEN);
    assert_int_equal(sheaf__space_take(&space, 4096, 2, &b), SHEAF__TAKEN);
    assert_int_equal(sheaf__space_take(&space, 1, 3, &c), SHEAF__NO_SPACE);
    assert_int_equal(sheaf__space_take(&space, SIZE_MAX, 3, &c), SHEAF__NO_SPACE);
    assert_int_equal(sheaf__space_take(&space, SIZE_MAX / 2, 3, &c), SHEAF__NO_SPACE);
    assert_int_equal(c, 77);
    assert_int_equal(space.mark, 8192);
    sheaf__space_give(&space, a, &tag);
    assert_int_equal(sheaf__space_take(&space, 4097, 3, &c), SHEAF__NO_SPACE);
    assert_int_equal(sheaf__space_take(&space, 4000, 3, &c), SHEAF__TAKEN);
    assert_int_equal(c, a);
    sheaf__space_release(&space);
}

TEST(test_space__units_by_hand)
{
    assert_int_equal(sheaf__space_size(0), 64);
    assert_int_equal(sheaf__space_size(1), 64);
    assert_int_equal(sheaf__space_size(65), 128);
    assert_int_equal(sheaf__space_size(16383), 16384);
    assert_int_equal(sheaf__space_size(16384), 16384);
    assert_int_equal(sheaf__space_size(16385), 20480);
    assert_int_equal(sheaf__space_size(SIZE_MAX), 0);
}
