/* trained_test.c - operations of the optimizer have the bits of the kernels, on every device. */
#include "tests/devices/same.h"

#include "ops/quant/quantise.h"
#include "ops/tensor/tensor.h"

static const int64_t counts[] = { 0, 1, 17, 300, 33, (1 << 15) + 1, 100003 };

SAME_NUMBERS(test_trained__adamw)
{
    const sheaf__adamw how = { 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.19, 0.0447, 0.7f };
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const int64_t n = counts[i];
        float *p = same_take(n, SHEAF_F32), *m = same_take(n, SHEAF_F32),
              *v = same_take(n, SHEAF_F32), *g = same_take(n, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_adamw(device, (sheaf__update){ SAME(p), SAME(m), SAME(v), SAME(g), n, how });
        same.ref->adamw(p, m, v, g, n, &how);
        same_check("adamw");
    }
}

SAME_NUMBERS(test_trained__adamw_in_8_bits)
{
    static const int64_t sizes[] = { 1, 255, 256, 257, 4648, (1 << 15) + 1 };
    const sheaf__adamw how = { 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.19, 0.0447, 0.7f };
    static sheaf__map8 map[2];
    sheaf__map8_init(&map[0], true);
    sheaf__map8_init(&map[1], false);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const int64_t n = sizes[i], bytes = (n + 3) / 4, blocks = (n + 255) / 256;
        float *p = same_take(n, SHEAF_F32), *m = same_take(bytes, SHEAF_F32),
              *v = same_take(bytes, SHEAF_F32), *scale1 = same_take(blocks, SHEAF_F32),
              *scale2 = same_take(blocks, SHEAF_F32), *g = same_take(n, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_adamw8(device,
                             (sheaf__update8){ SAME(p), (uint8_t *)SAME(m), (uint8_t *)SAME(v),
                                               SAME(scale1), SAME(scale2), SAME(g), n, map, how });
        same.ref->adamw8(p, &(sheaf__moments8){ (uint8_t *)m, (uint8_t *)v, scale1, scale2, map },
                         g, n, &how);
        same_check("adamw8");
    }
}

enum { TENSORS = 1100 }; /* more than an operation takes at a time */

SAME_NUMBERS(test_trained__squares)
{
    static sheaf__squares of[TENSORS];
    static double got[SAME_DEVICES][TENSORS], want[TENSORS];
    const float *x[TENSORS];
    int at = 0;
    for (int i = 0; i < TENSORS; i++) {
        of[i].n = i == 5 ? 100003 : i % 37;
        x[i] = same_take(of[i].n, SHEAF_F32);
    }
    SAME_EACH (device) {
        for (int i = 0; i < TENSORS; i++)
            of[i].x = SAME(x[i]);
        sheaf__op_squares(device, of, TENSORS);
        for (int i = 0; i < TENSORS; i++)
            got[at][i] = of[i].sum;
        at++;
    }
    for (int i = 0; i < TENSORS; i++)
        want[i] = same.ref->squares(x[i], of[i].n);
    same_check("squares");
    for (at = 0; at < same.devices; at++)
        CHECK_BYTES(same_on[at].class->name, got[at], want, sizeof want);
}

FIXTURE(same_open, same_close);
