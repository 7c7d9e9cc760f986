/* describe.c - what is known of the GPUs of this machine, for people: describe.h. */
#include "ops/devices/gpu/describe.h"

#include "base/base.h"
#include "ops/devices/gpu/gpu.h"

sheaf_status *sheaf__gpus_count(int *count, char driver[32])
{
    const sheaf__driver *d;
    int version = 0;
    *count = 0;
    sheaf_status *st = sheaf__driver_get(&d);
    if (st != NULL)
        return st;
    sheaf__gpu_error e = d->count(count);
    SHEAF__GPU_TRY(e, d->version(&version));
    snprintf(driver, 32, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    return e == 0 ? NULL : sheaf__driver_failed(d, e, "NVIDIA's driver");
}

/* Why it cannot be used: opened as a rank opens it, probe included. */
static void try_it(sheaf__gpu_facts *out, int number)
{
    sheaf__reserved range = { .unit = number };
    sheaf_status *st = sheaf__cuda_class.reserve(&range, 0);
    if (st == NULL) {
        const sheaf__gpu *gpu = range.own;
        size_t all;
        if (gpu->driver->set_context(gpu->context) != 0 ||
            gpu->driver->memory_left(&out->left, &all) != 0)
            out->left = 0;
        sheaf__cuda_class.release(&range);
    } else {
        snprintf(out->problem, sizeof out->problem, "%s: %s%s%s", sheaf_status_where(st),
                 sheaf_status_found(st), *sheaf_status_expected(st) == '\0' ? "" : "; expected ",
                 sheaf_status_expected(st));
        sheaf_status_free(st);
    }
}

sheaf_status *sheaf__gpu_look(sheaf__gpu_facts *out, int number)
{
    const sheaf__driver *d;
    int handle = 0;
    *out = (sheaf__gpu_facts){ .name = "unknown" };
    sheaf_status *st = sheaf__driver_get(&d);
    if (st != NULL)
        return st;
    sheaf__gpu_error e = d->device(&handle, number);
    SHEAF__GPU_TRY(e, d->name(out->name, sizeof out->name, handle));
    SHEAF__GPU_TRY(e, d->pci_address(out->address, sizeof out->address, handle));
    SHEAF__GPU_TRY(e, d->attribute(&out->major, SHEAF__GPU_MAJOR, handle));
    SHEAF__GPU_TRY(e, d->attribute(&out->minor, SHEAF__GPU_MINOR, handle));
    SHEAF__GPU_TRY(e, d->attribute(&out->processors, SHEAF__GPU_PROCESSORS, handle));
    SHEAF__GPU_TRY(e, d->memory_size(&out->memory, handle));
    if (e != 0)
        return sheaf__driver_failed(d, e, "GPU %d", number);
    out->sums = out->major >= 9 ? "mma16" : out->major == 8 ? "mma8" : "none";
    try_it(out, number);
    return NULL;
}

sheaf__gpu_link sheaf__gpu_link_of(int from, int to)
{
    const sheaf__driver *d;
    int a, b, reaches = 0, atomics = 0;
    sheaf_status *st = sheaf__driver_get(&d);
    if (st != NULL || d->device(&a, from) != 0 || d->device(&b, to) != 0 ||
        d->can_reach(&reaches, a, b) != 0 || !reaches) {
        sheaf_status_free(st);
        return SHEAF__LINK_HOST;
    }
    /* of which PCI Express has none between GPUs */
    if (d->peer_attribute(&atomics, SHEAF__GPU_PEER_ATOMICS, a, b) != 0)
        atomics = 0;
    return atomics ? SHEAF__LINK_NVLINK : SHEAF__LINK_PCI;
}
