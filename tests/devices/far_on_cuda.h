/* far_on_cuda.h - for tests of products on GPUs: they run by a kernel, and give what is here. */
#pragma once

#include "ops/devices/gpu/gpu.h"
#include "tests/devices/far_products.h"

enum { MOST_FAR = 4 }; /* jobs of one call */

/* ---- devices: the processor, and GPUs that the test's own open_devices() names ---- */
enum { MOST_GPUS = 2 };
static sheaf__device *here, *gpu[MOST_GPUS];
static int gpus;

/* kinds: as "8.0,9.0", of so many GPUs. */
static inline int open_gpus(const char *kinds, int count)
{
    gpus = count;
    setenv("SHEAF_EMULATED_GPU", kinds, 1);
    CHECK_OK(sheaf__device_open(&here, &sheaf__cpu, 2, NULL, 0));
    for (int g = 0; g < count; g++)
        CHECK_OK(sheaf__device_open_of(&gpu[g], &sheaf__cuda_class, &(sheaf__reserved){ .unit = g },
                                       1, NULL, 0));
    return 0;
}

static inline int close_gpus(void **state)
{
    sheaf__device_close(here);
    for (int g = 0; g < MOST_GPUS; g++)
        sheaf__device_close(gpu[g]);
    return 0;
}

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

/* Jobs, here and there. The first GPU has mma8, the second one mma16; other orders run on any of
 * them.
 */
static inline void check_jobs(const char *name, const sheaf__product *job, int jobs,
                              sheaf_sums sums)
{
    sheaf__product before[MOST_FAR];
    copy_jobs(before, job, jobs);
    here->sums = sums;
    sheaf__products(here, job, jobs);
    for (int g = 0; g < gpus; g++) {
        gpu[g]->sums = sums;
        if (sums == SHEAF_SUMS_MMA8 || sums == SHEAF_SUMS_MMA16
                ? (g > 0) == (sums == SHEAF_SUMS_MMA16)
                : g == (int)below(gpus))
            check_on(gpu[g], name, job, jobs, before);
    }
    drop_all();
}
