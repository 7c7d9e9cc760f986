/* copied.h - the smallest device: memory of its own, in another mapping than the addresses that it
 * hands out, transfers, and no operation at all. */
#pragma once

#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "ops/device.h"

#define COPIED_CAPACITY ((size_t)1 << 33)
#define COPIED_BASE ((uintptr_t)3 << 58) /* no processor maps it */

static sheaf_status *copied_reserve(sheaf__reserved *range, size_t limit)
{
    const size_t size = limit != 0 ? limit : COPIED_CAPACITY;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return sheaf_fail(SHEAF_E_MEMORY, "addresses of a device");
    *range = (sheaf__reserved){ (char *)COPIED_BASE, size, size, memory };
    return NULL;
}

static void copied_release(sheaf__reserved *range)
{
    munmap(range->own, range->capacity);
}

static sheaf_status *copied_upload(sheaf__reserved *range, void *to, const void *from, size_t bytes)
{
    memcpy((char *)range->own + ((char *)to - range->base), from, bytes);
    return NULL;
}

static sheaf_status *copied_download(sheaf__reserved *range, void *to, const void *from,
                                     size_t bytes)
{
    memcpy(to, (char *)range->own + ((const char *)from - range->base), bytes);
    return NULL;
}

static const sheaf__device_class copied_device = { .name = "copied",
                                                   .reserve = copied_reserve,
                                                   .release = copied_release,
                                                   .upload = copied_upload,
                                                   .download = copied_download };
