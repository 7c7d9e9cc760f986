/* delta.c - see delta.h: the panels of the product. */
#include "lora/delta.h"

#include <string.h>

enum { PANEL = 16 };

int64_t sheaf__lora_packed_floats(int64_t rank, int64_t cols)
{
    return (cols + PANEL - 1) / PANEL * PANEL * rank;
}

void sheaf__lora_pack_row(float *packed, const float *row, int64_t k, int64_t rank, int64_t cols)
{
    packed += k * PANEL;
    for (int64_t j = 0; j < cols; j += PANEL, packed += PANEL * rank)
        memcpy(packed, row + j, (size_t)(cols - j < PANEL ? cols - j : PANEL) * sizeof *row);
}
