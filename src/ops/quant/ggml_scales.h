/* ggml_scales.h - the twelve bytes of Q4_K and Q5_K that hold a scale and a minimum of 6 bits for
 * each of eight groups: those of the first four groups in the low bits of bytes 0 to 3 and 4 to 7;
 * of the others the low four bits in bytes 8 to 11 and the upper two in the upper bits of those. */
#pragma once

#include <stdint.h>

static inline void sheaf__ggml_scales(int *scale, int *least, const uint8_t s[12], int group)
{
    if (group < 4) {
        *scale = s[group] & 63;
        *least = s[group + 4] & 63;
    } else {
        *scale = (s[group + 4] & 15) | s[group - 4] >> 6 << 4;
        *least = s[group + 4] >> 4 | s[group] >> 6 << 4;
    }
}

static inline void sheaf__ggml_put_scales(uint8_t s[12], int scale, int least, int group)
{
    if (group < 4) { /* before the others */
        s[group] = (uint8_t)scale;
        s[group + 4] = (uint8_t)least;
    } else {
        s[group + 4] = (uint8_t)((scale & 15) | (least & 15) << 4);
        s[group - 4] |= (uint8_t)(scale >> 4 << 6);
        s[group] |= (uint8_t)(least >> 4 << 6);
    }
}
