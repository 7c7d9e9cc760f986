/* image.c - the machine code of sheaf's kernels, for each kind of GPU. */
#include "base/base.h"
#include "ops/devices/cuda/cuda.h"

sheaf_status *sheaf__cuda_image(const void **out, const sheaf__cuda *gpu)
{
    if (sheaf__stand_in_image != NULL) {
        *out = sheaf__stand_in_image(gpu->major, gpu->minor);
        return NULL;
    }
    return sheaf_fail(SHEAF_E_UNSUPPORTED, "kernels for GPU %d (%s)", gpu->number, gpu->name);
}
