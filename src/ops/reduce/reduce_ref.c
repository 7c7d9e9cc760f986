/* reduce_ref.c - sums over a whole tensor or over rows. */
#include "ops/columns.h"

#include "ops/math/math.h"
#include "ops/math/round.h"

/* The square of a float is exact in double; only the sums round. */
double sheaf__squares_ref(const float *x, int64_t n)
{
    double lane[16] = { 0 };
    for (int64_t i = 0; i < n; i++)
        lane[i % 16] += (double)x[i] * (double)x[i];
    return sheaf__lanes_join_d(lane);
}

void sheaf__column_sums_ref(float *out, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                            sheaf_dtype dtype)
{
    for (int64_t block = 0; block < rows; block += 256)
        for (int64_t c = 0; c < cols; c++) {
            float sum = 0;
            for (int64_t r = block; r < rows && r < block + 256; r++)
                sum += sheaf__load(x, r * ldx + c, dtype);
            out[c] = sheaf__one_nan(out[c] + sum);
        }
}
