/* codes.h - where codes of 4 bits begin: (v[i] + v[i + 1]) / 2 in float32 of the ascending values.
 */
#pragma once

#include <stdint.h>

static const float sheaf__nf4_thresholds[16] = {
    -0x1.b239bp-1f,  -0x1.38a4ep-1f,  -0x1.d709p-2f,  -0x1.5bd4ecp-2f, -0x1.e079d8p-3f,
    -0x1.1a7178p-3f, -0x1.74f0e2p-5f, 0x1.45f5fep-5f, 0x1.ec90c4p-4f,  0x1.a0cfcp-3f,
    0x1.2b05a8p-2f,  0x1.8ea7f2p-2f,  0x1.00da08p-1f, 0x1.491b5ep-1f,  0x1.b913b4p-1f,
};
static const float sheaf__fp4_thresholds[16] = {
    -0x1.aaaaacp-1f, -0x1.2aaaacp-1f, -0x1.aaaaacp-2f, -0x1.2aaaacp-2f,
    -0x1.aaaaacp-3f, -0x1.6p-4f,      -0x1.555556p-9f, 0,
    0x1.555556p-9f,  0x1.6p-4f,       0x1.aaaaacp-3f,  0x1.2aaaacp-2f,
    0x1.aaaaacp-2f,  0x1.2aaaacp-1f,  0x1.aaaaacp-1f,
};

/* FP4's codes by ascending value. Its zero has two: numbers in (0, 1/384] get the second. */
static const uint8_t sheaf__fp4_order[16] = {
    11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3
};
