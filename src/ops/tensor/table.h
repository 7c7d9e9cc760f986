/* table.h - arguments of operations on vocabulary tables by token, see tensor.h. */
#pragma once

#include <stdint.h>

#include "base/shared_fn.h"
#include "sheaf/cut.h"
#include "sheaf/dtype.h"

/* A table cut by rows, of which one run of pieces is here. */
typedef struct sheaf__pieces {
    int count;
    int64_t begin[SHEAF_MAX_SLICES + 1]; /* piece i: rows [begin[i], begin[i + 1]) of the table */
    void *at[SHEAF_MAX_SLICES];
} sheaf__pieces;

/* sheaf__pieces_find - the piece that holds `row`; -1: none here. */
SHEAF__SHARED_FN int sheaf__pieces_find(const sheaf__pieces *p, int64_t row)
{
    int low = 0, high = p->count - 1;
    if (p->count == 0 || row < p->begin[0] || row >= p->begin[p->count])
        return -1;
    while (low < high) { /* the first piece that ends behind row */
        const int mid = (low + high) / 2;
        if (p->begin[mid + 1] > row)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* The rows of `n` tokens. Those of tokens that are not here are left alone. */
typedef struct sheaf__tokens {
    const int32_t *id;
    int64_t n, skipped; /* skipped: a row that gets no gradient; -1: none */
} sheaf__tokens;

typedef struct sheaf__lookup {
    sheaf__pieces pieces;
    sheaf__tokens tokens;
    void *x; /* of the tokens, [n, cols] */
    sheaf_dtype dtype, from;
    int64_t cols;
    float scale;
} sheaf__lookup;

/* Rows of a piece. */
SHEAF__SHARED_FN int64_t sheaf__lookup_rows(const sheaf__pieces *p, int piece)
{
    return p->begin[piece + 1] - p->begin[piece];
}

/* Place of row i's token: row `inside` of a piece; -1: not here. */
SHEAF__SHARED_FN int sheaf__lookup_at(const sheaf__lookup *l, int64_t i, int64_t *inside)
{
    const int64_t id = l->tokens.id[i];
    const int piece = sheaf__pieces_find(&l->pieces, id);
    *inside = piece < 0 ? 0 : id - l->pieces.begin[piece];
    return piece;
}

/* The same, if it gets a gradient. */
SHEAF__SHARED_FN int sheaf__lookup_taking(const sheaf__lookup *l, int64_t i, int64_t *inside)
{
    return l->tokens.id[i] == l->tokens.skipped ? -1 : sheaf__lookup_at(l, i, inside);
}
