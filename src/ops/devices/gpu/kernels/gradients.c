/* gradients.c - kernels for gradients of tables. */
#include "ops/devices/gpu/kernels/gradients.h"

#include "ops/devices/gpu/kernels/vectors.h"
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

/* The patches of one row of a picture that a row of the table is made for. */
typedef struct positions_line {
    int64_t values, end;         /* the row's first, in dy; where the picture ends there */
    int32_t down, across, first; /* the row's line, how many patches, the first's line */
    int32_t y, x;                /* of the table */
} positions_line;

DEVICE float positions_add(float sum, const sheaf__placed *a, const positions_line *l, int32_t c,
                           sheaf_dtype dtype)
{
    const int32_t *begin = a->of.begin, *index = a->of.index;
    for (int32_t col = 0; col < l->across && l->values + col < l->end; col++)
        for (int32_t i = begin[l->down]; i < begin[l->down + 1]; i++)
            for (int32_t k = begin[l->first + col]; k < begin[l->first + col + 1]; k++)
                if (index[i] == l->y && index[k] == l->x) {
                    const float dy = load_one(a->x, (l->values + col) * a->width + c, dtype),
                                part = dy * (a->of.weight[i] * a->of.weight[k]);
                    sum = sheaf__one_nan(sum + part);
                }
    return sum;
}

DEVICE bool positions_line_has(const sheaf__positions *p, int32_t line, int32_t index)
{
    bool has = false;
    for (int32_t i = p->begin[line]; i < p->begin[line + 1]; i++)
        has |= p->index[i] == index;
    return has;
}

/* A picture's gradient for column c of a row of the table, or (y < 0) of that for class rows. Its
 * values begin at row `own`, and another's at `end`. */
DEVICE float positions_picture(float sum, const sheaf__placed *a, const sheaf__picture_at *at,
                               int64_t own, int64_t end, int32_t y, int32_t x, int32_t c,
                               sheaf_dtype dtype)
{
    const sheaf__positions *p = &a->of;
    positions_line l = { own + p->class_row,
                         end,
                         (int32_t)at->line,
                         (int32_t)at->across,
                         (int32_t)(at->line + at->down),
                         y,
                         x };
    if (y < 0)
        return p->class_row && own < end
                   ? sheaf__one_nan(sum + load_one(a->x, own * a->width + c, dtype))
                   : sum;
    for (; l.down < l.first; l.down++, l.values += l.across)
        if (positions_line_has(p, l.down, y))
            sum = positions_add(sum, a, &l, c, dtype);
    return sum;
}

/* Blocks in x are rows of the table, in y columns. */
KERNELS(add_positions_back, sheaf__placed, 256)
{
    const sheaf__positions *p = &a->of;
    const int32_t row = (int32_t)blockIdx.x - p->first, cols = (int32_t)p->cols,
                  c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (c >= a->width)
        return;
    float *to = a->grad + (int64_t)blockIdx.x * a->width + c, sum = *to;
    for (int64_t i = 0; i < p->images; i++) {
        const int64_t own = p->at[i].first + (p->class_row ? i : 0),
                      next = p->at[i + 1].first + (p->class_row ? i + 1 : 0),
                      end = i + 1 < p->images && next < a->rows ? next : a->rows;
        sum = positions_picture(sum, a, &p->at[i], own, end, row < 0 ? -1 : row / cols,
                                row < 0 ? -1 : row % cols, c, dtype);
    }
    *to = sum;
}
