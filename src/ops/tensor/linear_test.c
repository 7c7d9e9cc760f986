/* linear_test.c - what layers do beside their products has the bits of plain loops, on every
 * device. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

SAME_TYPES(test_linear__finish, dtype)
{
    for (size_t i = 0; i < 8 * ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 8 / 5], cols = same_sizes[i / 8 % 5];
        void *y = same_blank(rows * cols, dtype),
             *residual = i & 1 ? same_take(rows * cols, dtype) : NULL;
        const float *sum = same_take(rows * cols, SHEAF_F32),
                    *bias = i & 2 ? same_take(cols, SHEAF_F32) : NULL,
                    *by = i & 4 ? same_take(cols, SHEAF_F32) : NULL;
        SAME_EACH (device)
            sheaf__op_finish(device, SAME(y), SAME(sum), SAME(by), SAME(bias), SAME(residual), rows,
                             cols, dtype);
        same.ref->finish(y, cols, sum, cols, 1, by, bias, residual, cols, rows, cols, dtype);
        same_check("finish");
    }
}

SAME_TYPES(test_linear__scale_round, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 5], cols = same_sizes[i % 5], ld = cols + 3;
        void *y = same_take(rows * ld, dtype);
        const float *sum = same_take(rows * ld, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_scale_round(device, SAME(y), SAME(sum), 0.7f, rows, ld, cols, dtype);
        same.ref->finish(y, ld, sum, ld, 0.7f, NULL, NULL, NULL, 0, rows, cols, dtype);
        same_check("scale and round");
    }
}

/* Norms of nothing, of less than nothing and of denormals too. */
TEST(test_linear__magnitudes)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes); i++) {
        const int64_t n = same_sizes[i];
        float *by = same_blank(n, SHEAF_F32), *inverse = same_blank(n, SHEAF_F32);
        const float *magnitude = same_take(n, SHEAF_F32), *squares = same_take(n, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_magnitudes(device, (sheaf__magnitudes){ SAME(by), SAME(inverse),
                                                              SAME(magnitude), SAME(squares), n });
        for (int64_t k = 0; k < n; k++) {
            by[k] = sheaf__one_nan(magnitude[k] / sqrtf(squares[k]));
            inverse[k] = sheaf__one_nan(1 / sqrtf(squares[k]));
        }
        same_check("magnitudes");
    }
}

/* One row is long. */
static int64_t columns_of(int64_t rows, size_t size)
{
    return rows == 1 && size == 4 ? 2500 : same_sizes[size];
}

SAME_TYPES(test_linear__dropout, dtype)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 2 / 5], cols = columns_of(rows, i / 2 % 5);
        int64_t *sample = same_blank(2 * rows, SHEAF_F32),
                *position = same_blank(2 * rows, SHEAF_F32);
        void *x = same_take(rows * cols, dtype), *y = i & 1 ? x : same_blank(rows * cols, dtype);
        for (int64_t r = 0; r < rows; r++)
            sample[r] = r / 7, position[r] = r % 7;
        sheaf__dropout how = { 1,        2, 3, sample, position, i & 1 ? 37 : 40, UINT32_C(1) << 30,
                               1 / 0.75f };
        SAME_EACH (device) {
            sheaf__dropout there = how;
            there.sample = SAME(sample), there.position = SAME(position);
            sheaf__op_dropout(device, SAME(y), SAME(x), rows, cols, &there, dtype);
        }
        same.ref->dropout(y, x, cols, rows, cols, &how, dtype);
        same_check("dropout");
    }
}

SAME_TYPES(test_linear__noise, dtype)
{
    for (size_t s = 0; s < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); s++) {
        const int64_t rows = same_sizes[s / 5], cols = columns_of(rows, s % 5);
        void *x = same_take(rows * cols, dtype);
        int64_t *sample = same_blank(2 * rows, SHEAF_F32),
                *position = same_blank(2 * rows, SHEAF_F32);
        float *half = same_blank(rows, SHEAF_F32);
        for (int64_t r = 0; r < rows; r++) {
            sample[r] = r / 7;
            position[r] = r * 3;
            half[r] = (float)(r % 5) / 8;
        }
        sheaf__noise how = {
            .seed = 5, .purpose = 6, .step = 7, .sample = sample, .position = position, .half = half
        };
        SAME_EACH (device) {
            sheaf__noise at = how;
            at.sample = SAME(sample), at.position = SAME(position), at.half = SAME(half);
            sheaf__op_noise(device, SAME(x), rows, cols, &at, dtype);
        }
        same.ref->noise(x, cols, rows, cols, &how, dtype);
        same_check("noise");
    }
}

FIXTURE(same_open, same_close);
