/* gradients.c - kernels for gradients of tables. */
#include "ops/devices/cuda/kernels/gradients.h"

#include "ops/devices/cuda/kernels/vectors.h"
#include "ops/tensor/images.h"

enum { AHEAD = 8 };

/* ---- by token ---- */

/* A warp has a token, and counts those before it. */
KERNEL(tokens_sort, tokens_sort_arguments, 256)
{
    const int64_t i = own_index() / 32, n = a->tokens.n;
    const int32_t *id = a->tokens.id, own = i < n ? id[i] : 0;
    int32_t before = 0;
    for (int64_t j = threadIdx.x % 32; j < n; j += 32)
        before += id[j] < own || (id[j] == own && j < i);
    UNROLL
    for (int by = 16; by > 0; by /= 2)
        before += shuffle_xor_i(before, by);
    if (i < n && threadIdx.x % 32 == 0) {
        a->order[before] = (int32_t)i;
        a->key[before] = own;
    }
}

KERNELS(tokens_add, tokens_add_arguments, 256)
{
    const sheaf__lookup *l = &a->of;
    const int64_t p = blockIdx.x, n = l->tokens.n,
                  c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    const int32_t key = a->key[p];
    int64_t inside;
    if (c >= l->cols || (p > 0 && a->key[p - 1] == key))
        return;
    const int piece = sheaf__lookup_taking(l, a->order[p], &inside);
    if (piece < 0)
        return;
    float *to =
        (float *)l->pieces.at[piece] +
        (a->factor ? c * sheaf__lookup_rows(&l->pieces, piece) + inside : inside * l->cols + c);
    float sum = *to;
    for (int64_t q = p; q < n && a->key[q] == key; q += AHEAD) {
        float v[AHEAD];
        bool takes[AHEAD];
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            takes[i] = q + i < n && a->key[q + i] == key;
            v[i] = takes[i] ? load_one(l->x, a->order[q + i] * l->cols + c, dtype) : 0;
        }
        UNROLL
        for (int i = 0; i < AHEAD; i++)
            if (takes[i])
                sum = sheaf__one_nan(sum + v[i]);
    }
    *to = sum;
}

/* ---- positions ---- */

/* What row r of a picture gives to column c of row (y, x) of the table. */
DEVICE float positions_row(float sum, const sheaf__placed *a, const sheaf__picture_at *at,
                           int64_t r, int64_t values, int64_t end, int64_t y, int64_t x, int64_t c,
                           sheaf_dtype dtype)
{
    const sheaf__positions *p = &a->of;
    const int64_t down = at->line + r, first = at->line + at->down;
    for (int64_t col = 0; col < at->across && values + col < end; col++)
        for (int32_t i = p->begin[down]; i < p->begin[down + 1]; i++)
            for (int32_t k = p->begin[first + col]; k < p->begin[first + col + 1]; k++)
                if (p->index[i] == y && p->index[k] == x) {
                    const float dy = load_one(a->x, (values + col) * a->width + c, dtype),
                                part = dy * (p->weight[i] * p->weight[k]);
                    sum = sheaf__one_nan(sum + part);
                }
    return sum;
}

DEVICE bool positions_line_has(const sheaf__positions *p, int64_t line, int64_t index)
{
    bool has = false;
    for (int32_t i = p->begin[line]; i < p->begin[line + 1]; i++)
        has |= p->index[i] == index;
    return has;
}

/* Blocks in x are rows of the table, in y columns. */
KERNELS(add_positions_back, sheaf__placed, 256)
{
    const sheaf__positions *p = &a->of;
    const int64_t row = (int64_t)blockIdx.x - p->first,
                  c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= a->width)
        return;
    const int64_t y = row < 0 ? -1 : row / p->cols, x = row < 0 ? -1 : row % p->cols;
    float *to = a->grad + (int64_t)blockIdx.x * a->width + c, sum = *to;
    for (int64_t i = 0; i < p->images; i++) {
        const sheaf__picture_at *at = &p->at[i];
        const int64_t own = at->first + (p->class_row ? i : 0), values = own + p->class_row,
                      next = i + 1 < p->images ? at[1].first + (p->class_row ? i + 1 : 0) : a->rows,
                      end = next < a->rows ? next : a->rows;
        if (row < 0 && p->class_row && own < end)
            sum = sheaf__one_nan(sum + load_one(a->x, own * a->width + c, dtype));
        for (int64_t r = 0; row >= 0 && r < at->down; r++)
            if (positions_line_has(p, at->line + r, y))
                sum = positions_row(sum, a, at, r, values + r * at->across, end, y, x, c, dtype);
    }
    *to = sum;
}
