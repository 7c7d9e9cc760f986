/* failed.c - what a failure of the driver is in words: gpu.h. */
#include <errno.h>

#include "base/base.h"
#include "ops/devices/gpu/gpu.h"

static const char *advice(sheaf__gpu_error e)
{
    switch (e) {
    case SHEAF__GPU_NO_MEMORY:
        return "end other programs in the GPU's memory (nvidia-smi lists it), or a smaller micro-batch "
               "or sequence length, recomputed activations, or more GPUs";
    case SHEAF__GPU_ECC:
        return "the GPU's memory is damaged: take the GPU out of use, and go on from the last "
               "checkpoint with `resume` on another one";
    case SHEAF__GPU_IN_USE:
        return "another GPU (`device cuda:N`), or let this one be shared (nvidia-smi -c DEFAULT): "
               "another process has it alone";
    case SHEAF__GPU_OLD_DRIVER:
    case SHEAF__GPU_NO_IMAGE:
    case SHEAF__GPU_BAD_IMAGE:
    case SHEAF__GPU_NEW_PTX: return "update the driver, or build sheaf on this machine";
    default:
        return "go on from the last checkpoint with `resume`; dmesg has the driver's own report "
               "(Xid), and with CUDA_LAUNCH_BLOCKING=1 the kernel that is named is the one that "
               "failed";
    }
}

/* Errors that another process on the GPU would meet again; others may pass. */
static bool stays(sheaf__gpu_error e)
{
    return e < SHEAF__GPU_ECC || e == SHEAF__GPU_NEW_PTX || e == SHEAF__GPU_NOT_FOUND ||
           e == SHEAF__GPU_MISMATCH;
}

sheaf_status *sheaf__gpu_failed(const sheaf__gpu *gpu, sheaf__gpu_error e, const char *what)
{
    char error[SHEAF__DRIVER_TEXT];
    if (e == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(e == SHEAF__GPU_NO_MEMORY ? SHEAF_E_MEMORY
                                  : stays(e)                ? SHEAF_E_UNSUPPORTED
                                                            : SHEAF_E_IO,
                                  "GPU %d (%s): %s", gpu->number, gpu->name, what);
    if (!stays(e))
        sheaf__found_errno(st, EIO); /* --restarts begins again */
    sheaf__driver_error(gpu->driver, e, error);
    if (gpu->last == NULL)
        sheaf_found(st, "%s", error);
    else
        sheaf_found(st, "%s; the last kernel launched was %s", error, gpu->last);
    return sheaf_try_this(st, "%s", advice(e));
}
