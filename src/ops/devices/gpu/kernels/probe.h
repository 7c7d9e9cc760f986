/* probe.h - arguments of the kernels that ask a GPU how it computes (probe.c). */
#pragma once

#include <stdint.h>

#define SHEAF__PROBE_CASES 8192 /* of three numbers each; a multiple of a block */
enum {
    SHEAF__PROBE_SUM,
    SHEAF__PROBE_PRODUCT,
    SHEAF__PROBE_FMA,
    SHEAF__PROBE_QUOTIENT,
    SHEAF__PROBE_ROOT,
    SHEAF__PROBE_KEPT, /* these three: as values of quantised weights are made */
    SHEAF__PROBE_BF16,
    SHEAF__PROBE_F16,
    SHEAF__PROBE_RESULTS
};

typedef struct sheaf__probe_floats {
    const float *in; /* [cases][3] */
    float *out;      /* [cases][results] */
} sheaf__probe_floats;

/* One instruction of tensor cores, of which all rows and columns are the same: 16 products and c.
 */
enum { SHEAF__PROBE_GROUPS = 96 };

typedef struct sheaf__probe_group {
    uint16_t a[16], b[16];
    uint32_t c; /* a float32 */
} sheaf__probe_group;

typedef struct sheaf__probe_groups {
    const sheaf__probe_group *in; /* [blocks] */
    uint32_t *out;                /* [blocks][128] */
} sheaf__probe_groups;
