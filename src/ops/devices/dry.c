/* dry.c - a device without memory, which only counts: the planner's. */
#include "ops/device.h"

/* No processor maps these addresses (bits 57 to 63 are neither all 0 nor all 1): what
 * `dry` hands out faults when touched, and 64 dry ranks need not share the 128 TiB
 * that a process can reserve. */
#define BASE ((uintptr_t)1 << 60)
#define CAPACITY ((size_t)1 << 56)

static sheaf_status *reserve(sheaf__reserved *range, size_t limit)
{
    *range = (sheaf__reserved){ (char *)BASE, CAPACITY, CAPACITY, NULL };
    return NULL;
}

const sheaf__device_class sheaf__dry = {
    .name = "dry", .counts = true, .shared = true, .reserve = reserve
};
