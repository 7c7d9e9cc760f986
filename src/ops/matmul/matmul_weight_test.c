/* matmul_weight_test.c - packed weights of every device have the bytes of those of the host. */
#include "tests/devices/same.h"

#include "ops/matmul/matmul_private.h"

static const struct {
    int64_t n, k;
} shapes[] = { { 1, 1 }, { 17, 33 }, { 33, 300 }, { 150, 64 } };

static sheaf__packed take_packed(int64_t n, int64_t k, sheaf_dtype dtype)
{
    const sheaf__packed w = { .dtype = dtype, .n = n, .k = k };
    char *at = same_blank((int64_t)mm_bytes_ahead(&w) + 64, SHEAF_U8);
    sheaf__packed taken = w;
    taken.ahead = at + (64 - (uintptr_t)at % 64) % 64;
    return taken;
}

static sheaf__packed packed_there(sheaf__packed w)
{
    w.ahead = SAME(w.ahead);
    return w;
}

/* Rows of a file, in two parts; they are the host's. */
static void check_load(sheaf_dtype from)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t i = 0; i < 3 * ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i / 3].n, k = shapes[i / 3].k, ld = k + 3,
                      half = n / 2 / MM_PANEL * MM_PANEL;
        sheaf__packed w = take_packed(n, k, types[i % 3]);
        char *rows = malloc((size_t)(n * ld) * sizeof(float));
        twin_fill(rows, n * ld, from, same.numbers, i);
        const void *behind = sheaf__at(rows, half * ld, from);
        SAME_EACH (device) {
            sheaf__packed there = packed_there(w);
            sheaf__weight_load(device, &there, rows, from, ld, 0, half);
            sheaf__weight_load(device, &there, behind, from, ld, half, n - half);
        }
        sheaf__pack(&w, rows, from, ld, 0, half);
        sheaf__pack(&w, behind, from, ld, half, n - half);
        same_check("weight_load");
        free(rows);
    }
}

static void test_weight__load(void **state)
{
    same_types(check_load);
}

static void check_refresh(sheaf_dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i].n, k = shapes[i].k;
        sheaf__packed w = take_packed(n, k, dtype);
        const float *master = same_take(n * k, SHEAF_F32);
        SAME_EACH (device) {
            sheaf__packed there = packed_there(w);
            sheaf__weight_refresh(device, &there, SAME(master));
        }
        sheaf__pack(&w, master, SHEAF_F32, k, 0, n);
        same_check("weight_refresh");
    }
}

static void test_weight__refresh(void **state)
{
    same_types(check_refresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weight__load),
        cmocka_unit_test(test_weight__refresh),
    };
    return cmocka_run_group_tests(tests, same_open, same_close);
}
