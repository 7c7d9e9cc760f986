/* far_on_cuda.h - for tests of products on GPUs: they run by a kernel, and give what is here. */
#pragma once

#include "ops/devices/gpu/gpu.h"
#include "tests/devices/far_products.h"

enum { MOST_FAR = 4 }; /* jobs of one call */

/* Jobs of one call, whose results are here; `before`: they as they were. */
static inline void check_on(sheaf__device *device, const char *name, const sheaf__product *job,
                            int jobs, const sheaf__product *before)
{
    static there on[MOST_FAR];
    sheaf__product copy[MOST_FAR];
    const int64_t ran = sheaf__gpu_ran(device, SHEAF__OP_PRODUCTS);
    for (int j = 0; j < jobs; j++) {
        on[j] = (there){ .device = device };
        copy[j] = put_job(&on[j], &before[j]);
    }
    sheaf__products(device, copy, jobs);
    CHECK_OK(sheaf__device_check(device));
    assert_int_equal(sheaf__gpu_ran(device, SHEAF__OP_PRODUCTS), ran + 1);
    for (int j = 0; j < jobs; j++)
        check_there(name, &job[j], &copy[j], &on[j]);
}
