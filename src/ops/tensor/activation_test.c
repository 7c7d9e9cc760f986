/* activation_test.c - activations have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/math/round.h"
#include "ops/tensor/tensor.h"

static const int64_t counts[] = { 0, 1, 17, 33, 300, (1 << 14) + 1, 40001 };

/* Operands that may coincide do, in every second case. */
SAME_TYPES(test_activation__swiglu, dtype)
{
    for (size_t i = 0; i < 8 * ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i / 8];
        const bool gelu = i & 1, again = i & 2, in_place = i & 4;
        void *gate = same_take(n, dtype), *up = same_take(n, dtype), *dh = same_take(n, dtype);
        void *made = same_blank(n, dtype), *dgate = in_place ? gate : same_blank(n, dtype),
             *dup = in_place ? up : same_blank(n, dtype), *h = NULL;
        if (again)
            h = in_place ? dh : same_blank(n, dtype);
        SAME_EACH (device) {
            sheaf__op_swiglu(device, SAME(made), SAME(gate), SAME(up), n, gelu, dtype);
            sheaf__op_swiglu_back(device, SAME(dgate), SAME(dup), SAME(h), SAME(dh), SAME(gate),
                                  SAME(up), n, gelu, dtype);
        }
        same.ref->swiglu(made, gate, up, n, gelu, dtype);
        same.ref->swiglu_back(dgate, dup, h, dh, gate, up, n, gelu, dtype);
        same_check(gelu ? "geglu" : "swiglu");
    }
}

SAME_TYPES(test_activation__gelu, dtype)
{
    for (size_t i = 0; i < 8 * ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i / 8];
        const bool tanh = i & 1, add = i & 2, in_place = i & 4;
        void *x = same_take(n, dtype), *z = same_take(n, dtype), *dy = same_take(n, dtype);
        void *y = in_place ? x : same_blank(n, dtype),
             *dx = in_place && !add ? z : same_take(n, dtype);
        SAME_EACH (device) {
            sheaf__op_gelu(device, SAME(y), SAME(x), n, tanh, dtype);
            sheaf__op_gelu_back(device, SAME(dx), SAME(dy), SAME(z), n, add, tanh, dtype);
        }
        same.ref->gelu(y, x, n, tanh, dtype);
        same.ref->gelu_back(dx, dy, z, n, add, tanh, dtype);
        same_check(tanh ? "gelu by tanh" : "gelu");
    }
}

/* One element: y = round(x * by) and so on. */
static void scale_plainly(void *y, const void *x, const void *h, float by, bool divide, bool add,
                          sheaf_dtype dtype)
{
    float value, other;
    same.ref->widen(&value, x, dtype, 1);
    if (divide)
        value = sheaf__one_nan(value / by);
    else
        same.ref->scale(&value, by, 1);
    if (h != NULL) {
        uint32_t rounded;
        same.ref->round(&rounded, dtype, &value, 1);
        same.ref->widen(&value, &rounded, dtype, 1);
    }
    if (h != NULL || add) {
        same.ref->widen(&other, add ? y : h, dtype, 1);
        same.ref->add(&value, &other, &value, 1);
    }
    same.ref->round(y, dtype, &value, 1);
}

SAME_TYPES(test_activation__scaled, dtype)
{
    const int64_t size = (int64_t)sheaf_dtype_bytes(dtype);
    for (size_t i = 0; i < 12 * ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i / 12];
        const bool divide = i & 1, in_place = i & 2, add = i / 4 % 3 == 1;
        char *x = same_take(n, dtype), *y = in_place ? x : same_take(n, dtype),
             *h = i / 4 % 3 == 2 ? same_take(n, dtype) : NULL;
        const float by = i & 1 ? 3.0f : 0.70703125f;
        SAME_EACH (device)
            sheaf__op_scaled(device, SAME(y), SAME(x), SAME(h), by, n, divide, add, dtype);
        for (int64_t e = 0; e < n; e++)
            scale_plainly(y + e * size, x + e * size, h == NULL ? NULL : h + e * size, by, divide,
                          add, dtype);
        same_check("scaled");
    }
}

FIXTURE(same_open, same_close);
