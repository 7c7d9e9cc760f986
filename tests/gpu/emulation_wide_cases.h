/* emulation_wide_cases.h - arguments of the kernels that emulation_wide_test.c runs. */
#pragma once

#include "ops/devices/gpu/cuda/tensor_map.h"

enum {
    WIDE_RIGHT,
    WIDE_NO_WAIT_FOR_STAGE,   /* before it is read */
    WIDE_GIVEN_BACK_TOO_SOON, /* a stage that is still read */
    WIDE_SUMS_TOO_SOON,       /* read before they are waited for */
    WIDE_NO_LAST_WAIT,
    WIDE_TOO_FEW_BYTES, /* expected */
    WIDE_TOO_MANY_BYTES,
    WIDE_WRONG_PARITY,
    WIDE_OTHER_OPERANDS, /* of one lane */
    WIDE_WARPS_PART,
    WIDE_NOT_MADE, /* mbarriers */
    WIDE_UNALIGNED
};

/* y [256][256] = x [256][k] w [256][k]^T, by one cluster of two blocks. */
typedef struct case_wide {
    sheaf__tensor_map x, w; /* boxes of 128 rows */
    float *y;
    int32_t k, mistake;
} case_wide;

/* What a box of 16 rows is in shared memory. */
typedef struct case_box {
    sheaf__tensor_map map;
    uint16_t *to; /* [16][64] */
    int32_t column, row;
} case_box;

enum {
    WIDE_STAGES = 3,
    WIDE_A = 128 * 128, /* bytes of a stage */
    WIDE_B = 256 * 128,
    WIDE_STAGE = WIDE_A + WIDE_B,
    WIDE_SHARED = WIDE_STAGES * WIDE_STAGE + 2 * WIDE_STAGES * 8
};
