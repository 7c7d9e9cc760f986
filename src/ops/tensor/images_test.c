/* images_test.c - operations on rows of pictures and on boxes: the bits of plain loops over the
 * reference's kernels, on every device. */
#include "tests/check.h"

#include "ops/tensor/tensor.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

static const struct {
    const sheaf__device_class *class;
    const char *isa;
    int threads;
} on[] = { { &sheaf__cpu, "ref", 1 },
           { &sheaf__cpu, NULL, 3 },
           { &checked_device, NULL, 2 },
           { &copied_device, NULL, 1 } };

enum { MOST = 8 };

/* Memory of a device that begins as the host's. */
typedef struct place {
    void *at, *host;
    size_t bytes;
} place;

typedef struct places {
    sheaf__device *device;
    place of[MOST];
    int n;
} places;

static void *put(places *all, void *host, size_t bytes)
{
    place *p = &all->of[all->n++];
    *p = (place){ NULL, host, bytes };
    CHECK_OK(sheaf__device_alloc(&p->at, all->device, bytes, SHEAF_MEM_ACTIVATIONS));
    CHECK_OK(sheaf__upload(all->device, p->at, host, bytes));
    return p->at;
}

/* What the host has afterwards. */
static void take_all(places *all)
{
    CHECK_OK(sheaf__device_check(all->device));
    for (int i = 0; i < all->n; i++) {
        CHECK_OK(sheaf__download(all->device, all->of[i].host, all->of[i].at, all->of[i].bytes));
        sheaf__device_free(all->device, all->of[i].at);
    }
    sheaf__device_close(all->device);
}

static places open_on(size_t i)
{
    places all = { NULL };
    CHECK_OK(sheaf__device_open(&all.device, on[i].class, on[i].threads, on[i].isa, 0));
    return all;
}

static void fill(float *x, int64_t n, int salt)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * 7919 + salt * 104729) % 2003 - 1001) / 97;
}

static void test_rows_added_to_copies_and_copies_summed(void **state)
{
    enum { N = 700, TIMES = 5 };
    for (int add = 0; add < 2; add++)
        for (size_t i = 0; i < ARRAY_LEN(on); i++) {
            float x[N * TIMES], row[N], dx[N], was[N], want[N * TIMES];
            fill(x, N * TIMES, 1);
            fill(row, N, 2);
            fill(was, N, 3);
            memcpy(dx, was, sizeof dx);
            for (int e = 0; e < N * TIMES; e++)
                want[e] = x[e] + row[e % N];
            places all = open_on(i);
            float *on_x = put(&all, x, sizeof x), *on_dx = put(&all, dx, sizeof dx);
            sheaf__op_add_rows(all.device, on_x, put(&all, row, sizeof row), N, TIMES, SHEAF_F32);
            sheaf__op_sum_copies(all.device, on_dx, on_x, N, TIMES, add, SHEAF_F32);
            take_all(&all);
            CHECK_BYTES("sums", x, want, sizeof x);
            for (int e = 0; e < N; e++) {
                float sum = 0;
                for (int t = 0; t < TIMES; t++)
                    sum += want[t * N + e];
                sum = 0.0f + sum;
                sum = add ? was[e] + sum : sum;
                CHECK_BYTES("copies", &dx[e], &sum, sizeof sum);
            }
        }
}

static void test_boxes(void **state)
{
    enum { OUTER = 2, BOXES = 3, ROWS = 40, COLS = 5, LENGTH = 50 };
    for (size_t i = 0; i < ARRAY_LEN(on); i++) {
        uint16_t src[OUTER * ROWS * BOXES * COLS], dst[OUTER * BOXES * LENGTH * COLS],
            want[OUTER * BOXES * LENGTH * COLS];
        for (size_t e = 0; e < ARRAY_LEN(src); e++)
            src[e] = (uint16_t)(e + 1);
        memset(want, 0xee, sizeof want);
        memset(dst, 0xee, sizeof dst);
        for (int o = 0; o < OUTER; o++)
            for (int b = 0; b < BOXES; b++)
                for (int r = 0; r < ROWS; r++)
                    memcpy(want + ((o * BOXES + b) * LENGTH + r) * COLS,
                           src + ((o * ROWS + r) * BOXES + b) * COLS, COLS * sizeof *src);
        places all = open_on(i);
        sheaf__op_copy_boxes(
            all.device, (sheaf__boxes){ .dtype = SHEAF_BF16,
                                        .dst = put(&all, dst, sizeof dst),
                                        .src = put(&all, src, sizeof src),
                                        .count = { OUTER, BOXES, ROWS },
                                        .ld_dst = { BOXES * LENGTH * COLS, LENGTH * COLS, COLS },
                                        .ld_src = { ROWS * BOXES * COLS, COLS, BOXES * COLS },
                                        .cols = COLS });
        take_all(&all);
        CHECK_BYTES("boxes", dst, want, sizeof dst);
    }
}

