/* codes.h - quantised weights as kernels get them (ops/quant/quant.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/quant/quant.h"

/* Codes [rows, cols] with what belongs to them, all of it in the GPU's memory. The group of an
 * element (row, col) is index[col], or (phase + col) / block, where phase is that of the row. */
typedef struct sheaf__codes_matrix {
    const uint8_t *code; /* rows at multiples of 16 bytes */
    const void *scale;   /* [rows][groups][floats], or codes of them where they are doubled */
    const uint8_t *zero; /* [rows][groups], or NULL */
    const uint16_t *index;
    const float *nested, *map; /* doubled: [..], and the values of their codes, [256] */
    int64_t stride;            /* bytes of a row's codes */
    int64_t row0;              /* of a part of the matrix, where one is meant */
    int64_t in, first;         /* flat: elements of the tensor's rows, and before this matrix */
    int32_t groups, block;     /* block 0: a row is one group */
    int32_t shift;             /* block is 2^shift; -1: it is none of these */
    int32_t phase;             /* not flat: of every row */
    float offset;
    uint8_t codes, flat, doubled; /* codes: of sheaf__codes */
    uint8_t dtype;                /* sheaf_dtype to which values are rounded before dy W */
    uint8_t added;                /* floats are two: the second is added */
    uint8_t even; /* 4 bits, and each 32 elements from a multiple of 32 on are in one group */
} sheaf__codes_matrix;

/* Values of rows [row0, row0 + rows), columns [col0, col0 + cols): rows without gaps. */
typedef struct sheaf__codes_panel {
    sheaf__codes_matrix of;
    void *to;
    int64_t row0, rows, col0, cols; /* col0: a multiple of 8 */
    int32_t block0;                 /* of the launch: blocks of the panels before */
    bool back;                      /* for dy W */
    bool numbers;                   /* of codes alone, not scaled */
} sheaf__codes_panel;

enum { SHEAF__CODES_THREADS = 256, SHEAF__CODES_EACH = 8, SHEAF__CODES_PANELS = 16 };

/* Panels of one type, a thread for SHEAF__CODES_EACH elements of a row. */
typedef struct sheaf__codes_panels {
    sheaf__codes_panel panel[SHEAF__CODES_PANELS];
    int32_t panels;
} sheaf__codes_panels;
