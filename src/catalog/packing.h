/* packing.h - how programs lay quantised weights out in files: a row of a table for each way.
 *
 * A new one is a row here (bytes and names of tensors), a kind of codes in ops/quant/values.h and
 * a row of schema/quantization.c (its quantization_config). */
#pragma once

#include "ops/quant/quant.h"
#include "schema/quantization.h"

/* What a quantised weight "X.weight" [out, in] is made of. */
enum {
    SHEAF__CODES_PART,  /* [out, in] */
    SHEAF__SCALES_PART, /* [out, groups] */
    SHEAF__ZEROS_PART,  /* [out, groups] */
    SHEAF__NESTED_PART,
    SHEAF__INDEX_PART,
    SHEAF__FURTHER_PARTS, /* from here: what is read when the tensor is found */
    SHEAF__PARTS = SHEAF__FURTHER_PARTS + 3
};

/* A matrix of codes, zeros or scales in a file, as lines of words. A word has neighbours of a row,
 * or of a column; codes that are missing at an end fill up the last word. */
typedef struct sheaf__plane {
    bool turned;       /* lines are the matrix's columns */
    bool down;         /* a word has neighbours of a column */
    uint8_t word, per; /* bytes of a word, its elements; 0: one float */
    uint8_t shift[8];  /* by how many bits each element of a word is shifted */
    uint8_t flip;      /* bits of a code that files have the other way */
} sheaf__plane;

typedef struct sheaf__packing {
    sheaf__quantizer by;
    sheaf__codes codes;
    sheaf__groups grouping;
    const char *suffix[SHEAF__PARTS]; /* behind X; NULL: no such part */
    uint32_t optional;                /* 1 << part: it may be missing */
    int sign;                         /* the part whose name shows that X is stored so */
    uint64_t code_types, scale_types; /* dtypes of these parts: 1 << dtype */
    sheaf__plane plane[SHEAF__ZEROS_PART + 1];
    bool sizes;   /* scales are sizes: 0 or more */
    bool squares; /* scales are of blocks of several rows, whose sizes the config says */
} sheaf__packing;

/* sheaf__packings - all of them. */
extern const sheaf__packing sheaf__packings[];
extern const int sheaf__packings_count;
/* sheaf__packing_of - the first one of a quantizer with such codes (SHEAF__CODES: with any); NULL:
 * it has none. */
const sheaf__packing *sheaf__packing_of(sheaf__quantizer by, sheaf__codes codes);

/* sheaf__plane_put - n codes, neighbours of a row from (row, col) on, into the words of a matrix
 * [rows, cols]. Words along rows are written: col and n are multiples of `per`. Of words along
 * columns a part is set, which must be 0; not at once from several threads. */
void sheaf__plane_put(uint8_t *words, const sheaf__plane *plane, int64_t rows, int64_t cols,
                      int64_t row, int64_t col, const uint8_t *codes, int64_t n);

/* sheaf__plane_shape - of the tensor that has a matrix [rows, cols]. sheaf__plane_size - the matrix
 * that a tensor has whose words are full. */
static inline void sheaf__plane_shape(int64_t shape[2], const sheaf__plane *p, int64_t rows,
                                      int64_t cols)
{
    const int64_t per = p->per > 0 ? p->per : 1;
    shape[p->turned] = p->down ? (rows + per - 1) / per : rows;
    shape[!p->turned] = p->down ? cols : (cols + per - 1) / per;
}
static inline void sheaf__plane_size(int64_t *rows, int64_t *cols, const sheaf__plane *p,
                                     const int64_t shape[2])
{
    *rows = shape[p->turned] * (p->down ? p->per : 1);
    *cols = shape[!p->turned] * (p->down ? 1 : p->per);
}