/* Two pictures, 2 x 3 and 1 x 2 with a row of padding, of a table of 2 x 2 and a class row. */
static void test_positions(void **state)
{
    enum { WIDTH = 300, ROWS = 2 + 6 + 3, LINES = 5 + 3, TABLE = 5 };
    sheaf__picture_at at[] = { { 0, 2, 3, 0 }, { 6, 1, 2, 5 }, { 9, 0, 0, 0 } };
    int32_t taps[LINES] = { 1, 2, 1, 2, 1, 2, 1, 1 },
            index[LINES * 2] = { 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0 };
    float weight[LINES * 2] = { 1, 0, .25f, .75f, 1, 0, 1.5f, -.5f, 1, 0, .5f, .5f, 1, 0, 1, 0 };
    for (size_t i = 0; i < ARRAY_LEN(on); i++) {
        float x[ROWS * WIDTH], y[ROWS * WIDTH] = { 0 }, want[ROWS * WIDTH], table[TABLE * WIDTH],
                                        grad[TABLE * WIDTH], slope[TABLE * WIDTH];
        fill(x, ROWS * WIDTH, 1);
        fill(table, TABLE * WIDTH, 2);
        fill(grad, TABLE * WIDTH, 3);
        memcpy(want, x, sizeof want);
        memcpy(slope, grad, sizeof slope);
        for (int row = 0; row < ROWS; row++)
            for (int c = 0; c < WIDTH; c++) {
                const int p = row < 7 ? 0 : 1, patch = row - (p == 0 ? 1 : 8);
                const int64_t across = at[p].across, down = at[p].down;
                if (patch >= down * across)
                    continue;
                if (patch < 0) {
                    want[row * WIDTH + c] = x[row * WIDTH + c] + table[c];
                    slope[c] += x[row * WIDTH + c];
                    continue;
                }
                const int64_t l = at[p].line + patch / across,
                              m = at[p].line + down + patch % across;
                float sum = 0;
                for (int k = 0; k < taps[l] * taps[m]; k++) {
                    const int64_t a = l * 2 + k / taps[m], b = m * 2 + k % taps[m];
                    const int64_t of = (1 + index[a] * 2 + index[b]) * WIDTH + c;
                    const float w = weight[a] * weight[b], part = table[of] * w,
                                back = x[row * WIDTH + c] * w;
                    sum = k == 0 ? part : sum + part;
                    slope[of] += back;
                }
                want[row * WIDTH + c] = x[row * WIDTH + c] + sum;
            }
        places all = open_on(i);
        const float *on_x = put(&all, x, sizeof x);
        const sheaf__positions of = { .at = put(&all, at, sizeof at),
                                      .images = 2,
                                      .class_row = true,
                                      .table = put(&all, table, sizeof table),
                                      .rows = 2,
                                      .cols = 2,
                                      .first = true,
                                      .lines = LINES,
                                      .most = 2,
                                      .taps = put(&all, taps, sizeof taps),
                                      .index = put(&all, index, sizeof index),
                                      .weight = put(&all, weight, sizeof weight) };
        sheaf__op_add_positions(all.device, put(&all, y, sizeof y), on_x, of, ROWS, WIDTH,
                                SHEAF_F32);
        sheaf__op_add_positions_back(all.device, put(&all, grad, sizeof grad), on_x, of, ROWS,
                                     WIDTH, SHEAF_F32);
        take_all(&all);
        CHECK_BYTES("with positions", y, want, sizeof y);
        CHECK_BYTES("the table's gradient", grad, slope, sizeof grad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_added_to_copies_and_copies_summed),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
