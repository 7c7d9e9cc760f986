/* matmul_quant.h - a quantised weight as the processor has it: in cells, of the 32 rows of a panel
 * and the columns of a block of k, [blocks][panels] as panels are. A cell has
 *   scales  [groups][floats][32] float32, or where they are doubled their codes, a byte each: of
 *           the groups that its columns have, from the first one on; not where they are indexed
 *   zeros   [groups][32] bytes, where the form has them; not where they are indexed
 *   codes   from a multiple of 64 bytes on, in units of 8 columns; of 4 bits [units][32] words: of
 *           a row those of columns 0, 4, 2, 6, the first one lowest, and in the upper half of 1, 5,
 *           3, 7, so that words, shifted, are pairs to look up; of 8 bits [units][32][2] words: of
 *           a row those of columns p, p + 2, p + 4, p + 6 for word p
 * What belongs to all is behind the cells. Rows and columns that fill up a cell have codes and
 * scales of 0. */
#pragma once

#include "ops/matmul/matmul_private.h"
#include "ops/matmul/quant_layout.h"

typedef struct mm_codes {
    const sheaf__packed *w;
    int64_t panels;
    int64_t cell;          /* bytes of a whole block's cell */
    bool together;         /* the rows of a panel have their groups' ends at the same columns */
    int64_t first_nested;  /* number of the first one that is here */
    int64_t index;         /* bytes before what is behind the cells: index, [cols] 16 bits, */
    int64_t scales, zeros; /* [panels][groups][32] where they are indexed, */
    int64_t nested, map;   /* and of doubled scales */
    int64_t bytes;         /* of all */
} mm_codes;

#define MM_UNIT 8 /* columns */

/* Of a group, of one row. */
static inline int64_t mm_scale_bytes(const sheaf__quant *q)
{
    return q->doubled ? 1 : 4 * sheaf__quant_floats(q);
}

/* Of a cell of `cols` columns. */
static inline int64_t mm_cell_groups(const mm_codes *l, int64_t cols)
{
    const sheaf__quant *q = &l->w->quant;
    const int64_t phase = l->w->box.col0 % (q->block > 0 ? q->block : 1);
    if (q->grouping == SHEAF__GROUPS_INDEXED)
        return 0;
    if (q->block == 0 || (l->together && q->block % MM_BLOCK == 0 && phase % MM_BLOCK == 0))
        return 1;
    if (l->together && MM_BLOCK % q->block == 0 && phase == 0)
        return mm_div_up(cols, q->block);
    return (q->block + cols - 2) / q->block + 1;
}

static inline int64_t mm_cell_head(const mm_codes *l, int64_t cols)
{
    const sheaf__quant *q = &l->w->quant;
    return mm_up(mm_cell_groups(l, cols) * MM_PANEL * (mm_scale_bytes(q) + q->zeros), 64);
}

static inline int64_t mm_cell_bytes(const mm_codes *l, int64_t cols)
{
    const int64_t bits = sheaf__code_bits(l->w->quant.codes);
    return mm_cell_head(l, cols) + mm_up(cols, MM_UNIT) * MM_PANEL * bits / 8;
}

/* sheaf__mm_codes - W, or the larger one. */
mm_codes sheaf__mm_codes(const sheaf__packed *w);

/* Bytes before the cell of W's row and of the block that starts at k0. */
static inline int64_t mm_cell_at(const mm_codes *l, int64_t row, int64_t k0)
{
    const int64_t panel = (l->w->row0 + row) / MM_PANEL;
    return k0 / MM_BLOCK * l->panels * l->cell +
           panel * (l->w->k - k0 >= MM_BLOCK ? l->cell : mm_cell_bytes(l, l->w->k - k0));
}

/* How far the codes of a unit's pair of columns are shifted. */
static inline int mm_code_shift(int bits, int pair)
{
    return bits == 8 ? pair * 8 : pair % 2 * 8 + pair / 2 * 4;
}

/* The word of a cell's codes that has row r of the panel and column c of the block, and how far it
 * is shifted. */
static inline int64_t mm_code_word(const sheaf__quant *q, int64_t r, int64_t c, int *shift)
{
    const int bits = sheaf__code_bits(q->codes), pair = (int)(c % MM_UNIT / 2);
    *shift = mm_code_shift(bits, pair);
    if (bits == 8)
        return (c / MM_UNIT * MM_PANEL + r) * 2 + c % 2;
    *shift += (int)(c % 2) * 16;
    return c / MM_UNIT * MM_PANEL + r;
}

/* An element's factor and summand, and the zero of its code. */
typedef struct mm_group {
    float scale, added;
    int zero;
} mm_group;

/* sheaf__mm_value - W[row][col] rounded to w->dtype, as what it is made. sheaf__mm_group_of - what
 * its group has. They do not depend on what the thread does with denormals. */
float sheaf__mm_value(const mm_codes *l, int64_t row, int64_t col, mm_made made);
mm_group sheaf__mm_group_of(const mm_codes *l, int64_t row, int64_t col);
/* sheaf__mm_values - columns [col, col + cols), even ones on, all in one block, of the panel that
 * has W's row: [steps][32] words. */
void sheaf__mm_values(uint32_t *to, const mm_codes *l, int64_t row, int64_t col, int64_t cols,
                      mm_made made);
/* sheaf__mm_rows_to_cells - a weight of rows, or a part of one, in memory of its own. */
sheaf_status *sheaf__mm_rows_to_cells(sheaf__packed *to, const sheaf__packed *rows);

/* ---- a panel's rows of one block, for vectors ---- */

#define MM_MOST_GROUPS 256

/* Scales, and zeros as numbers or what is added, of two neighbours of each row. */
typedef struct mm_scales {
    const float *scale[2], *other[2]; /* [32] of a column; `other` where the form has it */
} mm_scales;

typedef struct mm_cell {
    const mm_codes *l;
    const uint32_t *codes;   /* of its first unit */
    int64_t k0, cols, phase; /* of the block; elements of the first group before it */
    const float *scales;     /* [groups][floats][32] */
    const uint16_t *index;   /* if groups are indexed: from the block's first column on */
    int64_t group[MM_PANEL], end[MM_PANEL]; /* of each row at the column at hand, and its end */
    /* Numbers that had to be computed. */
    float restored[MM_MOST_GROUPS * MM_PANEL], zeros[MM_MOST_GROUPS * MM_PANEL], mixed[4][MM_PANEL];
} mm_cell;

/* sheaf__mm_cell - of the panel that has W's row, columns [col, end) of the block at k0; false:
 * only sheaf__mm_values() can read it. */
bool sheaf__mm_cell(mm_cell *c, const mm_codes *l, int64_t row, int64_t k0, int64_t col,
                    int64_t end);
/* sheaf__mm_cell_scales - those of columns col and col + 1 of the block, col even and ascending;
 * returns the next one for which they are others. */
int64_t sheaf__mm_cell_scales(mm_scales *out, mm_cell *c, int64_t col);
