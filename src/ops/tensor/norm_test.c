/* norm_test.c - norms have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

static const struct {
    int64_t rows, width;
} shapes[] = { { 0, 17 }, { 1, 1 }, { 17, 300 }, { 33, 17 }, { 300, 33 }, { 2, 8600 } };

/* Floats that are some rows' deviations or weights; the kernels' tests have the odd ones. */
static float *plain_floats(int64_t n)
{
    const twin_numbers numbers = same.numbers;
    same.numbers = TWIN_PLAIN;
    float *at = same_take(n, SHEAF_F32);
    same.numbers = numbers;
    return at;
}

/* ---- RMSNorm ---- */

SAME_TYPES(test_norm__rmsnorm, dtype)
{
    for (size_t i = 0; i < 4 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 4].rows, width = shapes[i / 4].width;
        const sheaf__rmsnorm n = { .y = same_blank(rows * width, dtype),
                                   .rstd = same_blank(rows, SHEAF_F32),
                                   .x = same_take(rows * width, dtype),
                                   .weight = same_take(width, SHEAF_F32),
                                   .rows = rows,
                                   .width = width,
                                   .heads = i & 2 ? 4 : 1,
                                   .eps = 1e-5f,
                                   .once = i & 1,
                                   .dtype = dtype };
        SAME_EACH (device) {
            sheaf__rmsnorm there = n;
            there.y = SAME(n.y), there.rstd = SAME(n.rstd), there.x = SAME(n.x);
            there.weight = SAME(n.weight);
            sheaf__op_rmsnorm(device, &there);
        }
        same.ref->rmsnorm(n.y, n.rstd, n.x, n.weight, rows, width, n.eps, n.once, dtype);
        same_check("rmsnorm");
    }
}

SAME_TYPES(test_norm__rmsnorm_back, dtype)
{
    for (size_t i = 0; i < 6 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 6].rows, width = shapes[i / 6].width;
        const bool again = i & 1, add = i / 2 % 3 == 1;
        const sheaf__rmsnorm n = { .y = same_take(rows * width, dtype), /* its gradient */
                                   .rstd = plain_floats(rows),
                                   .x = same_take(rows * width, dtype),
                                   .weight = same_take(width, SHEAF_F32),
                                   .rows = rows,
                                   .width = width,
                                   .heads = 1,
                                   .eps = 1e-5f,
                                   .dtype = dtype };
        void *dx = i / 2 % 3 == 2 ? NULL : same_take(rows * width, dtype);
        SAME_EACH (device) {
            sheaf__rmsnorm there = n;
            there.y = SAME(n.y), there.rstd = SAME(n.rstd), there.x = SAME(n.x);
            there.weight = SAME(n.weight);
            sheaf__op_rmsnorm_back(device, &there, SAME(dx), add, again);
        }
        if (dx != NULL)
            same.ref->rmsnorm_back(dx, n.y, n.x, n.weight, n.rstd, rows, width, add, dtype);
        if (again)
            same.ref->rmsnorm(n.y, n.rstd, n.x, n.weight, rows, width, n.eps, n.once, dtype);
        same_check("rmsnorm_back");
    }
}

SAME_TYPES(test_norm__weight, dtype)
{
    for (size_t i = 0; i < 4 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 4].rows, cols = shapes[i / 4].width, ld = cols + 5;
        const sheaf__norm_weight w = { .dw = same_take(cols, SHEAF_F32),
                                       .db = i & 1 ? same_take(cols, SHEAF_F32) : NULL,
                                       .dy = same_take(rows * ld, dtype),
                                       .x = same_take(rows * ld, dtype),
                                       .mean = i & 2 ? plain_floats(rows) : NULL,
                                       .rstd = plain_floats(rows),
                                       .ld = ld,
                                       .rows = rows,
                                       .cols = cols,
                                       .dtype = dtype };
        SAME_EACH (device)
            sheaf__op_norm_weight(
                device, (sheaf__norm_weight){ SAME(w.dw), SAME(w.db), SAME(w.dy), SAME(w.x),
                                              SAME(w.mean), SAME(w.rstd), ld, rows, cols, dtype });
        same.ref->layernorm_dw(w.dw, w.db, w.dy, ld, w.x, ld, w.mean, w.rstd, rows, 0, cols, dtype);
        same_check("gradient of a norm's weight");
    }
}

