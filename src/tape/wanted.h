/* wanted.h - the rows that the output head reads: what comes after the last attention is computed
 * of them alone, as nothing else looks at the other rows.
 *
 * Rows are taken in whole units of 32, counted from the first: a unit with a row that is read stays
 * whole. So sums over rows (gradients of weights) are, to the byte, those over all rows in which
 * the gradients of the others are zero: an ascending chain, a chain by pairs and one by chunks of
 * 32 (docs/contract.md, 1.1) meet what is left in the same places, and where blocks of 256 begin is
 * known.
 * Which rows those are is known when the tape runs; memory is taken for those. The dry device
 * counts them where it knows the labels, else as many as there can be (sheaf__head_run.most,
 * `pick`). */
#pragma once

#include "tape/head.h"

enum { SHEAF__WANTED_UNIT = 32 };

/* sheaf__hold_blocks - room for where blocks of so many rows begin, and the end; the tape's.
 * sheaf__lay_blocks - of `count` chosen rows, ascending: returns how many blocks they are of. */
int64_t *sheaf__hold_blocks(sheaf__tape *tape, int64_t rows);
int64_t sheaf__lay_blocks(int64_t *begin, const int32_t *which, int64_t count);

typedef struct sheaf__wanted {
    /* [rows] int32: the number of each row that is there, ascending; where among them each row is,
     * -1: it is not */
    sheaf__value *which, *place;
    const int64_t *count;
    const sheaf__row_blocks *blocks;
} sheaf__wanted;

/* sheaf__record_wanted - of `rows` rows those that the head of `run` reads: picked ones, those with
 * a label, or all. `run` is borrowed and read when the tape runs. */
sheaf__wanted sheaf__record_wanted(sheaf__tape *tape, int64_t rows, const sheaf__head_run *run);
/* sheaf__wanted_count - how many those are; on dry where the labels are known, else the most there
 * can be. Of picked rows the most there can be, too. */
int64_t sheaf__wanted_count(int64_t rows, const sheaf__head_run *run, bool dry);
/* sheaf__record_wanted_rows - those rows of x; the gradient of the others is zero. */
sheaf__value *sheaf__record_wanted_rows(sheaf__tape *tape, const sheaf__wanted *wanted,
                                        sheaf__value *x);
