/* windows_test.c - the order of windows and the groups of attention, worked out by hand. */
#include "tests/check.h"

#include "tape/pictures_inner.h"
#include "tape/windows.h"

/* Two pictures: 2 x 3 squares of 2 x 2 patches, of which a window is 2 x 2 squares, and one square.
 */
static const sheaf__picture two[] = { { .of = { { .height = 4, .width = 6 } } },
                                      { .of = { { .height = 2, .width = 2 } } } };
static const sheaf__images_in in = { .picture = two };

static sheaf__pictures pictures(int64_t window)
{
    return (
        sheaf__pictures){ .in = &in,
                          .images = 2,
                          .patches = 28,
                          .tower = { .patch = 1, .ragged = true, .merge = 2, .window = window } };
}

static sheaf__device *device;

static void check_order(int64_t window, bool joined, const int32_t *want, int64_t n)
{
    const sheaf__pictures p = pictures(window);
    const sheaf__context c = { .device = device };
    sheaf__picture_at *at;
    int32_t *order;
    CHECK_OK(sheaf__pictures_layout(&at, &p));
    CHECK_OK(sheaf__windows_order(&order, &c, at, &p, joined));
    CHECK_BYTES("order", order, want, (size_t)n * sizeof *want);
    free(order);
    free(at);
}

TEST(test_order__squares_within_windows)
{
    /* 0  1  2  3  4  5     of the first picture, then 24 25
     * 6  7  8  9 10 11                                26 27
     * 12 ...                                                */
    static const int32_t windows[] = { 0,  1,  6, 7, 2,  3,  8,  9,  12, 13, 18, 19, 14, 15,
                                       20, 21, 4, 5, 10, 11, 16, 17, 22, 23, 24, 25, 26, 27 };
    static const int32_t plain[] = { 0,  1,  6,  7,  2,  3,  8,  9,  4,  5,  10, 11, 12, 13,
                                     18, 19, 14, 15, 20, 21, 16, 17, 22, 23, 24, 25, 26, 27 };
    static const int32_t squares[] = { 0, 1, 3, 4, 2, 5, 6 };
    check_order(2, false, windows, 28);
    check_order(0, false, plain, 28);
    check_order(2, true, squares, 7);
}

TEST(test_groups__windows_do_not_cross_pictures)
{
    static const int64_t want[] = { 0, 16, 24, 28 };
    const sheaf__pictures p = pictures(2);
    sheaf__row_groups groups;
    CHECK_OK(sheaf__windows_groups(&groups, &p));
    assert_int_equal(groups.count, 3);
    CHECK_BYTES("groups", groups.begin, want, sizeof want);
    free(groups.begin);
}

static int open_device(void **state)
{
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    return 0;
}

static int close_device(void **state)
{
    sheaf__device_close(device);
    return 0;
}

FIXTURE(open_device, close_device);
