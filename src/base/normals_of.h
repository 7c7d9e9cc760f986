/* normals_of.h - sheaf__random_normal() for neighbours, side by side: compiled for several kinds of
 * processor. The bits are the same: all is additions, products, quotients, roots and fma(). */
#pragma once

#include "base/log_cos_d.h"
#include "base/philox.h"

enum { SHEAF__NORMALS = 32 }; /* side by side */

/* SHEAF__NORMALS of them, from `index`; `key` is the seed's. */
static inline void sheaf__normals_of(float *out, uint64_t key, uint64_t name_key, uint64_t index)
{
    double u[SHEAF__NORMALS], turn[SHEAF__NORMALS];
    for (int i = 0; i < SHEAF__NORMALS; i++) {
        uint32_t word[4];
        sheaf__philox_draw(word, index + (uint64_t)i, name_key, key);
        u[i] = ((double)word[0] + 0.5) * 0x1p-32;
        turn[i] = ((double)word[1] + 0.5) * 0x1p-32;
    }
    for (int i = 0; i < SHEAF__NORMALS; i++) {
        double lo;
        log_as_sum(&u[i], &lo, u[i]);
        u[i] = sqrt(-2 * u[i]);
    }
    for (int i = 0; i < SHEAF__NORMALS; i++) {
        double r, r_lo;
        const int quarter = (reduce(&r, &r_lo, turn[i] * 0x1.921fb54442d18p+2) + 1) & 3;
        const double c = cos_of_sum(r, r_lo), s = sin_of_sum(r, r_lo), y = quarter & 1 ? c : s;
        out[i] = (float)(u[i] * (quarter & 2 ? -y : y));
    }
}
