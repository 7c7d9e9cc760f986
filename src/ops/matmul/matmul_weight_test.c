/* matmul_weight_test.c - packed weights of every device have the numbers of those of the host. */
#include "tests/devices/packed.h"

static const struct {
    int64_t n, k;
} shapes[] = { { 1, 1 }, { 17, 33 }, { 33, 300 }, { 150, 64 } };

/* The host's, in memory that no device has. */
static sheaf__packed packed_alone(const sheaf__packed *w)
{
    const size_t bytes = sheaf__packed_size(w);
    sheaf__packed alone = *w;
    alone.ahead = aligned_alloc(64, bytes / 64 * 64 + 64);
    memset(alone.ahead, 0x5a, bytes);
    return alone;
}

/* Rows of a file, in two parts; they are the host's. */
static void check_load(sheaf_dtype from)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t i = 0; i < 2 * 3 * ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i / 6].n, k = shapes[i / 6].k, ld = k + 3 * (i / 3 % 2),
                      half = n / 2 / MM_PANEL * MM_PANEL;
        sheaf__packed w = packed_take(n, k, types[i % 3]), want = packed_alone(&w);
        char *rows = malloc((size_t)(n * ld) * sizeof(float));
        twin_fill(rows, n * ld, from, same.numbers, i);
        const void *behind = sheaf__at(rows, half * ld, from);
        sheaf__pack(&want, rows, from, ld, 0, n);
        SAME_EACH (device) {
            sheaf__packed there = packed_there(device, &w, false);
            sheaf__weight_load(device, &there, rows, from, ld, 0, half);
            sheaf__weight_load(device, &there, behind, from, ld, half, n - half);
            packed_seen(device, &there, &w, &want);
        }
        sheaf__pack(&w, rows, from, ld, 0, half);
        sheaf__pack(&w, behind, from, ld, half, n - half);
        same_check("weight_load");
        free(want.ahead);
        free(rows);
    }
}

TEST(test_weight__load)
{
    same_types(check_load);
}

static void check_refresh(sheaf_dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i].n, k = shapes[i].k;
        sheaf__packed w = packed_take(n, k, dtype), want = packed_alone(&w);
        const float *master = same_take(n * k, SHEAF_F32);
        sheaf__pack(&want, master, SHEAF_F32, k, 0, n);
        SAME_EACH (device) {
            sheaf__packed there = packed_there(device, &w, false);
            sheaf__weight_refresh(device, &there, SAME(master));
            packed_seen(device, &there, &w, &want);
        }
        sheaf__pack(&w, master, SHEAF_F32, k, 0, n);
        same_check("weight_refresh");
        free(want.ahead);
    }
}

TEST(test_weight__refresh)
{
    same_types(check_refresh);
}

/* Two parts of a larger one, the first one loaded, the second one from masters. */
static void check_parts(sheaf_dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i].n, k = shapes[i].k, cut = n / 3;
        sheaf__packed w = packed_take(n, k, dtype), want = packed_alone(&w);
        const float *master = same_take(n * k, SHEAF_F32);
        sheaf__pack(&want, master, SHEAF_F32, k, 0, n);
        SAME_EACH (device) {
            const sheaf__packed there = packed_there(device, &w, false);
            sheaf__packed part = sheaf__packed_part(&there, 0, cut);
            sheaf__weight_load(device, &part, master, SHEAF_F32, k, 0, cut);
            part = sheaf__packed_part(&there, cut, n - cut);
            sheaf__weight_refresh(device, &part, SAME(master) + cut * k);
            packed_seen(device, &there, &w, &want);
        }
        sheaf__pack(&w, master, SHEAF_F32, k, 0, n);
        same_check("parts of a weight");
        free(want.ahead);
    }
}

TEST(test_weight__parts)
{
    same_types(check_parts);
}

FIXTURE(same_open, same_close);
