/* positions.c - kernels that add rows and positions to the rows of pictures
 * (ops/tensor/images.h). */
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/tensor/images.h"

/* A thread has elements of one copy. */
KERNELS(add_rows, sheaf__repeats, 256)
{
    const int per = PER(dtype);
    const int64_t n = a->n, parts = (n + per - 1) / per;
    int64_t part;
    const int64_t copy = divide(own_index(), parts, &part), i = part * per;
    if (copy >= a->copies)
        return;
    float x[MOST], row[MOST];
    load_some(x, a->x, copy * n + i, copy * n + n, dtype, per);
    load_some(row, a->from, i, n, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e++)
        x[e] += row[e];
    store_some(a->x, copy * n + i, copy * n + n, x, dtype, per);
}

/* Columns c and up of the position at row y, column x of a picture, made of rows of a table. */
DEVICE void blend(float *out, const sheaf__placed *a, const sheaf__picture_at *at, int64_t y,
                  int64_t x, int64_t c, int per)
{
    const int64_t width = a->width, taps = sheaf__taps_count(&a->of, at, y, x);
    UNROLL
    for (int e = 0; e < per; e++)
        out[e] = 0;
    for (int64_t k = 0; k < taps; k++) {
        float part[MOST], weight;
        const int64_t row = (sheaf__taps_row(&weight, &a->of, at, y, x, k) + a->of.first) * width;
        load_some(part, a->of.table, row + c, row + width, SHEAF_F32, per);
        UNROLL
        for (int e = 0; e < per; e++)
            out[e] = k > 0 ? out[e] + part[e] * weight : part[e] * weight;
    }
}

/* The same of lines that are turned: the first half is of the column, the second of the row. */
DEVICE void of_lines(float *out, const sheaf__placed *a, int64_t y, int64_t x, int64_t c, int per)
{
    const int64_t half = a->width / 2;
    UNROLL
    for (int e = 0; e < per; e++) {
        const int64_t line = c + e < half ? x * half + c + e : y * half + c + e - half;
        out[e] = c + e < a->width ? a->of.turned[line] : 0;
    }
}

KERNELS(add_positions, sheaf__placed, 256)
{
    const int per = PER(dtype);
    const int64_t width = a->width, parts = (width + per - 1) / per;
    int64_t part, patch;
    const int64_t row = divide(own_index(), parts, &part), c = part * per;
    if (row >= a->rows)
        return;
    const sheaf__picture_at *at =
        &a->of.at[sheaf__picture_of(a->of.at, a->of.images, a->of.class_row, row, &patch)];
    float v[MOST], position[MOST];
    load_some(v, a->x, row * width + c, row * width + width, dtype, per);
    int64_t x = 0;
    const int64_t y = patch < 0 ? 0 : divide(patch, at->across, &x);
    if (patch < 0 ? !a->of.first : y >= at->down) { /* or behind the picture's own */
        move_some(a->y, row * width + c, row * width + width, v, dtype, per);
        return;
    }
    if (patch < 0)
        load_some(position, a->of.table, c, width, SHEAF_F32, per);
    else if (a->of.turned != NULL)
        of_lines(position, a, y, x, c, per);
    else
        blend(position, a, at, y, x, c, per);
    UNROLL
    for (int e = 0; e < per; e++)
        v[e] += patch < 0 ? position[e] : rounded_one(position[e], dtype);
    store_some(a->y, row * width + c, row * width + width, v, dtype, per);
}
