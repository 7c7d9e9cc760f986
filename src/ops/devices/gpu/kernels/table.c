/* table.c - kernels of lookups in vocabulary tables (ops/tensor/table.h). */
#include "ops/tensor/table.h"
#include "ops/devices/gpu/kernels/vectors.h"

DEVICE void rows_from(const sheaf__lookup *a, sheaf_dtype to, sheaf_dtype from)
{
    const int per = to == SHEAF_F32 ? PER(from) : MOST;
    const int64_t cols = a->cols, parts = (cols + per - 1) / per;
    int64_t part, inside;
    const int64_t i = divide(own_index(), parts, &part), c = part * per;
    if (i >= a->tokens.n)
        return;
    const int piece = sheaf__lookup_at(a, i, &inside);
    if (piece < 0)
        return;
    const void *table = a->pieces.at[piece];
    const int64_t at = inside * cols + c, y = i * cols + c, left = cols - c;
    if (to == from) {
        copy_some(a->x, y, table, at, left, to);
        return;
    }
    float v[MOST];
    load_some(v, table, at, at + left, from, per);
    move_some(a->x, y, y + left, v, to, per);
}

KERNELS(table_rows, sheaf__lookup, 256)
{
    if (a->from == SHEAF_F32)
        rows_from(a, dtype, SHEAF_F32);
    else if (a->from == SHEAF_BF16)
        rows_from(a, dtype, SHEAF_BF16);
    else
        rows_from(a, dtype, SHEAF_F16);
}

/* A thread has one element, the ranks of a token side by side. */
KERNELS(factor_columns, sheaf__lookup, 256)
{
    int64_t j, inside;
    const int64_t i = divide(own_index(), a->cols, &j);
    if (i >= a->tokens.n)
        return;
    const int piece = sheaf__lookup_at(a, i, &inside);
    if (piece < 0)
        return;
    const float v =
        load_one(a->pieces.at[piece], j * sheaf__lookup_rows(&a->pieces, piece) + inside, dtype);
    put_one(a->x, i * a->cols + j, v * a->scale, dtype, false);
}
