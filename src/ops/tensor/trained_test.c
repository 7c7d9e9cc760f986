/* trained_test.c - operations of the optimizer and sums for the host: on every device the bits of
 * the kernels. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "ops/tensor/tensor.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

enum { MOST = 70000 };

static const int64_t sizes[] = { 0, 1, 17, 32768, 32769, MOST };

typedef struct bench {
    sheaf__device *device;
    float *at[4];
} bench;

static float number(int64_t i, int seed)
{
    return (float)((i * 37 + seed * 11) % 113 - 56) / 8.0f;
}

static void each_device(void (*body)(bench *b))
{
    const sheaf__device_class *const classes[] = { &sheaf__cpu, &checked_device, &copied_device };
    for (int i = 0; i < 6; i++) {
        bench b = { 0 };
        CHECK_OK(sheaf__device_open(&b.device, classes[i / 2], i % 2 == 0 ? 1 : 3, NULL, 0));
        for (int k = 0; k < 4; k++) {
            void *at;
            CHECK_OK(sheaf__device_alloc(&at, b.device, MOST * 4, SHEAF_MEM_TRAINED));
            b.at[k] = at;
        }
        body(&b);
        CHECK_OK(sheaf__device_check(b.device));
        sheaf__device_close(b.device);
    }
}

static void upload(const bench *b, void *to, const void *from, size_t bytes)
{
    CHECK_OK(sheaf__upload(b->device, to, from, bytes));
}

static void has(const bench *b, const void *at, const void *want, size_t bytes)
{
    static char is[MOST * 4];
    CHECK_OK(sheaf__download(b->device, is, at, bytes));
    assert_memory_equal(is, want, bytes);
}

/* ---- finite ---- */

static void look(bench *b)
{
    static float x[MOST];
    for (int64_t i = 0; i < MOST; i++)
        x[i] = 3e38f;
    upload(b, b->at[0], x, sizeof x);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
        assert_true(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, sizes[s], SHEAF_F32));
    assert_true(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, MOST, SHEAF_BF16));
    assert_false(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, MOST, SHEAF_F16));
    assert_false(sheaf__op_is_finite(b->device, b->at[0] + 40000, SHEAF_F32, 1, SHEAF_F16));
    assert_true(sheaf__op_is_finite(b->device, NULL, SHEAF_F32, MOST, SHEAF_F32));
    x[MOST - 1] = NAN;
    x[40000] = 3.4e38f; /* infinite in bfloat16 */
    upload(b, b->at[0], x, sizeof x);
    assert_true(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, MOST - 1, SHEAF_F32));
    assert_false(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, MOST, SHEAF_F32));
    assert_true(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, 40000, SHEAF_BF16));
    assert_false(sheaf__op_is_finite(b->device, b->at[0], SHEAF_F32, 40001, SHEAF_BF16));
}

static void test_finite__one_number_far_behind_is_seen(void **state)
{
    each_device(look);
}

/* ---- squares ---- */

static void add_squares(bench *b)
{
    enum { MANY = 1500 }; /* more than are run at once */
    static float x[MOST];
    static sheaf__squares of[MANY];
    for (int64_t i = 0; i < MOST; i++)
        x[i] = number(i, 1);
    upload(b, b->at[0], x, sizeof x);
    for (int i = 0; i < MANY; i++)
        of[i] = (sheaf__squares){ b->at[0] + i, i == 7 ? MOST - 7 : i % 40, -1 };
    sheaf__op_squares(b->device, of, MANY);
    for (int i = 0; i < MANY; i++)
        assert_true(of[i].sum == b->device->kernels->squares(x + i, of[i].n));
}

static void test_squares__of_many_tensors_at_once(void **state)
{
    each_device(add_squares);
}

/* ---- AdamW ---- */

static void update(bench *b)
{
    static float x[4][MOST];
    const sheaf__adamw how = { .lr = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .bias1 = 0.1,
                               .bias2_sqrt = 0.03,
                               .grad_scale = 0.5f };
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (int k = 0; k < 4; k++) {
            for (int64_t i = 0; i < MOST; i++)
                x[k][i] = k == 2 ? fabsf(number(i, k)) : number(i, k);
            upload(b, b->at[k], x[k], sizeof x[k]);
        }
        sheaf__op_adamw(b->device, b->at[0], b->at[1], b->at[2], b->at[3], sizes[s], &how);
        b->device->kernels->adamw(x[0], x[1], x[2], x[3], sizes[s], &how);
        for (int k = 0; k < 4; k++)
            has(b, b->at[k], x[k], sizeof x[k]);
    }
}

static void test_adamw__changes_what_it_is_given_and_no_more(void **state)
{
    each_device(update);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite__one_number_far_behind_is_seen),
        cmocka_unit_test(test_squares__of_many_tensors_at_once),
        cmocka_unit_test(test_adamw__changes_what_it_is_given_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
