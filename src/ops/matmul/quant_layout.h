/* quant_layout.h - where what a quantised weight is made of lies on a device that has weights row
 * by row, for kernels of GPUs, too. One after the other, each from a multiple of 64 bytes on:
 *   codes   [rows][row_bytes]: of 4 bits two a byte, the first one in the low half; behind a row's
 *           codes zeros up to row_bytes, a multiple of 16
 *   scales  [rows][groups][floats] float32, or where they are doubled their codes, a byte each
 *   zeros   [rows][groups], a byte each; where the form has them
 *   index   [cols] 16 bits: a column's group; where groups are indexed
 *   nested  [nested] float32, of doubled scales: those of the tensor from first_nested on
 *   map     [256] float32: what codes of doubled scales stand for
 * `rows` and `cols` are those of the box; a part of a weight has that of the larger one. */
#pragma once

#include "base/shared_fn.h"
#include "ops/quant/quant.h"

typedef struct mm_quant_rows {
    int64_t row_bytes, groups, nested, first_nested;
    int64_t scales, zeros, index, nested_at, map; /* bytes before them */
    int64_t bytes;                                /* of all */
} mm_quant_rows;

SHEAF__SHARED_FN int64_t mm_quant_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by * by;
}

/* Scales of doubled scales that a box needs, and the number of the first of them. */
SHEAF__SHARED_FN int64_t mm_quant_nested(int64_t *first, const sheaf__quant *q,
                                         const sheaf__quant_box *b)
{
    *first = 0;
    if (!q->doubled || b->rows == 0 || b->cols == 0)
        return 0;
    const int64_t last = (b->row0 + b->rows - 1) * b->in + b->col0 + b->cols - 1;
    *first = sheaf__quant_first_group(q, b, 0) / 256;
    return last / q->block / 256 - *first + 1;
}

SHEAF__SHARED_FN mm_quant_rows mm_quant_rows_of(const sheaf__quant *q, const sheaf__quant_box *b)
{
    mm_quant_rows l;
    l.row_bytes = mm_quant_up((b->cols * sheaf__code_bits(q->codes) + 7) / 8, 16);
    l.groups = sheaf__quant_groups(q, b);
    l.nested = mm_quant_nested(&l.first_nested, q, b);
    const int64_t scales = b->rows * l.groups;
    l.scales = mm_quant_up(b->rows * l.row_bytes, 64);
    l.zeros = mm_quant_up(l.scales + scales * (q->doubled ? 1 : 4 * sheaf__quant_floats(q)), 64);
    l.index = mm_quant_up(l.zeros + (q->zeros ? scales : 0), 64);
    l.nested_at =
        mm_quant_up(l.index + (q->grouping == SHEAF__GROUPS_INDEXED ? 2 * b->cols : 0), 64);
    l.map = mm_quant_up(l.nested_at + 4 * l.nested, 64);
    l.bytes = l.map + (q->doubled ? 1024 : 0);
    return l;
}
