/* head_rows.h - the rows that the output head reads: ops after the last attention compute them
 * alone, as nothing else reads the other rows.
 *
 * Rows are taken in whole units of 32, counted from the first: a unit with a row that is read stays
 * whole. So sums over rows (gradients of weights) are, to the byte, those over all rows in which
 * the gradients of the others are zero: an ascending chain, a chain by pairs, one by chunks of 32
 * and groups of 8 or 16 (docs/contract.md, 1.1) meet the remaining rows in the same places, and
 * where blocks of 256 begin, or chains after 4096 rows, is known. Which rows those are is known
 * when the tape runs; memory is taken for those. A plan that does not know the labels counts as
 * many as there can be (sheaf__head_run.most, `pick`). */
#pragma once

#include "tape/head.h"
#include "tape/shards.h"

enum { SHEAF__HEAD_ROWS_UNIT = 32 };

/* sheaf__blocks_alloc - room for where blocks of so many rows begin, and the end; the tape's.
 * sheaf__blocks_fill - of `count` chosen rows, ascending: returns how many blocks they are of. */
int64_t *sheaf__blocks_alloc(sheaf__tape *tape, int64_t rows);
int64_t sheaf__blocks_fill(int64_t *begin, const int32_t *which, int64_t count,
                           const sheaf__context *c);

typedef struct sheaf__head_rows {
    sheaf__value *which;  /* [rows] int32: the number of each row that is there, ascending */
    const int32_t *place; /* [rows], the host's: where among them each row is, -1: it is not */
    const int64_t *count;
    const sheaf__row_blocks *blocks;
    /* Where the rows of x are divided: those of this rank, counted from its first; and whose all
     * are. NULL: they are not. */
    sheaf__value *own;
    const sheaf__row_shards *shards;
} sheaf__head_rows;

/* sheaf__record_head_rows - of `rows` rows those that the head of `run` reads: picked ones, those
 * with a label, or all. `run` is borrowed and read when the tape runs. shards: of the rows, or
 * NULL. */
sheaf__head_rows sheaf__record_head_rows(sheaf__tape *tape, int64_t rows,
                                         const sheaf__row_shards *shards,
                                         const sheaf__head_run *run);
/* sheaf__head_rows_count - how many those are; where labels are not known the most there can be.
 * Of picked rows the most there can be, too. */
int64_t sheaf__head_rows_count(int64_t rows, const sheaf__head_run *run);
/* sheaf__record_index_select - those rows of x, all or divided; the gradient of the others is zero.
 */
sheaf__value *sheaf__record_index_select(sheaf__tape *tape, const sheaf__head_rows *wanted,
                                         sheaf__value *x);
