/* activation.c - kernels of activations and of rows times a number (ops/tensor/activation.h). */
#include "ops/tensor/activation.h"
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/gelu/gelu.h"
#include "ops/swiglu/swiglu.h"

KERNELS(swiglu, sheaf__activation, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    float gate[MOST], up[MOST];
    load_some(gate, a->x, i, a->n, dtype, per);
    load_some(up, a->up, i, a->n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        gate[e] = sheaf__swiglu_of(gate[e], up[e], a->gelu);
    store_some(a->y, i, a->n, gate, dtype, per);
}

KERNELS(swiglu_back, sheaf__activation, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    float h[MOST], gate[MOST], up[MOST], d[MOST];
    load_some(d, a->dy, i, a->n, dtype, per);
    load_some(gate, a->x, i, a->n, dtype, per);
    load_some(up, a->up, i, a->n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        sheaf__swiglu_back_of(&h[e], &gate[e], &up[e], d[e], gate[e], up[e], a->gelu);
    if (a->y != NULL)
        store_some(a->y, i, a->n, h, dtype, per);
    store_some(a->dup, i, a->n, up, dtype, per);
    store_some(a->dx, i, a->n, gate, dtype, per);
}

KERNELS(gelu, sheaf__activation, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    float x[MOST];
    load_some(x, a->x, i, a->n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        x[e] = sheaf__gelu_of(x[e], a->tanh);
    store_some(a->y, i, a->n, x, dtype, per);
}

KERNELS(gelu_back, sheaf__activation, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    float x[MOST], dy[MOST], was[MOST];
    load_some(x, a->x, i, a->n, dtype, per);
    load_some(dy, a->dy, i, a->n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        dy[e] *= sheaf__gelu_slope(x[e], a->tanh);
    if (a->add) {
        load_some(was, a->dx, i, a->n, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            dy[e] = was[e] + dy[e];
    }
    store_some(a->dx, i, a->n, dy, dtype, per);
}

KERNELS(scaled, sheaf__activation, 256)
{
    const int per = PER(dtype);
    const int64_t i = own_index() * per;
    if (i >= a->n)
        return;
    float x[MOST], other[MOST];
    load_some(x, a->x, i, a->n, dtype, per);
    UNROLL
    for (int e = 0; e < per; e++)
        x[e] = sheaf__one_nan(a->divide ? x[e] / a->by : x[e] * a->by);
    if (a->add || a->up != NULL) {
        load_some(other, a->add ? a->y : a->up, i, a->n, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            x[e] = other[e] + (a->up != NULL ? rounded_one(x[e], dtype) : x[e]);
    }
    store_some(a->y, i, a->n, x, dtype, per);
}
