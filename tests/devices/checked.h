/* checked.h - a device whose memory faults but inside operations and transfers.
 *
 * Its addresses are never accessible. The same memory has a second mapping, which operations and
 * transfers use: an operation's pointers are translated from its list of operands, so that one that
 * is missing there faults, too. */
#pragma once

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "ops/call.h"
#include "ops/device.h"

#define CHECKED_CAPACITY ((size_t)1 << 33)

static sheaf_status *checked_reserve(sheaf__reserved *range, size_t limit)
{
    const size_t size = limit != 0 ? limit : CHECKED_CAPACITY;
    const int file = memfd_create("checked", 0);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return sheaf_fail(SHEAF_E_MEMORY, "memory of a checked device");
    void *base = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void *inner = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (base == MAP_FAILED || inner == MAP_FAILED)
        return sheaf_fail(SHEAF_E_MEMORY, "addresses of a checked device");
    *range = (sheaf__reserved){ base, size, size, inner };
    return NULL;
}

static void checked_release(sheaf__reserved *range)
{
    munmap(range->base, range->capacity);
    munmap(range->own, range->capacity);
}

/* Where the second mapping has what lies at `at`; what is not the device's stays. */
static void *checked_inner(const sheaf__reserved *range, const void *at)
{
    const uintptr_t offset = (uintptr_t)at - (uintptr_t)range->base;
    return offset < range->capacity ? (char *)range->own + offset : (void *)at;
}

static sheaf_status *checked_upload(sheaf__reserved *range, void *to, const void *from,
                                    size_t bytes)
{
    memcpy(checked_inner(range, to), from, bytes);
    return NULL;
}

static sheaf_status *checked_download(sheaf__reserved *range, void *to, const void *from,
                                      size_t bytes)
{
    memcpy(to, checked_inner(range, from), bytes);
    return NULL;
}

static bool checked_run(sheaf__device *device, sheaf__reserved *range, const sheaf__call *call)
{
    void *was[4096];
    assert((size_t)call->operands <= sizeof was / sizeof *was);
    for (int i = 0; i < call->operands; i++) {
        memcpy(&was[i], call->operand[i].field, sizeof was[i]);
        void *inner = checked_inner(range, was[i]);
        memcpy(call->operand[i].field, &inner, sizeof inner);
    }
    sheaf__run_here(device, call);
    for (int i = 0; i < call->operands; i++)
        memcpy(call->operand[i].field, &was[i], sizeof was[i]);
    return true;
}

static const sheaf__device_class checked_device = { .name = "checked",
                                                    .reserve = checked_reserve,
                                                    .grow = NULL,
                                                    .release = checked_release,
                                                    .upload = checked_upload,
                                                    .download = checked_download,
                                                    .run = checked_run };