/* Three heads: one in the first slice, none in the second, two in the third. */
SAME_TYPES(test_norm__weight_of_heads, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i].rows, width = shapes[i].width, ld = 3 * width;
        const int64_t begin[] = { 0, width, width }, extent[] = { width, 0, 2 * width };
        float *part = same_take(3 * width, SHEAF_F32), *rstd = plain_floats(3 * rows);
        char *dy = same_take(rows * ld, dtype), *x = same_take(rows * ld, dtype);
        SAME_EACH (device)
            sheaf__op_heads_weight(device, (sheaf__heads_weight){ SAME(part), SAME(dy), SAME(x),
                                                                  SAME(rstd), ld, rows, width, 3,
                                                                  begin, extent, dtype });
        memset(part, 0, (size_t)(3 * width) * sizeof *part);
        for (int64_t h = 0; h < 3; h++) {
            const int64_t at = h * width * (int64_t)sheaf_dtype_bytes(dtype);
            same.ref->layernorm_dw(part + (h == 0 ? 0 : 2 * width), NULL, dy + at, ld, x + at, ld,
                                   NULL, rstd + h * rows, rows, 0, width, dtype);
        }
        same_check("gradient of the weight of heads");
    }
}

/* ---- LayerNorm ---- */

static const int64_t slice_begin[] = { 0, 1, 1 };

static sheaf__layer_norm layer_norm(int64_t rows, int64_t cols, bool plain, sheaf_dtype dtype)
{
    return (sheaf__layer_norm){ .y = same_take(rows * cols, dtype),
                                .mean = plain_floats(rows),
                                .rstd = plain_floats(rows),
                                .x = same_take(rows * cols, dtype),
                                .weight = same_take(cols, SHEAF_F32),
                                .bias = same_take(cols, SHEAF_F32),
                                .rows = rows,
                                .cols = cols,
                                .width = cols,
                                .eps = 1e-6f,
                                .plain = plain,
                                .dtype = dtype };
}

static sheaf__layer_norm norm_there(const sheaf__layer_norm *n)
{
    sheaf__layer_norm there = *n;
    there.y = SAME(n->y), there.mean = SAME(n->mean), there.rstd = SAME(n->rstd);
    there.x = SAME(n->x), there.residual = SAME(n->residual);
    there.weight = SAME(n->weight), there.bias = SAME(n->bias);
    return there;
}

static void make_means(const sheaf__layer_norm *n, const float *sum)
{
    for (int64_t r = 0; r < n->rows; r++)
        n->mean[r] = n->plain ? 0 : sheaf__one_nan(sum[r] / (float)n->width);
}

static void make_deviations(const sheaf__layer_norm *n, const float *sum)
{
    for (int64_t r = 0; r < n->rows; r++)
        n->rstd[r] = sheaf__one_nan(1.0f / sqrtf(sum[r] / (float)n->width + n->eps));
}

static void norm_plainly(const sheaf__layer_norm *n)
{
    same.ref->layernorm(n->y, n->cols, n->x, n->cols, n->mean, n->rstd, n->weight, n->bias,
                        n->residual, n->rows, n->cols, n->dtype);
}

SAME_TYPES(test_norm__layernorm, dtype)
{
    for (size_t i = 0; i < 8 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 8].rows, cols = shapes[i / 8].width;
        sheaf__layer_norm n = layer_norm(rows, cols, i & 1, dtype);
        float *sum = calloc((size_t)rows + 1, sizeof *sum);
        if (i & 2)
            n.residual = same_take(rows * cols, dtype);
        if (i & 4) { /* of a cut width: its statistics are there */
            n.cut = true;
            n.width = 3 * cols;
        }
        SAME_EACH (device) {
            const sheaf__layer_norm there = norm_there(&n);
            sheaf__op_layernorm(device, &there);
        }
        if (!n.cut) {
            same.ref->layernorm_sum(sum, n.x, cols, rows, cols, dtype);
            make_means(&n, sum);
            same.ref->layernorm_squares(sum, n.x, cols, n.mean, rows, cols, dtype);
            make_deviations(&n, sum);
        }
        norm_plainly(&n);
        same_check("layernorm");
        free(sum);
    }
}

