/* rope.c - rotary embedding of rows, in place (ops/tensor/rope.h, ops/kernels.h). */
#include "ops/tensor/rope.h"
#include "ops/devices/gpu/kernels/vectors.h"

/* A thread has PER(dtype) pairs (j, j + rot / 2) of one head. */
KERNELS(rope, sheaf__rope, 256)
{
    const int per = PER(dtype);
    const int64_t half = a->rot / 2, parts = (half + per - 1) / per;
    int64_t part, head;
    const int64_t row = divide(divide(own_index(), parts, &part), a->heads, &head);
    if (row >= a->rows)
        return;
    const int64_t j = part * per, angle = (a->position == NULL ? row : a->position[row]) * half,
                  at = row * a->ld + head * a->head_dim;
    float x[MOST], y[MOST], c[MOST], s[MOST], turned[MOST];
    load_some(x, a->x, at + j, at + half, dtype, per);
    load_some(y, a->x, at + half + j, at + 2 * half, dtype, per);
    load_some(c, a->cos, angle + j, angle + half, SHEAF_F32, per);
    load_some(s, a->sin, angle + j, angle + half, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e++) {
        const float sin = a->inverse ? -s[e] : s[e];
        turned[e] = x[e] * c[e] - y[e] * sin;
        y[e] = y[e] * c[e] + x[e] * sin;
    }
    store_some(a->x, at + j, at + half, turned, dtype, per);
    store_some(a->x, at + half + j, at + 2 * half, y, dtype, per);
}

/* A thread has PER(dtype) / 2 pairs (2 i, 2 i + 1) of one head. */
KERNELS(rope_pairs, sheaf__rope, 256)
{
    const int per = PER(dtype);
    const int64_t width = a->rot, parts = (width + per - 1) / per;
    int64_t part, head, place;
    const int64_t row = divide(divide(own_index(), parts, &part), a->heads, &head);
    if (row >= a->rows)
        return;
    divide(row, a->positions + 1, &place);
    if (a->position == NULL && place == 0)
        return; /* the row before an image's patches */
    const int64_t at_angle = a->position != NULL ? a->position[row] : place - 1;
    const int64_t j = part * per, angle = at_angle * width, at = row * a->ld + head * a->head_dim;
    float x[MOST], c[MOST], s[MOST];
    load_some(x, a->x, at + j, at + width, dtype, per);
    load_some(c, a->cos, angle + j, angle + width, SHEAF_F32, per);
    load_some(s, a->sin, angle + j, angle + width, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e += 2) {
        const float u = x[e], v = x[e + 1];
        x[e] = a->inverse ? u * c[e] + v * s[e + 1] : u * c[e] - v * s[e];
        x[e + 1] = a->inverse ? v * c[e + 1] - u * s[e] : v * c[e + 1] + u * s[e + 1];
    }
    store_some(a->x, at + j, at + width, x, dtype, per);
}
