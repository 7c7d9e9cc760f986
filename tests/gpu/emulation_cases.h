/* emulation_cases.h - arguments of the kernels that emulation_test.c runs. */
#pragma once

#include <stdint.h>

/* What is left out or done wrong on purpose. */
enum {
    CASE_RIGHT,
    CASE_NO_BARRIER,       /* between writing shared memory and reading what others wrote */
    CASE_NO_WAIT,          /* for a copy */
    CASE_WAIT_FOR_FEWER,   /* copies than are read */
    CASE_NO_BARRIER_AFTER, /* a wait: other threads' copies */
    CASE_BELOW,            /* case_neighbour, which has no barrier */
    CASE_ABOVE,
    CASE_NO_BARRIER_BEFORE /* the next copy to where others still read */
};

typedef struct case_reverse {
    const float *x;
    float *y;
    int32_t n, mistake;
} case_reverse;

typedef struct case_shuffles {
    const float *x; /* [32] */
    float *sum;
    double *sum_d;
    int32_t *sum_i;
} case_shuffles;

typedef struct case_matrices {
    const uint16_t *x;            /* [32 rows][8] */
    uint32_t *plain, *transposed; /* [32 lanes][4] */
} case_matrices;

/* [warps] of a[16][16], b[16][8] (row, column), c[16][8], in place. */
typedef struct case_mma {
    const uint16_t *a, *b;
    float *c;
    int32_t f16;
} case_mma;

typedef struct case_ring {
    const float *x; /* [stages][threads][4] */
    float *y;       /* [threads]: sum over stages of what another thread copied */
    int32_t stages, mistake;
} case_ring;

enum {
    ODD_RIGHT,
    ODD_STUCK_AT_BARRIER,
    ODD_STUCK_AT_SHUFFLE,
    ODD_LANES_PART,
    ODD_MATRICES_OUTSIDE,
    ODD_MATRICES_UNALIGNED,
    ODD_COPY_UNALIGNED,
    ODD_COPY_OUTSIDE,
    ODD_QUAD_UNALIGNED,
    ODD_ONE_PAST_SHARED,
    ODD_FAR_PAST_SHARED,
    ODD_BELOW_SHARED,
    ODD_NO_MEMORY,
    ODD_DEEP
};
typedef struct case_odd {
    float *x;             /* [threads] */
    int32_t what, shared; /* bytes of shared memory */
} case_odd;

typedef struct case_flat {
    const float *x;
    float *y;
    int64_t n;
} case_flat;