SAME_TYPES(test_norm__layernorm_back, dtype)
{
    for (size_t i = 0; i < 8 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 8].rows, cols = shapes[i / 8].width;
        const bool add = i & 2, cut = i & 4;
        sheaf__layer_norm n = layer_norm(rows, cols, i & 1, dtype);
        void *dx = same_take(rows * cols, dtype);
        float *sum = calloc(2 * (size_t)rows + 1, sizeof *sum), *total = NULL, *s = sum;
        if (cut) {
            n.width = 3 * cols;
            n.cut = true;
            s = total = same_take(2 * rows, SHEAF_F32);
        }
        SAME_EACH (device) {
            const sheaf__layer_norm there = norm_there(&n);
            sheaf__op_layernorm_back(device, &there, SAME(dx), add, SAME(total));
        }
        if (!cut)
            same.ref->layernorm_back_sums(s, s + rows, n.y, cols, n.x, cols, n.mean, n.rstd,
                                          n.weight, rows, cols, dtype);
        for (int64_t r = 0; r < rows; r++) {
            s[r] = n.plain ? 0 : sheaf__one_nan(s[r] / (float)n.width);
            s[rows + r] = sheaf__one_nan(s[rows + r] / (float)n.width);
        }
        same.ref->layernorm_back(dx, n.y, cols, n.x, cols, n.mean, n.rstd, n.weight, s, s + rows,
                                 rows, cols, add, dtype);
        same_check("layernorm_back");
        free(sum);
    }
}

/* A first slice of one column, one without, one with what is left. */
SAME_TYPES(test_norm__layernorm_sums, dtype)
{
    static const sheaf__norm_sums kinds[] = { SHEAF__SUMS_X, SHEAF__SUMS_SQUARES,
                                              SHEAF__SUMS_BACK };
    for (size_t i = 0; i < 3 * ARRAY_LEN(shapes); i++) {
        const sheaf__norm_sums which = kinds[i % 3];
        const int64_t rows = shapes[i / 3].rows, cols = shapes[i / 3].width,
                      extent[] = { 1, 0, cols - 1 }, each = which == SHEAF__SUMS_BACK ? 2 : 1;
        sheaf__layer_norm n = layer_norm(rows, cols, false, dtype);
        float *part = same_take(3 * each * rows, SHEAF_F32);
        n.cut = true, n.slices = 3, n.begin = slice_begin, n.extent = extent;
        SAME_EACH (device) {
            const sheaf__layer_norm there = norm_there(&n);
            sheaf__op_layernorm_sums(device, &there, SAME(part), which);
        }
        for (int s = 0; s < 3; s += 2) {
            float *sum = part + s * each * rows;
            const int64_t at = slice_begin[s], size = (int64_t)sheaf_dtype_bytes(dtype);
            const char *x = (const char *)n.x + at * size, *dy = (const char *)n.y + at * size;
            if (extent[s] == 0)
                continue;
            if (which == SHEAF__SUMS_X)
                same.ref->layernorm_sum(sum, x, cols, rows, extent[s], dtype);
            else if (which == SHEAF__SUMS_SQUARES)
                same.ref->layernorm_squares(sum, x, cols, n.mean, rows, extent[s], dtype);
            else
                same.ref->layernorm_back_sums(sum, sum + rows, dy, cols, x, cols, n.mean, n.rstd,
                                              n.weight + at, rows, extent[s], dtype);
        }
        same_check("layernorm_sums");
    }
}

SAME_NUMBERS(test_norm__layernorm_statistics)
{
    for (size_t i = 0; i < 3 * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 3] * 7;
        sheaf__layer_norm n = layer_norm(rows, 3, i % 3 == 2, SHEAF_F32);
        float *total = n.plain ? NULL : same_take(rows, SHEAF_F32);
        const sheaf__norm_sums which = i % 3 == 1 ? SHEAF__SUMS_SQUARES : SHEAF__SUMS_X;
        n.cut = true, n.width = 300;
        SAME_EACH (device) {
            const sheaf__layer_norm there = norm_there(&n);
            sheaf__op_layernorm_statistics(device, &there, SAME(total), which);
        }
        if (which == SHEAF__SUMS_SQUARES)
            make_deviations(&n, total);
        else
            make_means(&n, total);
        same_check("layernorm_statistics");
    }
}

FIXTURE(same_open, same_close);
